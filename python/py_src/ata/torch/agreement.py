"""How all ranks come to know the shares of a step: rank 0 decides, from times that all measure."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

import torch
import torch.distributed as dist

from ata import Scheduler

if TYPE_CHECKING:
    from ata.torch.clock import Clock

log = logging.getLogger(__name__)


class Agreement:
    """Two small collectives per step, between processors and not devices: times to rank 0, shares from it."""

    def __init__(self, group: dist.ProcessGroup | None, clock: Clock, *, budget: int, policy: str, seed: int) -> None:
        ranks = dist.get_process_group_ranks(group)
        self.world = len(ranks)
        self.rank = dist.get_rank(group)
        self.budget = budget
        # A rank that only looks fast would hold up all others.
        self.scheduler = Scheduler(self.world, budget, policy, seed=seed, limit_growth=True)
        # Every rank refuses what rank 0 could not carry out.
        first = Scheduler(self.world, budget, policy, seed=seed).next()
        if sum(first) != budget:
            raise ValueError(f"policy '{policy}' chooses its own number of tasks, but a step has {budget} samples")
        # What each rank's last step that was measured took it, on rank 0.
        self.seconds: dict[int, float] = {}
        self._clock = clock
        self._root = ranks[0]
        self._sent: tuple[dist.Work, torch.Tensor, list[torch.Tensor] | None] | None = None
        # Of its own, so that it orders with nobody's collectives; gloo, because numbers on a device would have to be waited for.
        self._group = dist.new_group(ranks, backend="gloo", use_local_synchronization=True)

    def report(self) -> None:
        """A step is done: what was measured is sent to rank 0, while the optimizer steps. All ranks have to call it."""
        self.collect()
        time = torch.tensor(self._clock.take(), dtype=torch.float64)
        times = [torch.empty_like(time) for _ in range(self.world)] if self.rank == 0 else None
        work = dist.gather(time, times, self._root, group=self._group, async_op=True)
        self._sent = (work, time, times)

    def collect(self) -> None:
        """Waits until the last report has been sent; on rank 0, until all are there."""
        if self._sent is not None:
            work, _, times = self._sent
            work.wait()
            self._sent = None
            for rank, (tasks, seconds) in enumerate(each.tolist() for each in times or []):
                if tasks > 0:
                    self.scheduler.observe(rank, int(tasks), seconds)
                    self.seconds[rank] = seconds

    def next_shares(self) -> list[int]:
        """The samples of each rank in the next step; they add up to the budget. All ranks have to call it."""
        with self._clock.exchanging():
            self.collect()
            shares = torch.tensor(self.scheduler.next() if self.rank == 0 else [0] * self.world)
            if self.rank == 0:
                log.debug("step %d: shares %s", self.scheduler.iteration, shares.tolist())
            dist.broadcast(shares, self._root, group=self._group)
        return shares.tolist()

    def sum(self, number: float) -> float:
        """The sum of the ranks' numbers."""
        sum_of_all = torch.tensor(number, dtype=torch.float64)
        with self._clock.exchanging():
            dist.all_reduce(sum_of_all, group=self._group)
        return float(sum_of_all)

    def of_first(self, numbers: list[int]) -> list[int]:
        """Rank 0's numbers, of which all ranks have equally many."""
        found = torch.tensor(numbers)
        dist.broadcast(found, self._root, group=self._group)
        return found.tolist()

    def largest(self, number: int) -> int:
        """The largest of the ranks' numbers."""
        largest = torch.tensor(number)
        dist.all_reduce(largest, dist.ReduceOp.MAX, group=self._group)
        return int(largest)
