"""A step of a rank, whose micro-batches a loop computes."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from ata.torch.weight import not_counting

if TYPE_CHECKING:
    from ata.torch.sampler import Plan
    from ata.torch.uneven import Uneven


@dataclass(frozen=True)
class Part:
    """A micro-batch, and what the mean of its losses counts in the step."""

    weight: float
    batch: Any


class Step:
    """A step of a rank, which iterates over its micro-batches; once more for each further loss that is stepped on its own.

    Attributes:
        shares: The samples of each rank.
        samples: Those of this rank.
    """

    def __init__(
        self, uneven: Uneven, plan: Plan, batch: Any, *, is_body: bool = False, is_in_units: bool = False
    ) -> None:
        self.shares = plan.shares
        self.samples = plan.mine
        self._plan = plan
        self._batch = batch
        self._is_in_units = is_in_units
        self._uneven = uneven
        self._parts: list[Part] | None = None
        self._total = 1.0
        self._is_computed = False
        # A rank without samples can join in an average of gradients, if it knows that there is one. If there may be more, it computes a
        # sample that does not count.
        self._is_joined = plan.passes == 1 and not is_body and len(uneven._models) == 1

    def __iter__(self) -> Iterator[Any]:
        uneven = self._uneven
        if self._parts is None:
            self._parts, self._total = self._divided()
            uneven._clock.begin()
        if uneven._buffers:
            uneven._buffers.begin()
        for number, part in enumerate(self._parts, 1):
            is_last = number == len(self._parts)
            with ExitStack() as contexts:
                for parallel in uneven._parallel:
                    contexts.enter_context(parallel.accumulating(is_last=is_last))
                if part.weight == 0.0:
                    contexts.enter_context(not_counting(uneven._models))
                # Ranks are averaged, and a rank without a share counts nothing.
                uneven._weights.begin(part.weight * len(self.shares) / self._total, self._most_passes())
                yield part.batch
                uneven._agreement.passes = max(uneven._agreement.passes, uneven._weights.end())
            if uneven._buffers:
                uneven._buffers.computed(counts=part.weight > 0.0)
        if not self._parts:
            uneven._parallel[0].join_without_samples()
            uneven._clock.synced()
        if uneven._buffers:
            uneven._buffers.end(self._units(self._plan.size))
        if not self._is_computed:
            self._is_computed = True
            self._plan.done()

    def _most_passes(self) -> int | None:
        """How often a micro-batch may be computed, if ranks without samples expect so many averages of gradients."""
        return 1 if self._is_joined and 0 in self.shares else None

    def _units(self, samples: int) -> int:
        return -(-samples // (self._uneven._unit or 1))

    def _divided(self) -> tuple[list[Part], float]:
        """The micro-batches of this rank, and the weight of the whole step."""
        uneven, mine = self._uneven, self.samples
        if uneven._unit:
            sizes = [min(uneven._unit, mine - first) for first in range(0, mine, uneven._unit)]
        else:
            sizes = uneven._parallel[0].micro_batches(
                self.shares, mine, uneven._micro_batch, uneven._smallest_micro_batch
            )
        sizes = sizes or [0]
        parts = [Part(float(size), batch) for size, batch in zip(sizes, self._batches(sizes))]
        total = float(self._plan.size)
        if uneven._weight_of is not None:
            parts = [Part(float(uneven._weight_of(part.batch)) if part.weight else 0.0, part.batch) for part in parts]
            total = uneven._agreement.sum(sum(part.weight for part in parts)) or 1.0
        if uneven._parallel[0].computes_equally_many:
            return parts, total
        # A mean over nothing is not a number.
        counting = [part for part in parts if part.weight != 0.0]
        counting = counting if counting or self._is_joined else parts[:1]
        if len(uneven._models) > 1 and len(counting) == 1 and max(self.shares) > self._smallest():
            # A model whose forward pass has had no backward pass, as of a generator whose output was detached, averages in its next one,
            # although it is not the last micro-batch. So if any rank may have another one, all must.
            counting.append(Part(0.0, parts[0].batch))
        return counting, total

    def _smallest(self) -> int:
        """The smallest size of any rank's micro-batches."""
        return self._uneven._unit or self._uneven._smallest_micro_batch

    def _batches(self, sizes: list[int]) -> Iterator[Any]:
        return iter(self._batch) if self._is_in_units else iter(self._uneven._split(self._batch, sizes))

    def _end(self) -> None:
        """The loop goes on to the next step. Other ranks would wait forever for one that does not compute."""
        if not self._is_computed:
            raise RuntimeError("a step was not computed to its end: go through all of it with `for batch in step`")
        self._uneven._clock.ended(self._units(self.samples))
        self._uneven._agreement.report()
