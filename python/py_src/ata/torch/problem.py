"""A PyTorch model, its data and its loss, as what ata's cluster trains."""

from __future__ import annotations

import copy
import functools
import math
import warnings
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils.data import IterableDataset, default_collate

from ata.problem import Floats, Integers, Key, Measurement, Split, size, tallies
from ata.problem import Tensor as Entry
from ata.torch.batch import split
from ata.torch.batches import Dataset, Source, seed
from ata.torch.buffers import BatchNorm, entries, normalises_batches, synchronised
from ata.torch.loaders import Loaders, Request
from ata.torch.optimizer import HeadOptimizer, Make
from ata.torch.sums import Sums
from ata.torch.tallies import Tallies
from ata.torch.vectors import Vectors, trained

Forward = Callable[[nn.Module, Any], tuple[Any, Any]]
"""From a model and a batch to what the loss takes: outputs and targets."""


def pairs(model: nn.Module, batch: Any) -> tuple[Any, Any]:
    """For samples that are pairs of an input and a target."""
    inputs, targets = batch
    return model(inputs), targets


class Problem:
    """Trains a PyTorch model on ata's cluster: see `ata.main`.

    Parameters with `requires_grad` are trained, and persistent buffers are averaged: every task begins with their values, as in the
    running statistics of batch normalisation, and a step sets them to the mean of what its tasks leave. The rest of the model must be the
    same on every machine, and no task may change it. A task's gradient may depend only on these, its samples, and the random states of
    PyTorch, numpy and Python, which are seeded for each task.

    Args:
        model: The model, with `float32` parameters. Training begins with those of the coordinator.
        train: The training data, an object with `len` and `[]`. Every machine opens its own copy.
        loss: From outputs and targets to the mean loss.
        evaluate: The test data; without it, the training data.
        forward: From the model and a batch to outputs and targets. By default, samples are pairs (input, target).
        classes: Names of the classes, for accuracies. Targets must be class numbers, and outputs scores by class.
        metrics: Functions by name, from outputs and targets of test samples to a mean.
        weight: From a batch to the weight of a task in the mean of a step, if the loss is a weighted mean: `lambda batch: (batch["labels"]
            != -100).sum()` for a mean over tokens, `lambda batch: weights[batch[1]].sum()` for class weights.
        find_unused_parameters: Whether parameters without a gradient in any task of a step stay as they are, with their moments, as in
            PyTorch. Otherwise, the gradient is zero where a task has none. Costs: a step then begins when all gradients have arrived.
        optimizer: From a copy of the model on the head node to one or several objects whose `step()` is called in each step, in this order:
            optimizers of PyTorch, schedulers, objects of one's own, which may read the model and the gradients of the step. Their
            `state_dict` is in checkpoints. By default, `--optimizer` names one of ata's.
        micro_batch: The most samples that are computed at once. By default, those of a task, and half as many whenever they do not fit into
            the memory of the device. Not for models whose buffers a task changes, as batch normalisation does.
        collate: Makes a batch of samples.
        loaders: Processes of each worker that load its next samples. Training data and `collate` must be picklable then.
        device: Where to compute. By default, on a GPU if there is one.
        autocast: The type for mixed precision, as in `torch.bfloat16`.
        name: Its name for `--model`.

    Raises:
        ValueError: If the model has nothing to train or a tensor of a wrong type, or data are a stream.
    """

    def __init__(
        self,
        model: nn.Module,
        train: Dataset,
        loss: Callable[[Any, Any], Tensor],
        *,
        evaluate: Dataset | None = None,
        forward: Forward = pairs,
        classes: Sequence[str] = (),
        metrics: Mapping[str, Callable[[Any, Any], Any]] | None = None,
        weight: Callable[[Any], Any] | None = None,
        find_unused_parameters: bool = False,
        optimizer: Make | None = None,
        micro_batch: int | None = None,
        collate: Callable[[list[Any]], Any] = default_collate,
        loaders: int = 0,
        device: str | torch.device | None = None,
        autocast: torch.dtype | None = None,
        name: str | None = None,
    ) -> None:
        check(model)
        for what, samples in [("train", train), ("evaluate", evaluate)]:
            if samples is not None:
                check_samples(what, samples)
        if loaders < 0:
            raise ValueError(f"loaders={loaders}: expected a number of processes, or 0")
        self.model, self.loss, self.forward, self.collate, self.autocast = model, loss, forward, collate, autocast
        self.loaders = loaders
        if micro_batch is not None and micro_batch < 1:
            raise ValueError(f"micro_batch={micro_batch}: expected a number of samples")
        self.weight, self.finds_unused, self.micro_batch = weight, find_unused_parameters, micro_batch
        self.data: dict[Split, Dataset] = {"train": train, "test": train if evaluate is None else evaluate}
        self.device = torch.device(device or ("cuda" if torch.cuda.is_available() else "cpu"))
        self.optimizer = None if optimizer is None else functools.partial(HeadOptimizer, self, optimizer)
        self.name = name or type(model).__name__.lower()
        self.classes, self.metrics = list(classes), dict(metrics or {})

    def tensors(self) -> list[Entry]:
        """As `ata.problem.Trainable`."""
        return [*(entry for entry, _ in entries(self.model)), *self._tallies()]

    def _tallies(self) -> list[Entry]:
        return tallies(len(trained(self.model)), weighs=self.weight is not None, finds_unused=self.finds_unused)

    def initial(self, seed: int) -> Floats:
        """As `ata.problem.Trainable`. Whoever makes the model seeds it."""
        tensors = [tensor.detach().reshape(-1).to("cpu", torch.float32) for _, tensor in entries(self.model)]
        return torch.cat([*tensors, torch.zeros(size(self._tallies()))]).numpy()

    def open(self, split: Split, path: str | None) -> int:
        """As `ata.problem.Trainable`."""
        if path is not None:
            raise ValueError(f"--data {path}: this program brings its own data")
        return len(self.data[split])

    def samples_of_shard(self, split: Split) -> int | None:
        """As `ata.problem.Trainable`."""
        return getattr(self.data[split], "samples_of_shard", None)

    def computation(self, split: Split, threads: int) -> Computation:
        """As `ata.problem.Trainable`."""
        torch.set_num_threads(threads)
        return Computation(self, split)


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


