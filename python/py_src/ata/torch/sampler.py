"""Which samples a rank computes in a step."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Sized
from dataclasses import dataclass
from itertools import accumulate
from typing import TYPE_CHECKING

import torch
from torch.utils.data import Sampler

if TYPE_CHECKING:
    from ata.torch.agreement import Agreement


@dataclass(frozen=True)
class Plan:
    """The samples of each rank in a step."""

    shares: list[int]
    rank: int

    @property
    def mine(self) -> int:
        return self.shares[self.rank]

    @property
    def size(self) -> int:
        return sum(self.shares)


class ShareSampler(Sampler[list[int]]):
    """Hands out each sample once per epoch, for `DataLoader(dataset, batch_sampler=...)`.

    A step takes the next `budget` samples of an order that all ranks know; the last step of an epoch may be smaller. A rank with a
    share of 0 gets one sample, which does not count, because loaders return no empty batches.

    Shares are decided when samples are requested. A loader with W worker processes requests 2W steps ahead.

    Attributes:
        epoch: The next epoch, from 0. Set it to continue a run.
    """

    def __init__(
        self,
        agreement: Callable[[], Agreement],
        plans: deque[Plan],
        length: int,
        budget: int,
        *,
        shuffle: bool,
        seed: int,
    ) -> None:
        if length < 1:
            raise ValueError("there are no samples")
        self.epoch = 0
        self._agreement = agreement
        self._plans = plans
        self._length = length
        self._budget = budget
        self._shuffle = shuffle
        self._seed = seed

    def __len__(self) -> int:
        """Steps per epoch."""
        return -(-self._length // self._budget)

    def __iter__(self) -> Iterator[list[int]]:
        order = self._order(self.epoch)
        self.epoch += 1
        # Those of an epoch that was left before its end.
        self._plans.clear()
        for first in range(0, self._length, self._budget):
            size = min(self._budget, self._length - first)
            plan, begin = self._plan(size)
            self._plans.append(plan)
            yield order[first + begin : first + begin + max(plan.mine, 1)].tolist()

    def _plan(self, size: int) -> tuple[Plan, int]:
        """The shares of a step of this size, and where that of this rank begins."""
        agreement = self._agreement()
        rank, ends = agreement.rank, [end * size // self._budget for end in accumulate(agreement.next_shares())]
        begins = [0, *ends[:-1]]
        plan = Plan([end - begin for begin, end in zip(begins, ends)], rank)
        return plan, min(begins[rank], size - 1)

    def _order(self, epoch: int) -> torch.Tensor:
        if not self._shuffle:
            return torch.arange(self._length)
        generator = torch.Generator().manual_seed(self._seed + epoch)
        return torch.randperm(self._length, generator=generator)


def length_of(samples: Sized | int) -> int:
    """The number of samples of a data set, or that number itself."""
    return samples if isinstance(samples, int) else len(samples)
