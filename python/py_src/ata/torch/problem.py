"""A PyTorch model, its data and its loss, as what ata's cluster trains."""

from __future__ import annotations

import functools
import warnings
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils.data import IterableDataset, default_collate

from ata.problem import Floats, Split, size, tallies
from ata.problem import Tensor as Entry
from ata.torch.batches import Dataset
from ata.torch.buffers import entries, synchronised
from ata.torch.computation import Computation
from ata.torch.optimizer import HeadOptimizer, Make
from ata.torch.vectors import trained

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
