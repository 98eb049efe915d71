"""Uneven steps with Lightning's Trainer."""

from __future__ import annotations

from collections import deque
from collections.abc import Sized
from typing import Any

import torch
from torch.utils.data import Sampler

try:
    from lightning.pytorch import Callback, LightningModule, Trainer
except ImportError as error:
    raise ImportError("ata.torch.lightning needs Lightning: pip install lightning") from error

from ata.torch.agreement import Agreement
from ata.torch.clock import Clock
from ata.torch.cuda_clock import CudaClock
from ata.torch.sampler import Plan, ShareSampler, divided
from ata.torch.units import check_normalisation
from ata.torch.weight import weigh_gradient


class UnevenCallback(Callback):
    """Does what `ata.torch.Uneven` does, for Lightning with the strategy `ddp`.

    Each rank computes its share as one batch, or as so many as the Trainer's `accumulate_grad_batches`. A rank whose share is 0 computes
    one sample, which does not count::

        uneven = UnevenCallback(budget=368)
        loader = DataLoader(dataset, batch_sampler=uneven.sampler(dataset))
        trainer = Trainer(strategy="ddp", callbacks=[uneven], use_distributed_sampler=False)
        trainer.fit(module, loader)

    `training_step` must return a mean over the samples of its batch, and the module must optimize automatically. The arguments
    are those of `ata.torch.Uneven`, of which `budget` is for one step of the optimizer. No batch of this rank has more than
    `micro_batch` samples: its share is `micro_batch * accumulate_grad_batches` at most.
    """

    def __init__(self, budget: int, *, micro_batch: int | None = None, policy: str = "ata-auto", seed: int = 0) -> None:
        if micro_batch is not None and micro_batch < 1:
            raise ValueError(f"micro_batch={micro_batch}: expected at least 1")
        self._budget = budget
        self._micro_batch = micro_batch
        self._parts = 1
        self._options: dict[str, Any] = {"budget": budget, "policy": policy, "seed": seed}
        self._clock = Clock()
        self._agreement: Agreement | None = None
        self._plans: deque[Plan] = deque()
        self._plan: Plan | None = None
        # The samples of the batches of this step that are not computed yet.
        self._sizes: list[int] = []

    def sampler(
        self, samples: Sized | int | Sampler[int], *, shuffle: bool = True, seed: int = 0, drop_last: bool = False
    ) -> ShareSampler:
        """As `Uneven.sampler`."""
        options: dict[str, Any] = {"shuffle": shuffle, "seed": seed, "drop_last": drop_last}
        return ShareSampler(self._agreed, self._plans, samples, self._budget, **options, parts=lambda: self._parts)

    def _agreed(self) -> Agreement:
        if self._agreement is None:
            raise RuntimeError("the callback is not that of the Trainer that uses its sampler")
        return self._agreement

    @property
    def shares(self) -> list[int]:
        """The samples of each rank in the current step; empty before the first."""
        return self._plan.shares if self._plan else []

    def on_fit_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        self._parts = trainer.accumulate_grad_batches
        if self._agreement is None:
            self._clock = CudaClock() if pl_module.device.type == "cuda" else Clock()
            most = self._micro_batch * self._parts if self._micro_batch else None
            self._agreement = Agreement(None, self._clock, **self._options, most=most)

    def on_train_epoch_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        check_normalisation([pl_module], None, "use ata.torch.Uneven(unit=16) in a loop of your own")
        self._clock.load()

    def on_train_batch_start(self, trainer: Trainer, pl_module: LightningModule, batch: Any, batch_idx: int) -> None:
        if batch_idx % self._parts:
            return
        if not self._plans:
            raise RuntimeError("the loader does not use the callback's sampler(...) as its batch_sampler")
        self._plan = self._plans.popleft()
        self._sizes = divided(self._plan.mine, self._parts)
        self._clock.loaded()
        self._clock.begin()

    def on_before_backward(self, trainer: Trainer, pl_module: LightningModule, loss: torch.Tensor) -> None:
        plan = self._plan
        assert plan is not None
        # Lightning has divided the loss by the number of batches.
        of_mean = self._parts * len(plan.shares) / plan.size
        weigh_gradient(loss, self._sizes[0] * of_mean, self._clock.end, self._clock.synced)

    def on_train_batch_end(
        self, trainer: Trainer, pl_module: LightningModule, outputs: Any, batch: Any, batch_idx: int
    ) -> None:
        self._sizes.pop(0)
        if self._sizes:
            return
        assert self._plan is not None
        self._plan.done()
        self._clock.ended(self._plan.mine)
        self._agreed().report()
        self._clock.load()

    def on_fit_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        self._agreed().collect()

    def state_dict(self) -> dict[str, str]:
        """As `Uneven.state_dict`, for the Trainer's checkpoints."""
        return self._agreement.scheduler.state_dict() if self._agreement else {}

    def load_state_dict(self, state_dict: dict[str, str]) -> None:
        self._agreed().scheduler.load_state_dict(state_dict)
