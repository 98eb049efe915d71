"""Processes that load the batches of the tasks that come next, while the present one is computed."""

from __future__ import annotations

import logging
import pickle
import signal
import traceback
from collections import deque
from collections.abc import Sequence
from contextlib import suppress
from multiprocessing.connection import Connection
from typing import Any, NamedTuple

import numpy as np
import torch
import torch.multiprocessing

from ata.command import LOADER
from ata.problem import Integers, Key
from ata.torch.batches import Source

log = logging.getLogger(__name__)


class Request(NamedTuple):
    """A batch to load."""

    samples: Integers
    key: Key

    def is_same(self, other: Request | None) -> bool:
        """Whether it is the same batch."""
        return other is not None and self.key == other.key and np.array_equal(self.samples, other.samples)


class Answer(NamedTuple):
    """A batch, or why there is none."""

    batch: Any = None
    error: Exception | None = None
    traceback: str = ""
    is_of_the_system: bool = False


class Loaders:
    """Some processes that load a batch at a time each."""

    def __init__(self, source: Source, number: int) -> None:
        self.loaders = [Loader(source, place) for place in range(number)]
        self.wanted: deque[Request] = deque()
        # Or the first tasks would be timed with the start of processes.
        for loader in self.loaders:
            loader.wait_for_start()

    def announce(self, requests: Sequence[Request]) -> None:
        """These batches are taken next, after those that were announced before."""
        self.wanted.extend(requests)
        self._hand_out()

    def forget(self) -> None:
        """What was announced and not taken is not needed any more."""
        self.wanted.clear()
        for loader in self.loaders:
            loader.request = None

    def take(self, request: Request) -> Any | None:
        """A batch, as soon as it is loaded; None if no process loads it."""
        loader = next((loader for loader in self.loaders if request.is_same(loader.request)), None)
        if loader is None:
            self.wanted = deque(wanted for wanted in self.wanted if not request.is_same(wanted))
            return None
        try:
            return loader.take()
        finally:
            self._hand_out()

    def _hand_out(self) -> None:
        for loader in self.loaders:
            if self.wanted and loader.is_free() and loader.begin(self.wanted[0]):
                self.wanted.popleft()


class Loader:
    """A process that loads a batch at a time.

    Attributes:
        request: The batch that it loads or has loaded, as long as it is wanted.
    """

    def __init__(self, source: Source, place: int) -> None:
        self.request: Request | None = None
        self._source, self._place = source, place
        self._start()

    def wait_for_start(self) -> None:
        """Waits until it has imported what it needs."""
        self._receive()

    def is_free(self) -> bool:
        """Whether it can begin. A batch that is not wanted any more is dropped once it is there."""
        if self._is_busy and self.request is None and self._connection.poll():
            try:
                self._receive()
            except ChildProcessError as error:
                log.warning("%s", error)
        return not self._is_busy

    def begin(self, request: Request) -> bool:
        """It loads a batch; false if it has ended, with nothing to do, so that no task fails."""
        try:
            self._connection.send(request)
        except OSError:
            log.warning("loader process %s", self._restart())
            return False
        self.request, self._is_busy = request, True
        return True

    def take(self) -> Any:
        """The batch. Raises what was raised by loading it."""
        request, self.request = self.request, None
        try:
            answer = self._receive()
        except ChildProcessError as error:
            first = [] if request is None else request.samples[:4].tolist()
            raise ChildProcessError(f"{error} while it loaded a task's samples, from {first} on") from error
        if answer.error is not None:
            # Exceptions lose their causes on the way here; whether one was of the system decides what becomes of the run.
            cause = OSError if answer.is_of_the_system else RuntimeError
            raise answer.error from cause(f"in a loader process\n{answer.traceback}")
        return answer.batch

    def _receive(self) -> Answer:
        self._is_busy = False
        try:
            answer: Answer = self._connection.recv()
        except (EOFError, OSError) as error:
            raise ChildProcessError(f"loader process {self._restart()}") from error
        return answer

    def _start(self) -> None:
        # A fork would copy the locks that other threads of this process hold.
        context = torch.multiprocessing.get_context("spawn")
        self._connection, other = context.Pipe()
        name, arguments = f"{LOADER}-{self._place}", (self._source, other)
        self._process = context.Process(target=serve, args=arguments, name=name, daemon=True)
        self._process.start()
        # Otherwise this end would not notice that the process ended.
        other.close()
        # With an answer that nobody wants: that it has started.
        self._is_busy = True

    def _restart(self) -> str:
        """Starts a process in place of one that ended, and says how that one did."""
        self._connection.close()
        self._process.join(timeout=10)
        how = f"{self._process.pid} ended with exit code {self._process.exitcode}"
        self._start()
        return how


def serve(source: Source, connection: Connection) -> None:
    """What a loader process does, until the worker ends."""
    # Ctrl-C goes to all processes of a terminal; the worker decides.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    torch.set_num_threads(1)
    with suppress(EOFError, ConnectionError):
        connection.send(Answer())
        while True:
            request = connection.recv()
            try:
                connection.send(Answer(source.batch_of_task(*request)))
            except Exception as error:  # noqa: BLE001
                text = traceback.format_exc()
                connection.send(Answer(None, portable(error), text, is_of_the_system(error)))


def portable(error: Exception) -> Exception:
    """An exception, or one like it that another process can read."""
    try:
        pickle.loads(pickle.dumps(error))  # noqa: S301
    except Exception:  # noqa: BLE001
        return RuntimeError(f"{type(error).__name__}: {error}")
    return error


def is_of_the_system(error: BaseException | None) -> bool:
    """Whether an exception is an OSError, or follows from one."""
    while error is not None and not isinstance(error, OSError):
        error = error.__cause__ or error.__context__
    return error is not None
