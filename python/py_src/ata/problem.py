"""What is trained: parameters, samples, and gradients that Python computes."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from typing import Literal, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

Split = Literal["train", "test"]
Floats = NDArray[np.float32]
Integers = NDArray[np.int64]
Key = tuple[int, int, int]
"""The run's seed, the iteration, and the task."""


class Measurement(NamedTuple):
    """What is measured on test samples.

    Attributes:
        loss: Their mean loss.
        labels: The number of each sample's class, if the problem has classes.
        predictions: The numbers of the classes with the largest scores.
        metrics: Means over the samples of whatever else is of interest, by name. They are shown wherever the loss is.
    """

    loss: float
    labels: Sequence[int] = ()
    predictions: Sequence[int] = ()
    metrics: Mapping[str, float] = {}


Kind = Literal["trained", "averaged", "counter", "weight", "uses"]


class Tensor(NamedTuple):
    """A tensor of a model.

    Attributes:
        name: Its name in the model's file.
        shape: Its shape.
        kind: `trained` by the optimizer; or `averaged`: each task begins with its value and may change it, and a step sets it to the mean
            of what its tasks leave; or `counter`, which is averaged and has integers of at most 2^24. Tallies are last, with a gradient that
            each task gives them, and are in no file: `weight` has one value, the task's weight in the mean gradient, by which its gradient
            is multiplied; `uses` has a value for each trained tensor, 1 if the task has a gradient for it.
        also: Other names of it, as of weights that two layers share.
    """

    name: str
    shape: tuple[int, ...]
    kind: Kind = "trained"
    also: tuple[str, ...] = ()


class Computation(Protocol):
    """Computes losses and gradients of samples of one split. Both vectors stay where they are."""

    parameters: Floats
    """The values at which it computes: written before `load` is called."""
    gradient: Floats
    """The gradient that `compute` has left. For averaged tensors: their values before it minus those after it."""
    ahead: int
    """How many batches it wants to be announced in advance."""

    def load(self) -> None:
        """Says that `parameters` were written."""

    def announce(self, batches: Sequence[tuple[Integers, Key]]) -> None:
        """Says which samples and keys `compute` gets next, after those that were announced before. It is only a hint."""

    def compute(self, samples: Integers, key: Key) -> float:
        """Leaves the gradient of the samples' mean loss in `gradient`, and returns that loss."""

    def measure(self, samples: Integers) -> Measurement:
        """Measures samples without a gradient."""


class Sums(Protocol):
    """Sums gradients: for each value, the nearest integers, ties to even, after multiplication by a factor."""

    def begin(self, factors: Floats, counts: Integers, counted: int) -> None:
        """Begins a sum. The factors are each for so many consecutive values. For the first `counted` values, those that become 0 are
        counted."""

    def end(self) -> tuple[Integers, Floats, int, int]:
        """The sum as `int32`, the largest magnitudes of a task in each tensor, and how many values were above the limit or became 0."""


class SummingComputation(Computation, Protocol):
    """A computation that sums gradients on a device, so that not each of them is copied."""

    sums: Sums | None
    """The sum, or None if gradients are copied."""

    def add(self, samples: Integers, key: Key, tasks: int, limit: float) -> float | None:
        """Adds the gradient of the mean loss of so many tasks to the sum, so many times, and returns that loss. Integers are at most
        `limit`. Returns None, and adds nothing, if the loss or the gradient is not finite."""


class OwnOptimizer(Protocol):
    """Takes the steps of a run on the head node, which calls no other. Both vectors stay where they are."""

    parameters: Floats
    """The values before a step, which it replaces by those after it; what it leaves in averaged tensors does not matter."""
    gradient: Floats
    """The mean gradient of a step."""

    def step(self, iteration: int, factor: float, used: list[bool] | None) -> float:
        """Takes a step at its learning rate times a factor, and returns that product. `used`: whether each trained tensor has a gradient;
        None if all have."""

    def state(self) -> bytes:
        """What it keeps from step to step, for a checkpoint."""

    def restore(self, state: bytes) -> None:
        """Sets that to what a checkpoint holds."""


