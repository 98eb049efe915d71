"""Which samples a rank computes in a step."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Sequence, Sized
from dataclasses import dataclass
from functools import partial
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
    # The most backward passes of a micro-batch in any step so far; 0 if that is not known.
    passes: int
    # What its step calls at its end.
    done: Callable[[], None]

    @property
    def mine(self) -> int:
        return self.shares[self.rank]

    @property
    def size(self) -> int:
        return sum(self.shares)


def divided(samples: int, parts: int) -> list[int]:
    """So many samples in parts of nearly the same size."""
    return [samples // parts + (part < samples % parts) for part in range(parts)]


class ShareSampler(Sampler[list[int]]):
    """Hands out each sample once per epoch, for `DataLoader(dataset, batch_sampler=...)`.

    A step takes the next `budget` samples of an order that all ranks know; the last step of an epoch may be smaller. A rank with a
    share of 0 gets one sample or unit, which does not count, because loaders return no empty batches.

    Shares are decided when samples are requested. A loader with W worker processes requests 2W steps ahead.

    Attributes:
        epoch: The next epoch, from 0.
    """

    def __init__(
        self,
        agreement: Callable[[], Agreement],
        plans: deque[Plan],
        samples: Sized | int | Sampler[int],
        budget: int,
        *,
        unit: int = 1,
        shuffle: bool,
        seed: int,
        drop_last: bool = False,
        parts: Callable[[], int] = lambda: 1,
    ) -> None:
        self.epoch = 0
        self._begun_at = self._done = (0, 0)
        self._agreement = agreement
        self._plans = plans
        self._own = samples if isinstance(samples, Sampler) else None
        length = samples if isinstance(samples, int) else len(samples)  # type: ignore[arg-type]
        self._available = length
        self._length = length - length % budget if drop_last else length
        if self._length < 1:
            raise ValueError(f"there are no samples for a step: {length}" if length else "there are no samples")
        self._budget = budget
        self._unit = unit
        self._shuffle = shuffle
        self._seed = seed
        self._parts = parts

    def state_dict(self) -> dict[str, int]:
        """The epoch, and how many of its steps are done."""
        epoch, step = self._done
        return {"epoch": epoch, "step": step}

    def load_state_dict(self, state: dict[str, int]) -> None:
        """Continues after the last step that was done. All ranks have to load the same."""
        self.epoch = state["epoch"]
        self._begun_at = self._done = (state["epoch"], state["step"])

    def set_epoch(self, epoch: int) -> None:
        """Begins with this epoch next, as `DistributedSampler.set_epoch`."""
        self.epoch = epoch

    def __len__(self) -> int:
        """Batches per epoch: one for each step, unless Lightning accumulates several."""
        return self._steps * self._parts()

    @property
    def _steps(self) -> int:
        return -(-self._length // self._budget)

    def __iter__(self) -> Iterator[list[int]]:
        epoch = self.epoch
        order = self._order(epoch)
        self.epoch += 1
        # Those of an epoch that was left before its end.
        self._plans.clear()
        begun = self._begun_at[1] if self._begun_at[0] == epoch else 0
        for step in range(begun, self._steps):
            first = step * self._budget
            size = min(self._budget, self._length - first)
            plan, begin = self._plan(size, partial(self._end, epoch, step))
            self._plans.append(plan)
            begin += first
            for part in divided(plan.mine, self._parts()):
                at = begin if part else max(0, min(begin, self._length - self._unit))
                yield list(order[at : at + (part or self._unit)])
                begin += part

    def _end(self, epoch: int, step: int) -> None:
        self._done = (epoch, step + 1) if step + 1 < self._steps else (epoch + 1, 0)

    def _plan(self, size: int, done: Callable[[], None]) -> tuple[Plan, int]:
        """The shares of a step of this size, and where that of this rank begins."""
        agreement = self._agreement()
        units, most = -(-size // self._unit), self._budget // self._unit
        decision = agreement.next()
        ends = [min(end * units // most * self._unit, size) for end in accumulate(decision.shares)]
        begins = [0, *ends[:-1]]
        plan = Plan([end - begin for begin, end in zip(begins, ends)], agreement.rank, decision.passes, done)
        return plan, begins[agreement.rank]

    def _order(self, epoch: int) -> Sequence[int]:
        if self._own is not None:
            if hasattr(self._own, "set_epoch"):
                self._own.set_epoch(epoch)
            # Samplers are often random, and not alike on all ranks.
            return self._agreement().of_first(list(self._own)[: self._length])
        if not self._shuffle:
            return range(self._length)
        # With drop_last, other samples are left out in each epoch.
        generator = torch.Generator().manual_seed(self._seed + epoch)
        order: list[int] = torch.randperm(self._available, generator=generator).tolist()
        return order[: self._length]
