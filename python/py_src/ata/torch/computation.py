"""Computes gradients and losses of a PyTorch model, as ata's cluster asks for them."""

from __future__ import annotations

import copy
import math
import warnings
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from ata.problem import Integers, Key, Measurement, Split, size
from ata.torch.batch import split
from ata.torch.batches import Source, seed
from ata.torch.buffers import BatchNorm, normalises_batches, synchronised
from ata.torch.loaders import Loaders, Request
from ata.torch.sums import Sums
from ata.torch.tallies import Tallies
from ata.torch.vectors import Vectors

if TYPE_CHECKING:
    from ata.torch.problem import Problem

FEW_SAMPLES = 8
"""With fewer samples in a task, batch normalisation is warned about."""


class Computation:
    """A model whose parameters, gradients and buffers are parts of vectors."""

    def __init__(self, problem: Problem, split: Split) -> None:
        self.problem, self.source = problem, Source(problem.data[split], problem.collate)
        # An evaluation announces nothing.
        self.ahead = problem.loaders if split == "train" else 0
        self.loaders = Loaders(self.source, self.ahead) if self.ahead > 0 else None
        self.model = copy.deepcopy(problem.model).to(problem.device)
        for module in synchronised(self.model):
            module.__class__ = BatchNorm  # type: ignore[assignment]
        tensors = problem.tensors()
        vectors = Vectors(self.model, tensors, problem.device)
        self.trained, self.views, self.buffers, self.changes = vectors.trained, vectors.views, vectors.buffers, vectors.changes
        self.values, self.gradients = values, gradients = vectors.values, vectors.gradients
        self.micro_batch = problem.micro_batch
        self.tallies = Tallies(self.trained, vectors.of_trained, vectors.weight, vectors.uses, problem.weight)
        self.warns_below = FEW_SAMPLES if normalises_batches(self.model) else 0
        is_on_cpu = problem.device.type == "cpu"
        host = [vector if is_on_cpu else torch.zeros(len(vector), pin_memory=vector.is_cuda) for vector in (values, gradients)]
        self.host_values, self.host_gradients = host
        self.parameters, self.gradient = (vector.numpy() for vector in host)
        self.sums = None if is_on_cpu else Sums(gradients, [size([tensor]) for tensor in tensors])

    def load(self) -> None:
        """As `ata.problem.Computation`."""
        if self.host_values is not self.values:
            self.values.copy_(self.host_values, non_blocking=True)
        if self.loaders is not None:
            self.loaders.forget()

    def announce(self, batches: Sequence[tuple[Integers, Key]]) -> None:
        """As `ata.problem.Computation`."""
        if self.loaders is not None:
            self.loaders.announce([Request(samples, key) for samples, key in batches])

    def compute(self, samples: Integers, key: Key) -> float:
        """As `ata.problem.Computation`."""
        loss = self._compute(samples, key)
        if self.host_gradients is not self.gradients:
            self.host_gradients.copy_(self.gradients)
        return loss

    def add(self, samples: Integers, key: Key, tasks: int, limit: float) -> float | None:
        """As `ata.problem.SummingComputation`."""
        loss = self._compute(samples, key)
        assert self.sums is not None, "a device that sums"
        return loss if math.isfinite(loss) and self.sums.add(limit, tasks) else None

    def _compute(self, samples: Integers, key: Key) -> float:
        """Leaves the gradient of samples on the device. Returns their loss."""
        batch = self.loaders.take(Request(samples, key)) if self.loaders is not None else None
        if batch is None:
            batch = self.source.batch_of_task(samples, key)
        if len(samples) < self.warns_below:
            self.warns_below = 0
            warnings.warn(f"batch normalisation over the {len(samples)} samples of a task is noisy: --task-batch 8 or more", stacklevel=1)
        while True:
            try:
                loss = self._gradient(batch, parts(len(samples), self.micro_batch), key)
                break
            except torch.OutOfMemoryError:
                if self.micro_batch == 1 or len(samples) == 1:
                    raise
            self._halve(len(samples))
        for (name, parameter), view in zip(self.trained, self.views, strict=True):
            if parameter.grad is not view:
                raise RuntimeError(f"the gradient of {name} was replaced: forward and loss must not call zero_grad")
        return loss

    def _gradient(self, batch: Any, sizes: list[int], key: Key) -> float:
        """Leaves the gradient of a task, computed in parts of these sizes. Returns its loss, which is 0 if its weight is."""
        seed(key, "compute")
        self.gradients.zero_()
        self.buffers.begin()
        self.tallies.begin()
        batches = list(split(batch, sizes))
        weights = [self.tallies.weight_of(part) for part in batches]
        known = [weight for weight in weights if weight is not None]
        shares = known or [float(size) for size in sizes]
        mean = 0.0
        for part, share in zip(batches, shares, strict=True):
            _, _, loss = self._forward(part)
            if share > 0:
                if len(sizes) > 1:
                    loss = loss * (share / sum(shares))
                loss.backward()
                mean += loss.item()
            else:
                # The mean of nothing may be NaN, but its gradient tells which parameters are used.
                before = self.gradients.clone()
                loss.backward()
                self.gradients.copy_(before)
        self.buffers.end()
        if len(sizes) > 1 and (normalises_batches(self.model) or self.changes.count_nonzero() > 0):
            raise RuntimeError(
                "a task changes buffers, as batch normalisation does, so all of its samples have to be computed at once, without micro_batch: "
                "if they do not fit into memory, use a smaller --task-batch"
            )
        self.tallies.end(sum(known) if known else None)
        return mean

    def _halve(self, samples: int) -> None:
        """Computes fewer samples at once, after too many have not fitted into memory."""
        self.micro_batch = (min(samples, self.micro_batch or samples) + 1) // 2
        if self.problem.device.type == "cuda":
            torch.cuda.empty_cache()
        warnings.warn(
            f"the samples of a task do not fit into the memory of {self.problem.device}: now {self.micro_batch} of them are computed at once",
            stacklevel=1,
        )

    @torch.no_grad()
    def measure(self, samples: Integers) -> Measurement:
        """As `ata.problem.Computation`."""
        modes = [(module, module.training) for module in self.model.modules()]
        self.model.eval()
        self.buffers.begin()
        outputs, targets, loss = self._forward(self.source.batch(samples))
        for module, training in modes:
            module.training = training
        metrics = {name: float(function(outputs, targets)) for name, function in self.problem.metrics.items()}
        if not self.problem.classes:
            return Measurement(loss.item(), metrics=metrics)
        return Measurement(loss.item(), targets.tolist(), outputs.argmax(-1).tolist(), metrics)

    def _forward(self, batch: Any) -> tuple[Any, Any, Tensor]:
        problem = self.problem
        batch = moved(batch, problem.device)
        with torch.autocast(problem.device.type, problem.autocast, enabled=problem.autocast is not None):
            outputs, targets = problem.forward(self.model, batch)
            return outputs, targets, problem.loss(outputs, targets)


def parts(samples: int, most: int | None) -> list[int]:
    """The sizes of a task's parts of at most so many samples, which are as equal as possible."""
    count = -(-samples // (most or samples))
    return [samples * (at + 1) // count - samples * at // count for at in range(count)]


def moved(batch: Any, device: torch.device) -> Any:
    """A batch with its tensors on a device."""
    if isinstance(batch, Tensor):
        return batch.to(device, non_blocking=True)
    if isinstance(batch, dict):
        return {name: moved(value, device) for name, value in batch.items()}
    if isinstance(batch, (list, tuple)):
        return [moved(value, device) for value in batch]
    return batch
