"""Models of which a task uses only some parameters, with losses that are weighted means. The first argument names the model."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

import torch
from models_with_buffers import CLASSES, Words, data
from torch import Tensor, nn
from torch.utils.data import TensorDataset

import ata
import ata.torch

CLASS_WEIGHTS = torch.tensor([0.2, 1.0, 3.0])
IGNORED = -100
EPSILON = 1e-3
"""With a smaller one, Adam makes steps out of the rounding errors of gradients that are zero, such as that of a bias of keys."""


class Experts(nn.Module):
    """The sign of a task's first input chooses its expert. One is never chosen."""

    def __init__(self) -> None:
        super().__init__()
        self.experts = nn.ModuleList([nn.Linear(8, CLASSES) for _ in range(3)])
        self.scale = nn.Parameter(torch.ones(CLASSES))

    def forward(self, inputs: Tensor) -> Tensor:
        return self.experts[int(inputs[0, 0] > 0)](inputs) * self.scale


MODELS: dict[str, Callable[[], nn.Module]] = {"experts": Experts, "gpt2": Words}


def make(name: str) -> nn.Module:
    torch.manual_seed(0)
    return MODELS[name]().train()


def samples() -> TensorDataset:
    """Half of the samples have no target, and so do all of the first task."""
    inputs, targets = data(512, seed=1).tensors
    return TensorDataset(inputs, torch.where(inputs[:, 4] > 0, IGNORED, targets))


def loss(outputs: Tensor, targets: Tensor) -> Tensor:
    return nn.functional.cross_entropy(outputs, targets, CLASS_WEIGHTS, ignore_index=IGNORED)


def weight(batch: Any) -> Tensor:
    _, targets = batch
    return CLASS_WEIGHTS[targets[targets != IGNORED]].sum()


if __name__ == "__main__":
    name = sys.argv.pop(1)
    problem = ata.torch.Problem(
        make(name), samples(), loss, evaluate=data(64, seed=2), weight=weight, find_unused_parameters=True, device="cpu", name=name
    )
    ata.main(problem, budget=4, task_batch=4, optimizer="adamw", lr=0.01, weight_decay=0.1, epsilon=EPSILON, wire="f32-exact")
