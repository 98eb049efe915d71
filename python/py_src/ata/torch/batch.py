"""Batches, as loaders return them, in parts."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch


def split(batch: Any, sizes: list[int]) -> Iterator[Any]:
    """Consecutive parts of a batch, with these numbers of samples; of an empty part, a sample that does not count.

    A batch is a tensor, or a tuple, list or dictionary of batches. Samples are along the first dimension.
    """
    if len(sizes) == 1:
        yield batch
        return
    begin = 0
    for size in sizes:
        first = min(begin, _length(batch) - 1)
        yield _part(batch, slice(first, first + max(size, 1)))
        begin += size


def _length(batch: Any) -> int:
    """The samples of the first tensor in it."""
    while not isinstance(batch, torch.Tensor):
        if isinstance(batch, dict):
            batch = list(batch.values())
        if not isinstance(batch, (tuple, list)) or not batch:
            raise _unknown(batch)
        batch = batch[0]
    return len(batch)


def _part(batch: Any, samples: slice) -> Any:
    if isinstance(batch, torch.Tensor):
        return batch[samples]
    if isinstance(batch, dict):
        return {key: _part(value, samples) for key, value in batch.items()}
    if isinstance(batch, tuple) and hasattr(batch, "_fields"):
        return type(batch)(*(_part(value, samples) for value in batch))
    if isinstance(batch, (tuple, list)):
        # Lists of numbers and texts are as long as the batch.
        if batch and not isinstance(batch[0], (torch.Tensor, dict, tuple, list)):
            return batch[samples]
        return type(batch)(_part(value, samples) for value in batch)
    raise _unknown(batch)


def _unknown(batch: Any) -> TypeError:
    return TypeError(
        f"a batch of type {type(batch).__name__} cannot be split into micro-batches: expected tensors, or tuples, lists or "
        "dictionaries of them. Without micro_batch, any batch will do"
    )