FEW_SAMPLES = 8
"""With fewer samples in a task, batch normalisation is warned about."""


def moved(batch: Any, device: torch.device) -> Any:
    """A batch with its tensors on a device."""
    if isinstance(batch, Tensor):
        return batch.to(device, non_blocking=True)
    if isinstance(batch, dict):
        return {name: moved(value, device) for name, value in batch.items()}
    if isinstance(batch, (list, tuple)):
        return [moved(value, device) for value in batch]
    return batch


def check(model: nn.Module) -> None:
    """Refuses a model that cannot be trained, or has nothing to train."""
    for name, parameter in trained(model):
        if parameter.dtype != torch.float32:
            raise ValueError(f"{name} is {parameter.dtype}: trained parameters are float32 (mixed precision: autocast=)")
    if not trained(model):
        raise ValueError("the model has no parameters with requires_grad: there is nothing to train")
    entries(model)
    if synchronised(model):
        warnings.warn("SyncBatchNorm is replaced by batch normalisation over the samples of a task", stacklevel=3)


def check_samples(what: str, samples: Any) -> None:
    """Refuses data that cannot be read by number."""
    if isinstance(samples, IterableDataset) or not (hasattr(samples, "__len__") and hasattr(samples, "__getitem__")):
        raise ValueError(
            f"{what}: {type(samples).__name__} is a stream: any worker may compute a task, so its samples are read by number. Pass data with "
            "len and [], such as ata.torch.Shards of several streams, or list(...) of one that fits in memory"
        )
