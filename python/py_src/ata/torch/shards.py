"""Streams as data whose samples are read by number."""

from __future__ import annotations

import itertools
from collections import OrderedDict
from collections.abc import Callable, Iterable
from typing import Any

WINDOW = 8
"""How many shards a run mixes: it takes the samples of so many before those of others, each of them once per epoch."""


class Shards:
    """Samples of streams, such as `IterableDataset` or `webdataset.WebDataset`: one stream for each shard, of which the first samples are used.

    Any worker may compute a task, and a task that is computed again must have the same samples. So a shard is read whole when one of its
    samples is needed, and stays in memory for the next tasks.

    Args:
        make: From the number of a shard to its samples, in the same order each time: `lambda shard: WebDataset(urls[shard]).decode("rgb")`.
        shards: The number of shards.
        samples: How many samples of each shard are used.
        keep: How many shards each process keeps in memory.

    Raises:
        ValueError: If a shard has fewer samples.
    """

    def __init__(self, make: Callable[[int], Iterable[Any]], shards: int, samples: int, keep: int = WINDOW) -> None:
        if min(shards, samples, keep) < 1:
            raise ValueError(f"shards={shards}, samples={samples}, keep={keep}: expected numbers of at least 1")
        self.make, self.shards, self.samples_of_shard, self.keep = make, shards, samples, keep
        self.kept: OrderedDict[int, list[Any]] = OrderedDict()

    def __len__(self) -> int:
        return self.shards * self.samples_of_shard

    def __getitem__(self, index: int) -> Any:
        shard, place = divmod(index, self.samples_of_shard)
        if shard not in self.kept:
            if len(self.kept) == self.keep:
                self.kept.popitem(last=False)
            self.kept[shard] = self._read(shard)
        self.kept.move_to_end(shard)
        return self.kept[shard][place]

    def __getstate__(self) -> dict[str, Any]:
        return self.__dict__ | {"kept": OrderedDict()}

    def _read(self, shard: int) -> list[Any]:
        samples = list(itertools.islice(self.make(shard), self.samples_of_shard))
        if len(samples) < self.samples_of_shard:
            raise ValueError(f"shard {shard} has {len(samples)} samples: expected {self.samples_of_shard}")
        return samples
