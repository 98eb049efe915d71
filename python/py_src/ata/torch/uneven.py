"""Steps whose samples are divided among ranks of unequal speed."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sized
from itertools import islice
from typing import Any

import torch
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import Sampler

from ata.torch.agreement import Agreement
from ata.torch.batch import split
from ata.torch.clock import Clock
from ata.torch.cuda_clock import CudaClock
from ata.torch.parallel import parallel_of
from ata.torch.sampler import Plan, ShareSampler
from ata.torch.units import Buffers, check_normalisation
from ata.torch.weight import weigh_gradient


class Uneven:
    """Divides the samples of each step among ranks of unequal speed, so that all end it at the same time.

    The gradient of a step is that of the mean loss of all its samples. In a script, three lines change::

        uneven = ata.torch.Uneven(model, budget=368)
        loader = DataLoader(dataset, batch_sampler=uneven.sampler(dataset))
        for step in uneven.steps(loader):
            optimizer.zero_grad()
            for images, labels in step:
                uneven.backward(loss_function(model(images), labels))
            optimizer.step()

    The loss must be a mean over samples, or one with a `weight`. All ranks must create this object, call `sampler` and go through `steps` alike.

    Args:
        model: `DistributedDataParallel(...)`, or a module after `fully_shard`.
        budget: Samples of a step, on all ranks together.
        micro_batch: The most samples that this rank computes at once. By default, its whole share.
        weight: How much the loss of a batch counts, if it is not a mean over samples: for a mean over tokens,
            `lambda batch: (batch["labels"] != -100).sum()`; for class weights, their sum over the labels.
        unit: Samples that are computed in one forward pass, for batch normalisation. Shares are whole units, and buffers change by the
            mean over the units of a step.
        policy: What decides on the shares, as `NAME` or `NAME:key=value,...`; see `ata.policies()`.
        seed: Seed of the decisions.

    Raises:
        ValueError: If an argument is not possible.
        TypeError: If the model is not data parallel.
    """

    def __init__(
        self,
        model: nn.Module,
        budget: int,
        *,
        micro_batch: int | None = None,
        weight: Callable[[Any], torch.Tensor | float] | None = None,
        unit: int | None = None,
        policy: str = "ata-auto",
        seed: int = 0,
    ) -> None:
        if micro_batch is not None and micro_batch < 1:
            raise ValueError(f"micro_batch={micro_batch}: expected at least 1")
        if unit is not None and (unit < 1 or budget % unit or micro_batch):
            raise ValueError(f"unit={unit}: expected a divisor of the budget of {budget} samples, and no micro_batch")
        # What torch.compile makes of a model has it inside.
        model = getattr(model, "_orig_mod", model)
        if unit is not None and not isinstance(model, DistributedDataParallel):
            raise TypeError(f"unit={unit} is for DistributedDataParallel, not for {type(model).__name__}")
        device = next(model.parameters()).device
        self._clock = CudaClock() if device.type == "cuda" else Clock()
        self._parallel = parallel_of(model, self._clock)
        self._agreement = Agreement(
            self._parallel.group, self._clock, budget=budget // (unit or 1), policy=policy, seed=seed
        )
        self._model = model
        self._budget = budget
        self._weight_of = weight
        self._unit = unit
        self._buffers = Buffers(model) if isinstance(model, DistributedDataParallel) and unit else None
        self._micro_batch = micro_batch or budget
        self._smallest_micro_batch = -self._agreement.largest(-self._micro_batch)
        self._plans: deque[Plan] = deque()
        self._shares: list[int] = []
        self._weight: float | None = None

    def sampler(
        self, samples: Sized | int | Sampler[int], *, shuffle: bool = True, seed: int = 0, drop_last: bool = False
    ) -> ShareSampler:
        """The batch sampler for a data set or a number of samples. The samples of a step depend on the seed, not on the shares.

        A sampler of your own, which yields indices, decides on their order itself (that of rank 0 counts). `drop_last` leaves out a
        smaller last step.
        """
        options: dict[str, Any] = {"shuffle": shuffle, "seed": seed, "drop_last": drop_last, "unit": self._unit or 1}
        return ShareSampler(lambda: self._agreement, self._plans, samples, self._budget, **options)

    def steps(self, loader: Iterable[Any]) -> Iterator[Step]:
        """The steps of an epoch. `loader` must use a `sampler` of this object."""
        check_normalisation(self._model, self._unit)
        batches = iter(loader)
        while True:
            self._clock.load()
            try:
                batch = next(batches)
            except StopIteration:
                self._agreement.collect()
                return
            self._clock.loaded()
            if not self._plans:
                raise RuntimeError("the loader does not use uneven.sampler(...) as its batch_sampler")
            step = Step(self, self._plans.popleft(), batch)
            self._shares = step.shares
            yield step
            step.check_computed()

    def stream(self, units: Iterable[Any]) -> Iterator[Step]:
        """Steps of streams, as of an `IterableDataset`: each rank draws units from a loader of its own, with `batch_size=unit`, until one has
        too few. Ranks should get other samples."""
        if self._unit is None:
            raise ValueError(
                "a stream is divided by units: pass Uneven(unit=16), the number of samples in a batch of its loader"
            )
        check_normalisation(self._model, self._unit)
        drawn = iter(units)
        while True:
            self._clock.load()
            shares = self._agreement.next_shares()
            mine = list(islice(drawn, shares[self._agreement.rank]))
            self._clock.loaded()
            if self._agreement.largest(int(len(mine) < shares[self._agreement.rank])):
                self._agreement.collect()
                return
            plan = Plan([share * self._unit for share in shares], self._agreement.rank, lambda: None)
            step = Step(self, plan, mine, is_in_units=True)
            self._shares = step.shares
            yield step
            step.check_computed()

    def weigh(self, loss: torch.Tensor) -> torch.Tensor:
        """The loss with its weight in the step, for a backward pass of your own. Call it once for each micro-batch."""
        if self._weight is None:
            raise RuntimeError(
                "there is no micro-batch to weigh: go through the steps with `for batch in step`, and once for each micro-batch, with the "
                "sum of its losses: uneven.backward(first + second)"
            )
        # A tensor of its own, because the hook stays with it.
        weighted = loss.clone()
        weigh_gradient(weighted, self._weight, self._clock.end if self._parallel.is_timed_backward else None)
        self._weight = None
        return weighted

    def backward(self, loss: torch.Tensor) -> None:
        """Adds the gradient of a micro-batch to that of the step."""
        self.weigh(loss).backward()

    def metrics(self) -> dict[str, float]:
        """For a logger: the samples of each rank in this step and, on rank 0, the seconds that each was last busy."""
        samples = {f"uneven/samples_rank{rank}": float(share) for rank, share in enumerate(self._shares)}
        return samples | {
            f"uneven/seconds_rank{rank}": seconds for rank, seconds in sorted(self._agreement.seconds.items())
        }

    @property
    def iteration(self) -> int:
        """The step that was decided last, from 1. It is 0 on ranks other than 0."""
        return self._agreement.scheduler.iteration

    def state_dict(self) -> dict[str, str]:
        """What rank 0 has learned about the ranks' speeds. Only rank 0's is of use."""
        return self._agreement.scheduler.state_dict()

    def load_state_dict(self, state: dict[str, str]) -> None:
        """Continues from rank 0's `state_dict`. Only what rank 0 loads counts."""
        self._agreement.scheduler.load_state_dict(state)


