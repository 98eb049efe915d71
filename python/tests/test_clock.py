"""The clock of a GPU, with events that are made up."""

from __future__ import annotations

import pytest

pytest.importorskip("torch")

from ata.torch import clock as host_clock  # noqa: E402
from ata.torch import cuda_clock  # noqa: E402


def test_a_host_measures_what_is_not_waiting(monkeypatch: pytest.MonkeyPatch) -> None:
    now = 0.0
    monkeypatch.setattr(host_clock, "perf_counter", lambda: now)
    clock = host_clock.Clock()
    clock.factor = 2.0
    for _ in range(4):
        # 2 s between two steps, 8 s of loading with 4 s of exchange, twice 5 s of computing with 3 s of waiting.
        for call, seconds in [
            (clock.load, 4),
            (None, 4),
            (clock.loaded, 1),
            (clock.begin, 1),
            (clock.pause, 3),
            (clock.resume, 1),
            (clock.end, 1),
            (clock.begin, 1),
            (clock.pause, 3),
            (clock.resume, 1),
            (clock.end, 9),
            (clock.synced, 2),
        ]:
            if call is None:
                with clock.exchanging():
                    now += seconds
            else:
                call()
                now += seconds
        clock.ended(7)
    assert clock.take() == clock.take() == (7, 2 + 4 + 2 * (2 + 2))
    assert clock.take() == (0, 0.0)


def test_all_backward_passes_of_a_step_count(monkeypatch: pytest.MonkeyPatch) -> None:
    now = 0.0
    monkeypatch.setattr(host_clock, "perf_counter", lambda: now)
    clock = host_clock.Clock()
    for _ in range(4):
        clock.load()
        clock.loaded()
        clock.begin()
        # The second pass begins with the optimizer of the first one. Before each of them has ended, ranks wait for 9 s.
        for seconds in (2, 3):
            now += seconds
            clock.end()
            now += 9
            clock.synced()
        now += 1
        clock.ended(4)
    assert clock.take() == (4, 1 + 2 + 3)


def test_evaluations_between_steps_do_not_count(monkeypatch: pytest.MonkeyPatch) -> None:
    now = 0.0
    monkeypatch.setattr(host_clock, "perf_counter", lambda: now)
    clock = host_clock.Clock()
    times = []
    for step in range(30):
        clock.load()
        clock.loaded()
        clock.begin()
        now += 1
        clock.end()
        clock.synced()
        clock.ended(4)
        now += 100 if step % 5 == 0 else 1
        times.append(clock.take()[1])
    assert times[:2] == [0.0] * 2 and times[3:] == [2.0] * 27


class Event:
    """An event that a stream reaches at a time in milliseconds."""

    def __init__(self, at: float) -> None:
        self.at = at
        self.is_reached = False

    def query(self) -> bool:
        return self.is_reached

    def elapsed_time(self, end: Event) -> float:
        assert self.is_reached and end.is_reached, "it would wait"
        return end.at - self.at


def test_times_are_taken_once_the_gpu_has_passed_them(monkeypatch: pytest.MonkeyPatch) -> None:
    events: list[Event] = []

    def step(tasks: int, *times: float) -> None:
        """Two micro-batches, each with a wait; the last time is that of the end of communication."""
        recorded = iter(times)

        def record() -> Event:
            events.append(Event(next(recorded)))
            return events[-1]

        monkeypatch.setattr(cuda_clock, "_recorded", record)
        clock.load()
        clock.loaded()
        for _ in range(2):
            clock.begin()
            clock.pause()
            clock.resume()
            clock.end()
        clock.synced()
        clock.ended(tasks)

    clock = cuda_clock.CudaClock()
    step(9, 0, 0, 0, 0, 0, 0, 0, 0, 50)
    step(9, 60, 60, 60, 60, 60, 60, 60, 60, 100)
    step(5, 150, 160, 170, 200, 200, 200, 201, 250, 400)
    assert clock.take() == (0, 0.0)
    for event in events:
        event.is_reached = True
    step(0, *[500] * 8, 600)
    # 50 ms before it, 100 ms of computing, less 11 ms of waiting; not the first two steps, nor one without tasks.
    tasks, seconds = clock.take()
    assert tasks == 5 and seconds == pytest.approx(0.139)
    assert clock.take() == (0, 0.0)
