"""The tensors of a model as parts of vectors."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import nn

from ata.problem import Tensor as Entry
from ata.problem import size
from ata.torch.buffers import Buffers


class Vectors:
    """A model's values and a gradient as vectors, of which its parameters and their gradients become parts.

    Args:
        model: The model.
        tensors: The tensors of the vectors.
        device: Where the vectors are.
    """

    def __init__(self, model: nn.Module, tensors: Sequence[Entry], device: torch.device) -> None:
        self.trained = trained(model)
        sizes = [parameter.numel() for _, parameter in self.trained]
        others = [[tensor for tensor in tensors if tensor.kind in kinds] for kinds in [("averaged", "counter"), ("weight",), ("uses",)]]
        self.values, self.gradients = (torch.zeros(size(tensors), device=device) for _ in range(2))
        *own_values, of_buffers, _, _ = self.values.split([*sizes, *map(size, others)])
        *own_gradients, self.changes, self.weight, self.uses = self.gradients.split([*sizes, *map(size, others)])
        for (_, parameter), value, gradient in zip(self.trained, own_values, own_gradients, strict=True):
            parameter.data, parameter.grad = value.view(parameter.shape), gradient.view(parameter.shape)
        self.views = [parameter.grad for _, parameter in self.trained]
        self.of_trained = self.gradients[: sum(sizes)]
        self.buffers = Buffers(model, of_buffers, self.changes)


def trained(model: nn.Module) -> list[tuple[str, nn.Parameter]]:
    """The parameters that are trained, in the order of the model."""
    return [(name, parameter) for name, parameter in model.named_parameters() if parameter.requires_grad]
