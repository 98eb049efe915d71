"""The weight of a micro-batch in its step."""

from __future__ import annotations

from collections.abc import Callable

import torch


def weigh_gradient(loss: torch.Tensor, weight: float, computed: Callable[[], None] | None) -> None:
    """Multiplies the gradient of a loss, which keeps its value, and calls `computed` when its backward pass has computed all
    gradients, before anything in it that waits for other ranks."""

    def hook(gradient: torch.Tensor) -> torch.Tensor:
        if computed is not None:
            # Callbacks run in the order in which they are queued, and nothing was queued before.
            torch.autograd.Variable._execution_engine.queue_callback(computed)
        return gradient * weight

    loss.register_hook(hook)
