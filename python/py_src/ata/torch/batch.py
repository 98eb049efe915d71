"""Batches, as loaders return them, in parts."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from itertools import islice
from typing import Any

import torch


def split(batch: Any, sizes: list[int]) -> Iterator[Any]:
    """Consecutive parts of a batch, with these numbers of samples; of an empty part, a sample that does not count.

    A batch is a tensor with the samples along its first dimension, a tuple or list with one element per sample, or a tuple, list or mapping of
    batches.

    Raises:
        TypeError: If something in the batch has another number of samples.
    """
    if len(sizes) == 1:
        yield batch
        return
    begin, total = 0, max(sum(sizes), 1)
    if not _has(batch, total):
        raise TypeError(
            f"a batch of {_described(batch)} cannot be split into micro-batches: expected {total} samples, along the first dimension of "
            "tensors or as elements of lists, in any tuples, lists and mappings. Without micro_batch, any batch will do; Uneven also takes a function, split=..."
        )
    for size in sizes:
        first = min(begin, total - 1)
        yield _part(batch, slice(first, first + max(size, 1)), total)
        begin += size


def _has(batch: Any, total: int) -> bool:
    """Whether every part of a batch has this many samples."""
    if isinstance(batch, torch.Tensor):
        return batch.ndim > 0 and len(batch) == total
    if isinstance(batch, Mapping):
        return len(batch) > 0 and all(_has(value, total) for value in batch.values())
    return isinstance(batch, (tuple, list)) and (_consists_of_batches(batch, total) or len(batch) == total)


def _consists_of_batches(batch: tuple[Any, ...] | list[Any], total: int) -> bool:
    return len(batch) > 0 and all(_has(value, total) for value in batch)


def _part(batch: Any, samples: slice, total: int) -> Any:
    if isinstance(batch, torch.Tensor):
        return batch[samples]
    if isinstance(batch, Mapping):
        return {key: _part(value, samples, total) for key, value in batch.items()}
    if not _consists_of_batches(batch, total):
        return batch[samples]
    parts = (_part(value, samples, total) for value in batch)
    return type(batch)(*parts) if hasattr(batch, "_fields") else type(batch)(parts)


def _described(batch: Any) -> str:
    """The types in a batch, with the lengths of what has one."""
    if isinstance(batch, Mapping):
        return "{" + ", ".join(f"{key}: {_described(value)}" for key, value in batch.items()) + "}"
    if isinstance(batch, torch.Tensor):
        return f"a tensor of shape {list(batch.shape)}"
    if isinstance(batch, (tuple, list)) and len(batch) <= 4:
        return "[" + ", ".join(map(_described, batch)) + "]"
    return type(batch).__name__ + (f" of {len(batch)}" if hasattr(batch, "__len__") else "")


class Drawn:
    """Batches that are drawn from a stream."""

    def __init__(self, batches: Iterable[Any]) -> None:
        self._batches = iter(batches)
        self._kept: list[Any] = []

    def next(self, number: int) -> list[Any]:
        """So many, or fewer at the end. If none is wanted, one that may be used, but will be drawn later."""
        drawn = self._kept + list(islice(self._batches, max(number, 1) - len(self._kept)))
        self._kept = drawn[number:]
        return drawn