class Step:
    """A step of a rank, which iterates over its micro-batches.

    Attributes:
        shares: The samples of each rank.
        samples: Those of this rank.
    """

    def __init__(self, uneven: Uneven, plan: Plan, batch: Any, *, is_in_units: bool = False) -> None:
        self.shares = plan.shares
        self.samples = plan.mine
        self._plan = plan
        self._batch = batch
        self._is_in_units = is_in_units
        self._uneven = uneven
        self._is_computed = False

    def __iter__(self) -> Iterator[Any]:
        uneven, parallel = self._uneven, self._uneven._parallel
        micro_batches, total = self._micro_batches()
        if uneven._buffers:
            uneven._buffers.begin()
        for number, (weight, part) in enumerate(micro_batches, 1):
            with parallel.accumulating(is_last=number == len(micro_batches)):
                # Ranks are averaged, and a rank without a share counts nothing.
                uneven._weight = weight * len(self.shares) / total
                uneven._clock.begin()
                yield part
                if uneven._weight is not None:
                    raise RuntimeError("a micro-batch was not computed: call uneven.backward(loss) for each")
            if uneven._buffers:
                uneven._buffers.computed()
        if not micro_batches:
            parallel.join_without_samples()
        unit = uneven._unit or 1
        if uneven._buffers:
            uneven._buffers.end(-(-self._plan.size // unit))
        self._is_computed = True
        self._plan.done()
        uneven._clock.synced(-(-self.samples // unit))
        uneven._agreement.report()

    def _micro_batches(self) -> tuple[list[tuple[float, Any]], float]:
        """The micro-batches of this rank, each with its weight, and the weight of the whole step."""
        uneven = self._uneven
        if uneven._unit:
            sizes = [min(uneven._unit, self.samples - first) for first in range(0, self.samples, uneven._unit)]
        else:
            most = (uneven._micro_batch, uneven._smallest_micro_batch)
            sizes = uneven._parallel.micro_batches(self.shares, self.samples, *most)
        batches = self._batch if self._is_in_units else split(self._batch, sizes)
        parts = list(zip(map(float, sizes), batches))
        if uneven._weight_of is None:
            return parts, self._plan.size
        parts = [(float(uneven._weight_of(part)) if size else 0.0, part) for size, part in parts]
        total = uneven._agreement.sum(sum(weight for weight, _ in parts))
        if isinstance(uneven._model, DistributedDataParallel):
            # A mean over nothing is not a number.
            parts = [(weight, part) for weight, part in parts if weight != 0.0]
        return parts, total or 1.0

    def check_computed(self) -> None:
        """Other ranks would wait forever for one that does not compute."""
        if not self._is_computed:
            raise RuntimeError("a step was not computed to its end: go through all of it with `for batch in step`")
