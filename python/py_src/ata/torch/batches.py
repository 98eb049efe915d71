"""Batches of samples, in this process or in another one."""

from __future__ import annotations

import random
from collections.abc import Callable, Sized
from typing import Any, NamedTuple, Protocol

import numpy as np
import torch

from ata.problem import Integers, Key


class Dataset(Sized, Protocol):
    """Whatever has a length, and a sample at each index below it."""

    def __getitem__(self, index: int, /) -> Any:
        """The sample at an index."""


class Source(NamedTuple):
    """Where batches come from."""

    data: Dataset
    collate: Callable[[list[Any]], Any]

    def batch(self, samples: Integers) -> Any:
        """A batch: its samples all at once if the data can, as PyTorch's DataLoader asks for them."""
        numbers = samples.tolist()
        if hasattr(self.data, "__getitems__"):
            return self.collate(self.data.__getitems__(numbers))
        return self.collate([self.data[number] for number in numbers])

    def batch_of_task(self, samples: Integers, key: Key) -> Any:
        """A batch whose random changes depend on `key` alone, and not on the process that loads it."""
        seed(key, "load")
        return self.batch(samples)


def seed(key: Key, use: str) -> None:
    """Seeds PyTorch, numpy and Python for one of a task's uses of random numbers."""
    words = np.random.SeedSequence((*key, *use.encode())).generate_state(4, np.uint32).tolist()
    seed_torch(words[0] << 32 | words[1])
    np.random.seed(words[2])
    random.seed(words[3])


def seed_torch(value: int) -> None:
    """As `torch.manual_seed`, which takes a millisecond where other kinds of devices than CUDA are not in use."""
    if not torch.cuda.is_initialized():
        torch.manual_seed(value)
        return
    torch.default_generator.manual_seed(value)
    torch.cuda.manual_seed_all(value)
