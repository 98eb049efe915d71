"""A linear model of streams of samples, one for each shard."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import torch
from torch import Tensor, nn
from torch.utils.data import IterableDataset

import ata
import ata.torch

SHARDS, SAMPLES = 40, 32


class Stream(IterableDataset):
    """A few more samples than are used."""

    def __init__(self, shard: int) -> None:
        self.shard = shard

    def __iter__(self) -> Iterator[tuple[Tensor, Tensor]]:
        if folder := os.environ.get("OPENED"):
            (Path(folder) / f"{os.getpid()}-{self.shard}").touch()
        generator = torch.Generator().manual_seed(self.shard)
        for _ in range(SAMPLES + self.shard % 3):
            x = torch.randn(4, generator=generator)
            yield x, x.sum(0, keepdim=True)


if __name__ == "__main__":
    torch.manual_seed(0)
    streams = ata.torch.Shards(Stream, SHARDS, SAMPLES)
    loaders = int(os.environ.get("LOADERS", "0"))
    problem = ata.torch.Problem(nn.Linear(4, 1), streams, nn.functional.mse_loss, evaluate=streams, device="cpu", loaders=loaders)
    ata.main(problem, budget=4, task_batch=4, optimizer="sgd", lr=0.01, eval_every=0, wire="f32-exact")
