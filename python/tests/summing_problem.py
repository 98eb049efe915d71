"""A small network with normalisation. If the first argument is `summed`, gradients are summed as on a GPU, but on the CPU. The others are the
number of a sample that is not finite, and the kind of normalisation."""

from __future__ import annotations

import sys
from typing import Any

import torch
from torch import nn
from torch.utils.data import TensorDataset

import ata
import ata.torch
from ata.torch.computation import Computation
from ata.torch.sums import Sums

SAMPLES = 256


class Summing(Computation):
    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        tensors = self.problem.tensors()
        self.sums = Sums(self.gradients, [torch.Size(tensor.shape).numel() for tensor in tensors])


def samples(bad: int | None) -> TensorDataset:
    generator = torch.Generator().manual_seed(1)
    inputs, targets = torch.randn(SAMPLES, 40, generator=generator), torch.randint(3, (SAMPLES,), generator=generator)
    if bad is not None:
        inputs[bad] = float("inf")
    return TensorDataset(inputs, targets)


if __name__ == "__main__":
    how, bad, norm = (sys.argv.pop(1) for _ in range(3))
    if how == "summed":
        ata.torch.problem.Computation = Summing
    torch.manual_seed(0)
    # The blocks of the compact format have 256 values.
    model = nn.Sequential(nn.Linear(40, 32), nn.BatchNorm1d(32) if norm == "batch" else nn.LayerNorm(32), nn.ReLU(), nn.Linear(32, 3))
    problem = ata.torch.Problem(
        model,
        samples(None if bad == "none" else int(bad)),
        nn.functional.cross_entropy,
        evaluate=samples(None),
        weight=lambda batch: (batch[1] + 1).sum(),
        find_unused_parameters=True,
        device="cpu",
        name="summing",
    )
    ata.main(problem, budget=6, task_batch=8, optimizer="adamw", lr=0.05, iterations=30)
