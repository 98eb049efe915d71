"""JAX on ata's own cluster."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from ata.problem import Floats, Integers, Key, Measurement, Split, Tensor

# Otherwise the first process on a GPU, such as the head, takes three quarters of its memory, and workers beside it fail.
os.environ.setdefault("XLA_PYTHON_CLIENT_PREALLOCATE", "false")

try:
    import jax
    from jax.flatten_util import ravel_pytree
except ImportError as error:
    raise ImportError("ata.jax needs JAX: pip install jax") from error


class Problem:
    """Trains parameters of JAX on ata's cluster: see `ata.main`.

    `forward` and `loss` are compiled for each number of samples. XLA chooses the number of threads.

    Args:
        parameters: The initial parameters, the same on every machine: a pytree of `float32` arrays.
        forward: From parameters, inputs and a task's random key to outputs. The key is None in evaluations.
        loss: From outputs and targets to the mean loss.
        train: Inputs and targets of the training data. Each takes an array of indices in `[]`.
        evaluate: Those of the test data; without it, the training data.
        classes: As in `ata.torch.Problem`.
        metrics: As in `ata.torch.Problem`.
        name: Its name for `--model`.

    Raises:
        ValueError: If inputs and targets differ in number, or a parameter is not `float32`.
    """

    def __init__(
        self,
        parameters: Any,
        forward: Callable[[Any, Any, Any], Any],
        loss: Callable[[Any, Any], Any],
        train: tuple[Any, Any],
        *,
        evaluate: tuple[Any, Any] | None = None,
        classes: Sequence[str] = (),
        metrics: Mapping[str, Callable[[Any, Any], Any]] | None = None,
        name: str = "jax",
    ) -> None:
        self.parameters, self.forward, self.loss, self.classes, self.name = parameters, forward, loss, classes, name
        self.metrics = dict(metrics or {})
        self.data: dict[Split, tuple[Any, Any]] = {"train": train, "test": train if evaluate is None else evaluate}
        for split, (inputs, targets) in self.data.items():
            if len(inputs) != len(targets):
                raise ValueError(f"{split}: {len(inputs)} inputs and {len(targets)} targets")
        for path, array in jax.tree_util.tree_leaves_with_path(parameters):
            if np.asarray(array).dtype != np.float32:
                raise ValueError(f"{jax.tree_util.keystr(path)} is {np.asarray(array).dtype}: parameters are float32")

    def tensors(self) -> list[Tensor]:
        """As `ata.problem.Trainable`."""
        leaves = jax.tree_util.tree_leaves_with_path(self.parameters)
        return [Tensor(jax.tree_util.keystr(path, simple=True, separator="."), np.shape(array)) for path, array in leaves]

    def initial(self, seed: int) -> Floats:
        """As `ata.problem.Trainable`. Whoever makes the parameters seeds them."""
        return np.array(ravel_pytree(self.parameters)[0])

    def open(self, split: Split, path: str | None) -> int:
        """As `ata.problem.Trainable`."""
        if path is not None:
            raise ValueError(f"--data {path}: this program brings its own data")
        return len(self.data[split][0])

    def computation(self, split: Split, threads: int) -> Computation:
        """As `ata.problem.Trainable`."""
        return Computation(self, self.data[split])


class Computation:
    """Parameters and gradients as vectors, which a compiled function takes and returns whole."""

    ahead = 0

    def __init__(self, problem: Problem, data: tuple[Any, Any]) -> None:
        self.data, self.has_classes = data, len(problem.classes) > 0
        self.parameters = problem.initial(0)
        self.gradient = np.zeros_like(self.parameters)
        unravel = ravel_pytree(problem.parameters)[1]

        def loss(vector: Any, inputs: Any, targets: Any, key: Any) -> Any:
            return problem.loss(problem.forward(unravel(vector), inputs, key), targets)

        def measured(vector: Any, inputs: Any, targets: Any) -> tuple[Any, Any, Any]:
            outputs = problem.forward(unravel(vector), inputs, None)
            metrics = {name: function(outputs, targets) for name, function in problem.metrics.items()}
            return problem.loss(outputs, targets), outputs.argmax(-1) if self.has_classes else None, metrics

        self._measured = jax.jit(measured)
        self._differentiated = jax.jit(jax.value_and_grad(loss))

    def load(self) -> None:
        """As `ata.problem.Computation`."""
        # A copy: the next parameters are written into the same memory.
        self._vector = jax.numpy.array(self.parameters)

    def announce(self, batches: Sequence[tuple[Integers, Key]]) -> None:
        """Nothing is prepared."""

    def compute(self, samples: Integers, key: Key) -> float:
        """As `ata.problem.Computation`."""
        words = np.random.SeedSequence(key).generate_state(2)
        random = jax.random.fold_in(jax.random.key(words[0]), words[1])
        loss, gradient = self._differentiated(self._vector, *self._batch(samples), random)
        self.gradient[...] = gradient
        return float(loss)

    def measure(self, samples: Integers) -> Measurement:
        """As `ata.problem.Computation`."""
        inputs, targets = self._batch(samples)
        loss, predictions, metrics = self._measured(self._vector, inputs, targets)
        labels, predictions = (targets.tolist(), predictions.tolist()) if self.has_classes else ([], [])
        return Measurement(float(loss), labels, predictions, {name: float(value) for name, value in metrics.items()})

    def _batch(self, samples: Integers) -> tuple[Any, Any]:
        return self.data[0][samples], self.data[1][samples]
