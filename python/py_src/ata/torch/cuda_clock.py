"""The clock of a rank on a GPU."""

from __future__ import annotations

import statistics
from collections import deque
from dataclasses import dataclass

import torch

from ata.torch.clock import MOST_PENDING, Clock


@dataclass
class Pending:
    """A step that the GPU may not have computed yet: its events, in pairs of a beginning and an end."""

    tasks: int
    before: torch.cuda.Event | None
    computing: list[torch.cuda.Event]
    waiting: list[torch.cuda.Event]

    def seconds(self) -> tuple[float, float]:
        """From the end of the step before to the first beginning, and of the computation without waiting."""
        between_s = _elapsed_s(self.before, self.computing[0]) if self.before else 0.0
        return between_s, _total_s(self.computing) - _total_s(self.waiting)


def _elapsed_s(begin: torch.cuda.Event, end: torch.cuda.Event) -> float:
    return float(begin.elapsed_time(end)) / 1e3


def _total_s(events: list[torch.cuda.Event]) -> float:
    return sum(_elapsed_s(begin, end) for begin, end in zip(events[::2], events[1::2]))


class CudaClock(Clock):
    """Measures with events in the GPU's stream, and looks at them once the GPU has passed them. It waits for nothing. Loading
    is not measured: it is in parallel with the GPU, or the GPU waits for it before the first event."""

    def __init__(self) -> None:
        super().__init__()
        self._last: torch.cuda.Event | None = None
        self._begun: torch.cuda.Event | None = None
        self._step = Pending(0, None, [], [])
        self._pending: deque[Pending] = deque(maxlen=MOST_PENDING)

    def load(self) -> None:
        self._step = Pending(0, self._last, [], [])

    def loaded(self) -> None:
        pass

    def begin(self) -> None:
        self._begun = _recorded()

    def pause(self) -> None:
        self._step.waiting.append(_recorded())

    def resume(self) -> None:
        self._step.waiting.append(_recorded())

    def end(self) -> None:
        assert self._begun is not None
        self._step.computing += [self._begun, _recorded()]

    def synced(self) -> None:
        self._last = self._begun = _recorded()

    def ended(self, tasks: int) -> None:
        if tasks > 0 and self._unmeasured == 0:
            self._step.tasks = tasks
            self._pending.append(self._step)
        self._unmeasured = max(0, self._unmeasured - 1)

    def take(self) -> tuple[int, float]:
        if not self._pending or not self._pending[0].computing[-1].query():
            return (0, 0.0)
        step = self._pending.popleft()
        between_s, compute_s = step.seconds()
        self._between.append(between_s)
        return (step.tasks, compute_s * self.factor + statistics.median_low(self._between))


def _recorded() -> torch.cuda.Event:
    event = torch.cuda.Event(enable_timing=True)
    event.record()
    return event