class Trainable(Protocol):
    """What ata asks of a problem. It may also have `optimizer`, a function that makes an `OwnOptimizer`, and `samples_of_shard`, a function from a
    split to the number of samples that are best read together, or None."""

    name: str
    """The name that `--model` has for it."""
    classes: Sequence[str]
    """The names of the classes, for accuracies; empty if it has none."""

    def tensors(self) -> list[Tensor]:
        """The tensors, in the order in which they make up a vector: trained ones first."""

    def initial(self, seed: int) -> Floats:
        """Their values before the first step: the same for the same seed."""

    def open(self, split: Split, path: str | None) -> int:
        """Opens a split, and returns how many samples it has. `path` is the file that `--data` names, if it is given."""

    def computation(self, split: Split, threads: int) -> Computation:
        """Makes what computes on a split that is open. `threads`: how many it may use on the CPU."""


class Problem(ABC):
    """A problem in numpy, or in anything that takes and returns numpy arrays.

    Parameters are a dictionary of arrays, and samples are numbers below `samples(split)`. All randomness must come from `key`, so
    that every worker computes the same.
    """

    name = "python"
    classes: Sequence[str] = ()
    averaged: Sequence[str] = ()
    """The names of arrays of `start` that no optimizer trains: each task begins with their values, and a step sets them to the mean of what
    its tasks leave. `loss_and_gradient` returns that in place of a gradient."""
    weighs = False
    """Whether `loss_and_gradient` returns a third value: the weight of a task in the mean of a step, for losses that are weighted means."""
    finds_unused = False
    """Whether a gradient may have None for an array. If no task of a step has a gradient for it, the array stays as it is."""

    @abstractmethod
    def start(self, seed: int) -> Mapping[str, Floats]:
        """The initial parameters, with the same names and shapes for every seed."""

    @abstractmethod
    def samples(self, split: Split, path: str | None) -> int:
        """The number of samples of a split: `"train"` or `"test"`. `path` is the file that `--data` names, if any."""

    @abstractmethod
    def loss_and_gradient(
        self, parameters: Mapping[str, Floats], samples: Integers, key: Key
    ) -> tuple[float, Mapping[str, Floats]] | tuple[float, Mapping[str, Floats | None], float]:
        """The mean loss over training samples, and its gradient. `key` is (seed, iteration, task), for dropout and the like."""

    @abstractmethod
    def measure(self, parameters: Mapping[str, Floats], samples: Integers) -> float | Measurement:
        """The mean loss over test samples, or a `Measurement` with classes, predictions or metrics too."""

    def tensors(self) -> list[Tensor]:
        """As `Trainable`."""
        arrays = self.start(0)
        if unknown := set(self.averaged) - arrays.keys():
            raise ValueError(f"averaged={list(self.averaged)}: start() has no {', '.join(sorted(unknown))}")
        of_model = [Tensor(name, np.shape(arrays[name]), "averaged" if name in self.averaged else "trained") for name in self._order(arrays)]
        return of_model + self._tallies(arrays)

    def _order(self, arrays: Mapping[str, Floats]) -> list[str]:
        return sorted(arrays, key=lambda name: name in self.averaged)

    def _tallies(self, arrays: Mapping[str, Floats]) -> list[Tensor]:
        return tallies(len(arrays) - len(self.averaged), weighs=self.weighs, finds_unused=self.finds_unused)

    def initial(self, seed: int) -> Floats:
        """As `Trainable`."""
        arrays = self.start(seed)
        of_model = [np.asarray(arrays[name], np.float32).ravel() for name in self._order(arrays)]
        return np.concatenate([*of_model, np.zeros(size(self._tallies(arrays)), np.float32)])

    def open(self, split: Split, path: str | None) -> int:
        """As `Trainable`."""
        return self.samples(split, path)

    def computation(self, split: Split, threads: int) -> Computation:
        """As `Trainable`."""
        return _ArrayComputation(self)


