"""Uneven steps with the Trainer of Hugging Face transformers."""

from __future__ import annotations

import copy
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch import nn
from torch.utils.data import Sampler

from ata.torch.sampler import ShareSampler
from ata.torch.trainer_loader import check, order_of, samples_of, step_loader, without_samples
from ata.torch.step import Step
from ata.torch.uneven import Uneven

# A trainer derives from Trainer as well, so that nothing here has to import transformers.
Base: Any = object

SPEEDS = "uneven.json"


class UnevenTrainer(Base):  # type: ignore[misc]
    """Makes a `transformers.Trainer` divide the samples of each step among the ranks of `torchrun`, as `Uneven` does::

        class MyTrainer(ata.torch.UnevenTrainer, Trainer):
            pass

    It ends with the parameters of one process. A step has `per_device_train_batch_size` x `gradient_accumulation_steps`
    x ranks samples; a rank computes its share in micro-batches of at most `per_device_train_batch_size`. Checkpoints
    contain the learned speeds. In one process, it is the plain Trainer.

    A class with a `training_step`, `get_train_dataloader` or `get_batch_samples` of its own must come after
    `UnevenTrainer`: `class MyTrainer(ata.torch.UnevenTrainer, YourTrainer)`.

    Args:
        uneven_kwargs: Options of `Uneven`, such as `{"policy": "uta"}`.

    Attributes:
        uneven: The `Uneven` of the training; None before its first step, and in one process.
    """

    args: Any
    model_wrapped: nn.Module

    def __init__(self, *arguments: Any, uneven_kwargs: dict[str, Any] | None = None, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self.uneven: Uneven | None = None
        self._uneven_kwargs = uneven_kwargs or {}
        self._is_divided = self.args.world_size > 1
        self._accumulation = 1
        self._order: Sampler[int] | None = None
        self._shares: ShareSampler | None = None
        self._checkpoint: str | None = None
        self._batches: Iterator[Any] | None = None
        if self._is_divided:
            self._accumulation = self.args.gradient_accumulation_steps
            # The caller's stay as they are. Uneven accumulates, and weighs each micro-batch by its number of items.
            self.args = copy.copy(self.args)
            self.args.gradient_accumulation_steps = 1
            self.args.average_tokens_across_devices = False

    def get_total_train_batch_size(self, args: Any) -> int:
        return int(super().get_total_train_batch_size(args)) * self._accumulation

    def get_train_dataloader(self) -> Any:
        if not self._is_divided:
            return super().get_train_dataloader()
        check(self)
        even = super().get_train_dataloader()
        self.uneven = self._shares = self._checkpoint = None
        self._order = order_of(even)
        return step_loader(self, even, self._order)

    def divided(self) -> ShareSampler:
        """The sampler of the `Uneven`, which can be created only after Trainer has wrapped the model."""
        if self._shares is not None:
            return self._shares
        if self._order is None:
            raise RuntimeError(
                "the loader is not that of UnevenTrainer: a get_train_dataloader of your own must be in a class that "
                "comes after it: class MyTrainer(UnevenTrainer, YourTrainer)"
            )
        is_counted = self.model_accepts_loss_kwargs or self.compute_loss_func is not None
        options = {"weight": self._weight if is_counted else None} | self._uneven_kwargs
        if "unit" not in options:
            options.setdefault("micro_batch", self._train_batch_size)
        self.uneven = Uneven(self.model_wrapped, self.get_total_train_batch_size(self.args), **options)
        if self._checkpoint and (speeds := Path(self._checkpoint, SPEEDS)).exists():
            self.uneven.load_state_dict(json.loads(speeds.read_text()))
        self._shares = self.uneven.sampler(self._order, drop_last=self.args.dataloader_drop_last)
        return self._shares

    def get_batch_samples(self, epoch_iterator: Iterator[Any], num_batches: int, device: torch.device) -> Any:
        if not self._is_divided:
            return super().get_batch_samples(epoch_iterator, num_batches, device)
        self.divided()
        assert self.uneven is not None
        if epoch_iterator is not self._batches:
            # After an evaluation, in whose mode Uneven would accept batch normalisation.
            self.model_wrapped.train()
            self._batches = epoch_iterator
            self._steps = self.uneven.steps(self._kept(epoch_iterator))
        self._step: Step | None = next(self._steps, None)
        if self._step is None:
            return [], None
        # Trainer counts the tokens of what it gets here.
        return [self._batch if self._step.samples else without_samples(self._batch)], None

    def _kept(self, batches: Iterator[Any]) -> Iterator[Any]:
        for self._batch in batches:
            yield self._batch

    def training_step(self, model: nn.Module, inputs: Any, num_items_in_batch: Any = None) -> Any:
        """Computes this rank's part of a step, and returns the loss of the whole step."""
        if not self._is_divided:
            return super().training_step(model, inputs, num_items_in_batch)
        assert self.uneven is not None and self._step is not None
        uneven, backward = self.uneven, self.accelerator.backward
        # Schedule-free optimizers have modes, also on a rank without samples.
        if callable(getattr(self.optimizer, "train", None)):
            self.optimizer.train()
        loss_and_weight = torch.zeros(2, device=self.args.device)
        # Not in compute_loss, which many trainers have of their own.
        self.accelerator.backward = lambda loss, **options: backward(uneven.weigh(loss), **options)
        try:
            for part in self._step:
                items = self._items(part)
                loss = super().training_step(model, part, None if items is None else items.to(self.args.device))
                weight = float(self._weight(part)) if self._step.samples else 0.0
                # The mean of nothing is not a number.
                if weight > 0:
                    loss_and_weight += torch.stack([loss.float() * weight, loss_and_weight.new_tensor(weight)])
        finally:
            self.accelerator.backward = backward
        dist.all_reduce(loss_and_weight)
        return loss_and_weight[0] / loss_and_weight[1]

    def _items(self, part: Any) -> torch.Tensor | None:
        """The labels of a part as Trainer counts them, of which its loss is the mean; None if it does not."""
        # On a device, the number would have to be waited for.
        items: torch.Tensor | None = super().get_batch_samples(iter([part]), 1, torch.device("cpu"))[1]
        return items

    def _weight(self, part: Any) -> Any:
        if "weight" in self._uneven_kwargs:
            return self._uneven_kwargs["weight"](part)
        items = self._items(part)
        return samples_of(part) if items is None else items

    def _save_optimizer_and_scheduler(self, output_dir: str) -> None:
        super()._save_optimizer_and_scheduler(output_dir)
        if self.uneven is not None and self.is_world_process_zero():
            Path(output_dir, SPEEDS).write_text(json.dumps(self.uneven.state_dict()))

    def _load_optimizer_and_scheduler(self, checkpoint: str | None) -> None:
        super()._load_optimizer_and_scheduler(checkpoint)
        self._checkpoint = checkpoint
