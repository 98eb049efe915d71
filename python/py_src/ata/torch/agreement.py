"""How all ranks come to know the shares of a step: rank 0 decides, from times that all measure."""

from __future__ import annotations

import logging
import statistics
from collections import deque
from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch
import torch.distributed as dist

from ata import Scheduler

if TYPE_CHECKING:
    from ata.torch.clock import Clock

log = logging.getLogger(__name__)

# Steps whose times are kept for a report.
MOST_KEPT = 10_000

# An exchange costs about a millisecond. Steps that are short share a decision, so that it is one part in twenty of their time.
SECONDS_OF_A_DECISION = 0.02
MOST_STEPS = 16

# A decision that changes nothing holds for twice as many steps as the one before, but so few that a change is soon noticed.
SECONDS_UNCHANGED = 0.4
MOST_UNCHANGED = 4

# In steps as long as this, ranks wait for a decision that knows the last one's times. Waiting for each other costs a few milliseconds.
SECONDS_WORTH_WAITING = 0.05


@dataclass(frozen=True)
class Decision:
    """What all ranks know of the next steps."""

    shares: list[int]
    # The most backward passes of a micro-batch in any step so far; 0 if none has ended.
    passes: int = 0


@dataclass(frozen=True)
class Times:
    """What a step took each rank: its tasks, and the seconds in which it was busy. Both are 0 where nothing was measured."""

    tasks: list[int]
    seconds: list[float]


class Agreement:
    """One small collective per decision, between processors and not devices: it brings each rank's last time, and what rank 0 has decided
    from those before. Ranks go on meanwhile, and look at it when they load the samples of the next step. After a long step, a second one
    brings what rank 0 decides from the last time."""

    def __init__(
        self,
        group: dist.ProcessGroup | None,
        clock: Clock,
        *,
        budget: int,
        policy: str,
        seed: int,
        most: int | None = None,
    ) -> None:
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
        self.times: deque[Times] = deque(maxlen=MOST_KEPT)
        # The most backward passes of a micro-batch on this rank.
        self.passes = 0
        self._clock = clock
        self._decision = Decision([])
        # Steps for which the decision has not been used yet.
        self._left = 0
        self._sent: tuple[dist.Work, torch.Tensor] | None = None
        # Whether the last step was so long that its time is waited for. All ranks know the same.
        self._waits = False
        # For how many steps rank 0's last decision holds.
        self._held = 1
        # Of its own, so that it orders with nobody's collectives; gloo, because numbers on a device would have to be waited for.
        own = dist.new_group(ranks, backend="gloo", use_local_synchronization=True)
        assert isinstance(own, dist.ProcessGroup), "this rank is in the group"
        self._group = own
        self._most = self._of_each(budget if most is None else most)
        if sum(self._most) < budget:
            raise ValueError(
                f"ranks can compute {self._most} samples at most, but a step has {budget}: raise micro_batch or accumulate_grad_batches"
            )

    def report(self) -> None:
        """A step is done: if the next one needs a decision, what was measured is sent. All ranks have to call it."""
        # Unless it is waited for, a decision arrives during another step, so that no rank waits for the others between two steps.
        if self._left <= (0 if self._waits else 1) and self._sent is None:
            self._send()

    def collect(self) -> None:
        """Waits until what was sent has arrived everywhere."""
        if self._sent is not None:
            self._sent[0].wait()

    def next(self) -> Decision:
        """The decision for the next step, whose shares add up to the budget. All ranks have to call it."""
        if self._left == 0:
            with self._clock.exchanging():
                self.report()
                self._receive()
        self._left -= 1
        return self._decision

    def _send(self) -> None:
        measured = list(iter(self._clock.take, (0, 0.0)))
        tasks = measured[-1][0] if measured else 0
        seconds = [each for of_step, each in measured if of_step == tasks]
        numbers = torch.zeros(self.world, 5, dtype=torch.float64)
        mine = [tasks, statistics.mean(seconds) if seconds else 0.0, self.passes]
        numbers[self.rank, :3] = torch.tensor(mine, dtype=torch.float64)
        if self.rank == 0 and not self._waits:
            shares, numbers[0, 4] = self._decided()
            numbers[:, 3] = torch.tensor(shares)
        work = dist.all_reduce(numbers, group=self._group, async_op=True)
        assert work is not None
        self._sent = work, numbers

    def _decided(self) -> tuple[list[int], int]:
        """What rank 0 decides from the times so far: shares, and for how many steps they hold."""
        shares = limited(self.scheduler.next(), self._most)
        longest_s = max(self.times[-1].seconds) if self.times else 0.0
        self._held = self._steps(longest_s, is_unchanged=shares == self._decision.shares) if longest_s else 1
        log.debug("step %d: shares %s", self.scheduler.iteration, shares)
        return shares, self._held

    def _steps(self, longest_s: float, *, is_unchanged: bool) -> int:
        """For how many steps a decision holds, if the last one took so many seconds."""
        least = 1 if self._waits else max(2, round(SECONDS_OF_A_DECISION / longest_s))
        most = max(MOST_UNCHANGED, round(SECONDS_UNCHANGED / longest_s))
        return min(MOST_STEPS, max(least, min(2 * self._held, most) if is_unchanged else 1))

    def _receive(self) -> None:
        assert self._sent is not None
        work, numbers = self._sent
        work.wait()
        self._sent = None
        tasks, seconds, passes, shares, steps = numbers.T.tolist()
        times = Times([int(each) for each in tasks], seconds)
        if any(times.tasks):
            self.times.append(times)
        if self.rank == 0:
            for rank, each in enumerate(times.tasks):
                if each > 0:
                    self.scheduler.observe(rank, each, seconds[rank])
        if self._waits:
            decided, held = self._decided() if self.rank == 0 else ([0] * self.world, 0)
            *shares, steps[0] = self.of_first([*decided, held])
        self._waits = any(times.tasks) and max(times.seconds) >= SECONDS_WORTH_WAITING
        self._left = int(steps[0])
        passes_of_all = max(self._decision.passes, int(max(passes)))
        self._decision = Decision([int(share) for share in shares], passes_of_all)

    def sum(self, number: float) -> float:
        """The sum of the ranks' numbers."""
        sum_of_all = torch.tensor(number, dtype=torch.float64)
        with self._clock.exchanging():
            dist.all_reduce(sum_of_all, group=self._group)
        return float(sum_of_all)

    def of_first(self, numbers: list[int]) -> list[int]:
        """Rank 0's numbers, of which all ranks have equally many."""
        found = torch.tensor(numbers)
        dist.broadcast(found, dist.get_process_group_ranks(self._group)[0], group=self._group)
        return [int(number) for number in found]

    def largest(self, number: int) -> int:
        """The largest of the ranks' numbers."""
        return max(self._of_each(number))

    def _of_each(self, number: int) -> list[int]:
        numbers = torch.zeros(self.world, dtype=torch.long)
        numbers[self.rank] = number
        dist.all_reduce(numbers, group=self._group)
        return [int(number) for number in numbers]


def limited(shares: list[int], most: list[int]) -> list[int]:
    """Shares of which none is larger than its rank can compute; what is left over goes to those that have most room."""
    found = [min(share, limit) for share, limit in zip(shares, most, strict=True)]
    for _ in range(sum(shares) - sum(found)):
        rank = max(range(len(found)), key=lambda rank: most[rank] - found[rank])
        found[rank] += 1
    return found
