"""How long a rank is occupied by its share of a step.

A rank's time is what it takes from the end of a step's communication until its own last gradient of the next step is there:
optimizer, loading, forward and backward. Waiting for other ranks is no part of it.
"""

from __future__ import annotations

import statistics
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager
from time import perf_counter

# Evaluations and checkpoints fall between two steps as well. With a median of nine, up to four of them in nine steps do not count.
USUAL = 9

# Steps that are not measured: the first one also allocates memory, chooses algorithms, and compiles; in the forward pass of the second
# one, ranks wait for each other, because DistributedDataParallel arranges its buckets anew.
WARM_UP = 2

# Steps whose times a device has not reached yet. A host is hardly ever further ahead.
MOST_PENDING = 64


class Clock:
    """Measures a step at a time, by calls in this order::

    load, loaded, begin, ((pause, resume)..., end, synced)..., ended

    Attributes:
        factor: Seconds of a share for each second that is measured of its computation.
    """

    def __init__(self) -> None:
        self.factor = 1.0
        self._synced: float | None = None
        self._mark = 0.0
        self._load_s = self._compute_s = 0.0
        self._between: deque[float] = deque(maxlen=USUAL)
        self._measured: deque[tuple[int, float]] = deque(maxlen=MOST_PENDING)
        self._unmeasured = WARM_UP

    def load(self) -> None:
        """The rank begins to load its samples."""
        self._load_s = self._compute_s = 0.0
        self._mark = perf_counter()
        if self._synced is not None:
            self._between.append(self._mark - self._synced)

    def loaded(self) -> None:
        """Its samples are there."""
        self._load_s += perf_counter() - self._mark

    def begin(self) -> None:
        """It begins to compute."""
        self._mark = perf_counter()

    def pause(self) -> None:
        """It waits for other ranks."""
        self._compute_s += perf_counter()

    def resume(self) -> None:
        """It goes on."""
        self._compute_s -= perf_counter()

    def end(self) -> None:
        """It has computed the gradients of a backward pass."""
        self._compute_s += perf_counter() - self._mark

    def synced(self) -> None:
        """Those of all ranks are there."""
        self._synced = self._mark = perf_counter()

    @contextmanager
    def exchanging(self) -> Iterator[None]:
        """It waits for other ranks while it loads."""
        began = perf_counter()
        yield
        self._load_s -= perf_counter() - began

    def ended(self, tasks: int) -> None:
        """The step has ended; `tasks` were this rank's."""
        if tasks > 0 and self._unmeasured == 0:
            usual_s = statistics.median_low(self._between) if self._between else 0.0
            self._measured.append((tasks, max(self._load_s, 0.0) + self._compute_s * self.factor + usual_s))
        self._unmeasured = max(0, self._unmeasured - 1)

    def take(self) -> tuple[int, float]:
        """The tasks and the seconds of a step that was measured and not taken yet; (0, 0.0) if there is none."""
        return self._measured.popleft() if self._measured else (0, 0.0)
