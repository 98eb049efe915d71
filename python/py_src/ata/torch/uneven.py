"""Steps whose samples are divided among ranks of unequal speed."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence, Sized
from typing import Any, TypeVar

import torch
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import Sampler

from ata.torch.agreement import Agreement
from ata.torch.batch import Drawn, split
from ata.torch.clock import Clock
from ata.torch.cuda_clock import CudaClock
from ata.torch.parallel import parallel_of
from ata.torch.report import Report
from ata.torch.sampler import Plan, ShareSampler
from ata.torch.step import Step
from ata.torch.units import Buffers, check_normalisation
from ata.torch.weight import Weight, weigh_gradient

Item = TypeVar("Item")


class Epoch(Iterator[Item]):
    """The batches or the steps of an epoch. It has a length, for progress bars."""

    def __init__(self, items: Iterator[Item], loader: Iterable[Any]) -> None:
        self._items = items
        self._loader: Any = loader

    def __next__(self) -> Item:
        return next(self._items)

    def __len__(self) -> int:
        return len(self._loader)


class Uneven:
    """Divides the samples of each step among ranks of unequal speed, so that all end it at the same time.

    The gradient of a step is that of the mean loss of all its samples. In a script, four lines change::

        uneven = ata.torch.Uneven(model, budget=368)
        loader = DataLoader(dataset, batch_sampler=uneven.sampler(dataset))
        for images, labels in uneven.batches(loader):
            optimizer.zero_grad()
            uneven.backward(loss_function(model(images), labels))
            optimizer.step()

    The loss must be a mean over samples, or one with a `weight`. All ranks must create this object, call `sampler` and go through the
    batches or steps alike.

    Args:
        model: `DistributedDataParallel(...)`, or a module after `fully_shard`.
        budget: Samples of a step, on all ranks together.
        models: In place of `model`, several that are `DistributedDataParallel`, such as a generator and a discriminator.
        micro_batch: The most samples that this rank computes at once, for `steps`. By default, its whole share.
        weight: How much the loss of a batch counts, if it is not a mean over samples: for a mean over tokens,
            `lambda batch: (batch["labels"] != -100).sum()`, of `batch["labels"][:, 1:]` where the model shifts them; for class weights, their sum over the labels.
        unit: Samples that are computed in one forward pass, for batch normalisation. Shares are whole units, and buffers change by the
            mean over the units of a step.
        split: Makes micro-batches of a batch that is not one of tensors or lists with one element per sample. It gets the batch and the
            number of samples of each micro-batch, and returns a list of these. If a number is 0, what it returns there does not count.
        policy: What decides on the shares, as `NAME` or `NAME:key=value,...`; see `ata.policies()`.
        seed: Seed of the decisions.

    Raises:
        ValueError: If an argument is not possible.
        TypeError: If the model is not data parallel.
    """

    def __init__(
        self,
        model: nn.Module | None = None,
        budget: int = 0,
        *,
        models: Sequence[nn.Module] = (),
        micro_batch: int | None = None,
        weight: Callable[[Any], torch.Tensor | float] | None = None,
        unit: int | None = None,
        split: Callable[[Any, list[int]], Iterable[Any]] = split,
        policy: str = "ata-auto",
        seed: int = 0,
    ) -> None:
        if micro_batch is not None and micro_batch < 1:
            raise ValueError(f"micro_batch={micro_batch}: expected at least 1")
        if unit is not None and (unit < 1 or budget % unit or micro_batch):
            raise ValueError(f"unit={unit}: expected a divisor of the budget of {budget} samples, and no micro_batch")
        self._models = data_parallel(model, models, unit)
        device = next(self._models[0].parameters()).device
        self._clock = CudaClock() if device.type == "cuda" else Clock()
        self._parallel = [parallel_of(each, self._clock) for each in self._models]
        self._agreement = Agreement(
            self._parallel[0].group, self._clock, budget=budget // (unit or 1), policy=policy, seed=seed
        )
        self._weights = Weight(self._models)
        self._budget = budget
        self._weight_of = weight
        self._split = split
        self._unit = unit
        self._buffers = Buffers(self._models) if unit else None
        self._is_in_micro_batches = micro_batch is not None
        self._micro_batch = micro_batch or budget
        self._smallest_micro_batch = -self._agreement.largest(-self._micro_batch)
        self._plans: deque[Plan] = deque()
        self._shares: list[int] = []

    def sampler(
        self, samples: Sized | int | Sampler[int], *, shuffle: bool = True, seed: int = 0, drop_last: bool = False
    ) -> ShareSampler:
        """The batch sampler for a data set or a number of samples. The samples of a step depend on the seed, not on the shares.

        A sampler of your own, which yields indices, decides on their order itself (that of rank 0 counts). `drop_last` leaves out a
        smaller last step.
        """
        options: dict[str, Any] = {"shuffle": shuffle, "seed": seed, "drop_last": drop_last, "unit": self._unit or 1}
        return ShareSampler(lambda: self._agreement, self._plans, samples, self._budget, **options)

    def batches(self, loader: Iterable[Any]) -> Epoch[Any]:
        """The batches of an epoch, one per step: the whole share of this rank. `loader` must use a `sampler` of this object.

        The body of the loop runs once per step on all ranks, with as many backward passes and optimizers as it wants. A rank whose share is 0
        gets a batch of one sample, which does not count.
        """
        if self._unit is not None or self._is_in_micro_batches:
            raise ValueError(
                "a step has several batches with unit or micro_batch: use `for step in uneven.steps(loader)`"
            )
        steps = self._steps(loader, is_body=True)
        return Epoch((batch for step in steps for batch in step), loader)

    def steps(self, loader: Iterable[Any]) -> Epoch[Step]:
        """The steps of an epoch, each with its micro-batches. `loader` must use a `sampler` of this object::

            for step in uneven.steps(loader):
                optimizer.zero_grad()
                for batch in step:
                    uneven.backward(loss_function(model, batch))
                optimizer.step()
        """
        return Epoch(self._steps(loader, is_body=False), loader)

    def _steps(self, loader: Iterable[Any], *, is_body: bool) -> Iterator[Step]:
        check_normalisation(self._models, self._unit)
        batches = iter(loader)
        while True:
            self._clock.load()
            try:
                batch = next(batches)
            except StopIteration:
                self._agreement.collect()
                if self._plans:
                    raise RuntimeError(
                        f"{len(self._plans)} batches of this epoch did not arrive: loaders of uneven.sampler(...) must not be prepared by Accelerate, "
                        "nor zipped with each other"
                    ) from None
                return
            self._clock.loaded()
            if not self._plans:
                raise RuntimeError("the loader does not use uneven.sampler(...) as its batch_sampler")
            yield from self._step(Step(self, self._plans.popleft(), batch, is_body=is_body))

    def stream(self, units: Iterable[Any]) -> Iterator[Step]:
        """Steps of streams, as of an `IterableDataset`: each rank draws units from a loader of its own, with `batch_size=unit`, until one has
        too few. Ranks should get other samples."""
        if self._unit is None:
            raise ValueError(
                "a stream is divided by units: pass Uneven(unit=16), the number of samples in a batch of its loader"
            )
        check_normalisation(self._models, self._unit)
        drawn = Drawn(units)
        while True:
            self._clock.load()
            decision = self._agreement.next()
            share = decision.shares[self._agreement.rank]
            mine = drawn.next(share)
            self._clock.loaded()
            if self._agreement.largest(int(len(mine) < max(share, 1))):
                self._agreement.collect()
                return
            shares = [each * self._unit for each in decision.shares]
            plan = Plan(shares, self._agreement.rank, decision.passes, lambda: None)
            yield from self._step(Step(self, plan, mine, is_in_units=True))

    def _step(self, step: Step) -> Iterator[Step]:
        self._shares = step.shares
        yield step
        step._end()

    def weigh(self, loss: torch.Tensor) -> torch.Tensor:
        """The loss with its weight in the step, for a backward pass of your own."""
        weight, parallel = self._weights.of_pass(), self._parallel[0]
        # A tensor of its own, because the hook stays with it.
        weighted = loss.clone()
        computed = self._clock.end if parallel.is_timed_backward else lambda: None
        weigh_gradient(weighted, weight, computed, self._clock.synced)
        return weighted

    def backward(self, loss: torch.Tensor, **options: Any) -> None:
        """Adds the gradient of a micro-batch to that of the step. Options are those of `torch.Tensor.backward`."""
        self.weigh(loss).backward(**options)

    def metrics(self) -> dict[str, float]:
        """For a logger: the samples of each rank in this step, and the seconds that each was last busy."""
        metrics = {f"uneven/samples_rank{rank}": float(share) for rank, share in enumerate(self._shares)}
        last = next((times for times in reversed(self._agreement.times) if all(times.tasks)), None)
        for rank, seconds in enumerate(last.seconds if last else []):
            metrics[f"uneven/seconds_rank{rank}"] = seconds
        return metrics

    def report(self) -> Report:
        """What the ranks did in the last 10,000 steps, and what even shares would have cost: `print(uneven.report())`."""
        return Report(list(self._agreement.times), self._unit or 1)

    @property
    def iteration(self) -> int:
        """The number of the last decision, from 1, which holds for one step or several. It is 0 on ranks other than 0."""
        return self._agreement.scheduler.iteration

    def state_dict(self) -> dict[str, str]:
        """What rank 0 has learned about the ranks' speeds. Only rank 0's is of use."""
        return self._agreement.scheduler.state_dict()

    def load_state_dict(self, state: dict[str, str]) -> None:
        """Continues from rank 0's `state_dict`. Only what rank 0 loads counts."""
        self._agreement.scheduler.load_state_dict(state)


def data_parallel(model: nn.Module | None, models: Sequence[nn.Module], unit: int | None) -> list[nn.Module]:
    """The models that ranks average, without what torch.compile wraps around them.

    Raises:
        TypeError: If `model` and `models` are not one or the other, or these arguments do not go together.
    """
    if (model is None) == (not models):
        raise TypeError("expected Uneven(model, budget) or Uneven(models=[generator, discriminator], budget=budget)")
    given = list(models) if model is None else [model]
    found: list[nn.Module] = [getattr(each, "_orig_mod", each) for each in given]
    others = [each for each in found if not isinstance(each, DistributedDataParallel)]
    if others and (unit is not None or models):
        name = "models" if models else f"unit={unit}"
        raise TypeError(f"{name} is for DistributedDataParallel, not for {type(others[0]).__name__}")
    return found
