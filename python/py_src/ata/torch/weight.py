"""The weight of a micro-batch in its step."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils._pytree import tree_leaves


class Weight:
    """The weight of the micro-batch that a loop is computing, and how many backward passes it has had."""

    def __init__(self, models: list[nn.Module]) -> None:
        self._models = [model for model in models if isinstance(model, DistributedDataParallel)]
        for model in self._models:
            model.register_forward_pre_hook(self._count)
        self._weight: float | None = None
        self._passes = 0
        self._most_passes: int | None = None
        self._forward_passes = 0

    def begin(self, weight: float, most_passes: int | None) -> None:
        """A loop begins to compute a micro-batch, with at most so many backward passes."""
        self._weight, self._most_passes, self._passes = weight, most_passes, 0
        self._forward_passes = 0

    def end(self) -> int:
        """It has computed it, in so many backward passes."""
        if not self._passes:
            raise RuntimeError("a micro-batch was not computed: call uneven.backward(loss) for each")
        self._weight = None
        return self._passes

    def of_pass(self) -> float:
        """The weight of one more backward pass.

        Raises:
            RuntimeError: If it is not part of a micro-batch, or other ranks could not take part in it.
        """
        if self._weight is None:
            raise RuntimeError("there is no micro-batch to weigh: go through the steps with `for batch in step`")
        if self._passes == self._most_passes:
            raise RuntimeError(
                "a second backward pass, in a step in which a rank has no samples and expects one as in the steps before: create "
                "Uneven(models=[model], ...), or use one pass for the sum of both losses"
            )
        if self._models and self._models[0].require_backward_grad_sync and not self._forward_passes:
            raise RuntimeError(
                "no forward pass of the DistributedDataParallel since the last backward pass, so that ranks would not average: call it, and "
                "not its module, or use one backward pass for the sum of both losses"
            )
        self._forward_passes = 0
        self._passes += 1
        return self._weight

    def _count(self, model: nn.Module, inputs: object) -> None:
        self._forward_passes += 1


def weigh_gradient(loss: torch.Tensor, weight: float, computed: Callable[[], None], synced: Callable[[], None]) -> None:
    """Multiplies the gradient of a loss, which keeps its value. Calls `computed` when its backward pass has computed all gradients, before
    anything in it that waits for other ranks, and `synced` after that."""
    # What torch keeps for DistributedDataParallel's own callbacks.
    queue_callback = torch.autograd.Variable._execution_engine.queue_callback

    def first() -> None:
        computed()
        queue_callback(synced)

    def hook(gradient: torch.Tensor) -> torch.Tensor:
        # Callbacks run in the order in which they are queued, and nothing was queued before.
        queue_callback(first)
        return gradient * weight

    loss.register_hook(hook)


def _ignore(model: nn.Module, inputs: object, outputs: Any) -> None:
    """Lets no gradient pass from a model's outputs into it."""
    for output in tree_leaves(outputs):
        if isinstance(output, torch.Tensor) and output.requires_grad:
            output.register_hook(torch.zeros_like)


@contextmanager
def not_counting(models: list[nn.Module]) -> Iterator[None]:
    """The backward passes of a micro-batch that does not count: all gradients are zeros, whatever its loss is, even if it is not a number."""
    parameters = [each for model in models for each in model.parameters() if each.requires_grad]
    handles = [parameter.register_hook(torch.zeros_like) for parameter in parameters]
    # What fully_shard gathers are other tensors than the parameters.
    sharded = [model for model in models if not isinstance(model, DistributedDataParallel)]
    handles += [model.register_forward_hook(_ignore) for model in sharded]
    try:
        yield
    finally:
        for handle in handles:
            handle.remove()
