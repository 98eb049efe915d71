"""What Trainer's loader becomes when its steps are divided."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import torch
from torch.utils.data import BatchSampler, DataLoader, IterableDataset, Sampler

KEPT = "num_workers collate_fn pin_memory timeout worker_init_fn multiprocessing_context generator prefetch_factor"
KEPT += " persistent_workers in_order"


def order_of(even: DataLoader[Any]) -> Sampler[int]:
    """The sampler of the loader that Trainer would use."""
    # Accelerate divides batches in a sampler around it.
    batches = getattr(even.batch_sampler, "batch_sampler", even.batch_sampler)
    if type(batches) is not BatchSampler or not isinstance(batches.sampler, Sampler):
        raise ValueError(
            f"UnevenTrainer cannot divide the batches of a {type(batches).__name__}: use a torch Sampler of single "
            "samples, and another train_sampling_strategy than 'batch_rebalance'"
        )
    return batches.sampler


def step_loader(trainer: Any, even: DataLoader[Any], order: Sampler[int]) -> DataLoader[Any]:
    """As the loader that Trainer would use, with this rank's share of a step as a batch."""
    sampler = StepSampler(trainer, order)
    options: dict[str, Any] = {name: getattr(even, name) for name in KEPT.split()}
    loader: Any = DataLoader(even.dataset, batch_sampler=sampler, **options)
    # Trainer calls it if it is there.
    loader.set_epoch = sampler.set_epoch
    return loader  # type: ignore[no-any-return]


class StepSampler:
    """The shares of an epoch's steps, as the batch sampler of Trainer's loader."""

    def __init__(self, trainer: Any, order: Any) -> None:
        self._trainer = trainer
        self._order = order
        self._is_first = True
        self._epoch = 0

    def set_epoch(self, epoch: int) -> None:
        """Trainer calls it before each epoch."""
        self._epoch = epoch
        if not hasattr(self._order, "set_epoch") and hasattr(self._order, "generator"):
            # The same order in an epoch that is continued.
            args = self._trainer.args
            seed = args.seed if args.data_seed is None else args.data_seed
            self._order.generator = torch.Generator().manual_seed(seed + epoch)

    def __len__(self) -> int:
        samples = len(self._order)
        budget: int = self._trainer.get_total_train_batch_size(self._trainer.args)
        return samples // budget if self._trainer.args.dataloader_drop_last else -(-samples // budget)

    def __iter__(self) -> Iterator[list[int]]:
        shares, done = self._trainer.divided(), 0
        if self._is_first and not self._trainer.args.ignore_data_skip:
            done = self._trainer.state.global_step % len(self)
        self._is_first = False
        shares.load_state_dict({"epoch": self._epoch, "step": done})
        # Trainer skips as many as were done before the checkpoint.
        yield from [[]] * done
        yield from shares


def check(trainer: Any) -> None:
    """Refuses what cannot be divided."""
    args, data, loading = trainer.args, trainer.train_dataset, trainer.args.accelerator_config
    is_stream = isinstance(data, IterableDataset) or not hasattr(data, "__len__")
    refused = [
        (is_stream, "a train_dataset without __len__ and __getitem__: write a loop with ata.torch.Uneven.stream"),
        (trainer.is_fsdp_enabled, "fsdp: leave it out, or write a loop with fully_shard and ata.torch.Uneven"),
        (trainer.is_deepspeed_enabled, "deepspeed: leave it out"),
        (args.parallelism_config, "parallelism_config: leave it out"),
        (loading.split_batches, "split_batches in accelerator_config: set per_device_train_batch_size"),
        (loading.dispatch_batches, "dispatch_batches in accelerator_config: each rank loads its share; leave it out"),
        (args.auto_find_batch_size, "auto_find_batch_size: set per_device_train_batch_size, alike on all ranks"),
        (args.gradient_accumulation_steps > 1, "a search for gradient_accumulation_steps: pass a number to its args"),
        ("lomo" in args.optim, f"optim='{args.optim}', which steps in each backward pass: use another one"),
    ]
    for is_so, text in refused:
        if is_so:
            raise ValueError(f"UnevenTrainer does not support {text}")


def samples_of(batch: Any) -> int:
    return next(
        len(each) for each in (batch.values() if isinstance(batch, Mapping) else batch) if torch.is_tensor(each)
    )


def without_samples(batch: Any) -> Any:
    if not isinstance(batch, Mapping):
        return batch
    return {key: value[:0] if torch.is_tensor(value) else value for key, value in batch.items()}