class _ArrayComputation:
    """Turns dictionaries of arrays into vectors and back."""

    ahead = 0

    def __init__(self, problem: Problem) -> None:
        tensors = problem.tensors()
        self.problem = problem
        self.parameters, self.gradient = (np.zeros(size(tensors), np.float32) for _ in range(2))
        self.parameter_views, self.gradient_views = views(self.parameters, tensors), views(self.gradient, tensors)
        self.weight, self.uses = (self.gradient_views.pop(name, None) for name in (WEIGHT, USES))
        self.trained = [tensor.name for tensor in tensors if tensor.kind == "trained"]

    def load(self) -> None:
        """The views see what was written."""

    def announce(self, batches: Sequence[tuple[Integers, Key]]) -> None:
        """Nothing is prepared."""

    def compute(self, samples: Integers, key: Key) -> float:
        loss, gradient, *weight = self.problem.loss_and_gradient(self.parameter_views, samples, key)
        if not isinstance(gradient, Mapping):
            raise TypeError(f"the gradient: expected a dictionary of arrays, not {type(gradient).__name__}")
        if gradient.keys() != self.gradient_views.keys():
            raise ValueError(f"gradients of {sorted(gradient)}: expected {sorted(self.gradient_views)}")
        for name, view in self.gradient_views.items():
            of_name = gradient[name]
            if self.uses is not None and name in self.trained:
                self.uses[self.trained.index(name)] = of_name is not None
                if of_name is None:
                    view[...] = 0
                    continue
            # numpy would also repeat a smaller array.
            if of_name is None or np.shape(of_name) != view.shape:
                found = "None" if of_name is None else f"the shape {np.shape(of_name)}"
                raise ValueError(f"the gradient of {name} has {found}: expected {view.shape}, as its parameter")
            view[...] = of_name
        for name in self.problem.averaged:
            np.subtract(self.parameter_views[name], self.gradient_views[name], out=self.gradient_views[name])
        if self.weight is not None:
            self.weight[...] = checked_weight(*weight)
            for name in self.trained:
                self.gradient_views[name] *= self.weight
        return float(loss)

    def measure(self, samples: Integers) -> Measurement:
        measured = self.problem.measure(self.parameter_views, samples)
        loss, labels, predictions, metrics = Measurement(*measured) if isinstance(measured, tuple) else Measurement(measured)
        return Measurement(float(loss), list(labels), list(predictions), dict(metrics))


WEIGHT, USES = "ata.weight", "ata.uses"


def tallies(parameters: int, *, weighs: bool, finds_unused: bool) -> list[Tensor]:
    """The tallies of a model with so many trained tensors."""
    weight = [Tensor(WEIGHT, (), "weight")] if weighs else []
    return [*weight, *([Tensor(USES, (parameters,), "uses")] if finds_unused else [])]


def checked_weight(weight: float) -> float:
    """The weight of a task.

    Raises:
        ValueError: If it is not a finite number of at least 0.
    """
    if not (math.isfinite(weight) and weight >= 0):
        raise ValueError(f"weight: {weight} of a task: expected a number of at least 0")
    return float(weight)


def size(tensors: Sequence[Tensor]) -> int:
    """The number of values."""
    return sum(math.prod(tensor.shape) for tensor in tensors)


def views(vector: Floats, tensors: Sequence[Tensor]) -> dict[str, Floats]:
    """The parts of a vector, each in its shape."""
    parts, first = {}, 0
    for tensor in tensors:
        last = first + int(np.prod(tensor.shape))
        parts[tensor.name] = vector[first:last].reshape(tensor.shape)
        first = last
    return parts
