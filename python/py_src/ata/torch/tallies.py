"""What a task adds up beside its gradient: its weight in the mean, and the parameters for which it has a gradient."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor, nn

from ata.problem import checked_weight


class Tallies:
    """The tallies of a computation.

    Args:
        parameters: The trained parameters, by name.
        gradients: Their part of the gradient.
        weight: The place of a task's weight; empty if tasks weigh the same.
        uses: The places where parameters with a gradient are marked; empty if the others have zeros.
        of_batch: From a batch to its weight.
    """

    def __init__(
        self,
        parameters: Sequence[tuple[str, nn.Parameter]],
        gradients: Tensor,
        weight: Tensor,
        uses: Tensor,
        of_batch: Callable[[Any], Any] | None,
    ) -> None:
        self.names, self.gradients, self.weight, self.uses, self.of_batch = [name for name, _ in parameters], gradients, weight, uses, of_batch
        self.found = [False] * len(parameters)
        self.hooks = [parameter.register_post_accumulate_grad_hook(self._finder(at)) for at, (_, parameter) in enumerate(parameters)]

    def _finder(self, at: int) -> Callable[[Tensor], None]:
        def hook(_: Tensor) -> None:
            self.found[at] = True

        return hook

    def begin(self) -> None:
        """Begins a task."""
        self.found[:] = [False] * len(self.found)

    def weight_of(self, batch: Any) -> float | None:
        """The weight of samples, if tasks have weights.

        Raises:
            ValueError: If it is not a finite number of at least 0.
        """
        return None if self.of_batch is None else checked_weight(float(self.of_batch(batch)))

    @torch.no_grad()
    def end(self, weight: float | None) -> None:
        """Multiplies the gradient of a task by its weight, and leaves both tallies."""
        if self.uses.numel() > 0:
            self.uses.copy_(torch.tensor(self.found, dtype=self.uses.dtype))
        else:
            self._warn_once()
        if weight is not None:
            self.weight.fill_(weight)
            self.gradients.mul_(weight)

    def _warn_once(self) -> None:
        """After the first task, says which parameters had no gradient in it."""
        if self.hooks and (unused := [name for name, found in zip(self.names, self.found, strict=True) if not found]):
            warnings.warn(
                f"a task has no gradient for {', '.join(unused[:3])}{' …' if len(unused) > 3 else ''}, so it counts as zero: "
                "find_unused_parameters=True leaves such parameters as they are",
                stacklevel=1,
            )
        for hook in self.hooks:
            hook.remove()
        self.hooks = []
