"""What uneven shares have brought, for people."""

from __future__ import annotations

import statistics
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ata.torch.agreement import Times


@dataclass(frozen=True)
class Report:
    """The times of steps, in which each rank computed so many tasks of `unit` samples. `print(report)` shows it; `save` draws it.

    What even shares would have cost is estimated: each rank's seconds per sample of the same step, times an even share.
    """

    times: list[Times]
    unit: int = 1

    @property
    def seconds(self) -> float:
        """Seconds of a step, until the last rank has its gradients; the mean."""
        return statistics.mean(max(times.seconds) for times in self._whole()) if self._whole() else 0.0

    @property
    def even_seconds(self) -> float:
        """What a step would have taken with even shares."""
        return statistics.mean(map(_even, self._whole())) if self._whole() else 0.0

    @property
    def samples(self) -> list[float]:
        """The samples of each rank in a step; the mean."""
        return [self.unit * statistics.mean(rank) for rank in zip(*(times.tasks for times in self._whole()))]

    @property
    def busy_seconds(self) -> list[float]:
        """The seconds that each rank was busy in a step; the mean."""
        return [statistics.mean(rank) for rank in zip(*(times.seconds for times in self._whole()))]

    def _whole(self) -> list[Times]:
        """The steps in which all ranks computed something."""
        return [times for times in self.times if all(times.tasks)]

    def __str__(self) -> str:
        if not self._whole():
            return "no step has been measured yet: the first two are not, and a step counts if all ranks had samples"
        lines = ["rank  samples  busy, s  samples/s"]
        for rank, (samples, seconds) in enumerate(zip(self.samples, self.busy_seconds, strict=True)):
            lines.append(f"{rank:4} {samples:8.1f} {seconds:8.4f} {samples / seconds if seconds else 0:10.1f}")
        steps = f"{len(self._whole())} steps of {self.seconds:.4f} s"
        return "\n".join([*lines, f"{steps}; even shares: about {self.even_seconds:.4f} s"])

    def save(self, path: str | Path) -> None:
        """Draws each rank's samples and seconds over the steps, as a PNG or whatever the path ends in. Needs matplotlib."""
        try:
            from matplotlib.figure import Figure
        except ImportError as error:
            raise ImportError("report.save needs matplotlib: pip install matplotlib") from error
        figure = Figure(figsize=(8, 6), layout="constrained")
        shares, seconds = figure.subplots(2, sharex=True)
        steps = range(1, len(self.times) + 1)
        for rank in range(len(self.times[0].tasks) if self.times else 0):
            measured = [times.tasks[rank] > 0 for times in self.times]
            shares.plot(steps, [self.unit * times.tasks[rank] for times in self.times])
            of_rank = [times.seconds[rank] if is_measured else None for times, is_measured in zip(self.times, measured)]
            seconds.plot(steps, of_rank, label=f"rank {rank}")
        even = [_even(times) if all(times.tasks) else None for times in self.times]
        seconds.plot(steps, even, "--", color="grey", label="even shares, about")
        shares.set_ylabel("samples")
        seconds.set(ylabel="busy seconds", xlabel="measured step")
        for axes in (shares, seconds):
            axes.set_ylim(bottom=0)
        figure.legend(*seconds.get_legend_handles_labels(), loc="outside right upper")
        figure.savefig(path, dpi=150)


def _even(times: Times) -> float:
    """What a step would have taken the slowest rank with an even share."""
    even = sum(times.tasks) / len(times.tasks)
    return max(seconds / tasks for tasks, seconds in zip(times.tasks, times.seconds, strict=True)) * even
