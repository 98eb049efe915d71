"""Units of a step: samples that are normalised together, whichever rank computes them."""

from __future__ import annotations

from collections.abc import Sequence

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.modules.batchnorm import _BatchNorm, _NormBase
from torch.nn.parallel import DistributedDataParallel


# What a loop of one's own can do about batch normalisation.
UNIT = "pass Uneven(unit=16), the number of samples that are normalised together"


def check_normalisation(models: Sequence[nn.Module], unit: int | None, remedy: str = UNIT) -> None:
    """Refuses layers whose result depends on how a step's samples are divided."""
    bare = [model.module if isinstance(model, DistributedDataParallel) else model for model in models]
    for name, layer in (found for model in bare for found in model.named_modules()):
        # Instance normalisation may track means as well.
        learns = isinstance(layer, _BatchNorm) or (isinstance(layer, _NormBase) and layer.track_running_stats)
        if not learns or not layer.training:
            continue
        kind = type(layer).__name__
        if isinstance(layer, nn.SyncBatchNorm):
            raise ValueError(
                f"'{name}' is a {kind}, in which ranks wait for each other, but they compute unlike numbers of batches: use "
                "BatchNorm with Uneven(unit=16)"
            )
        if unit is None:
            raise ValueError(
                f"'{name}' is a {kind}, whose result would depend on the shares: {remedy}, or use group or layer normalisation, or its eval()"
            )


class Buffers:
    """The buffers of a model, such as running means. Each unit begins with those of the step, which then change by the mean of what all
    units changed."""

    def __init__(self, models: Sequence[nn.Module]) -> None:
        self._all = []
        for model in models:
            assert isinstance(model, DistributedDataParallel)
            # Otherwise all ranks would get those of rank 0 before each forward pass.
            model.broadcast_buffers = False
            self._group = model.process_group
            self._all += [
                each for each in model.module.buffers() if each.dtype is not torch.bool and not each.is_complex()
            ]
        self._begun: list[torch.Tensor] = []
        self._changes: list[torch.Tensor] = []

    def begin(self) -> None:
        """A step begins."""
        self._begun = [buffer.clone() for buffer in self._all]
        self._changes = [torch.zeros_like(buffer, dtype=torch.float64) for buffer in self._all]

    @torch.no_grad()
    def computed(self, *, counts: bool) -> None:
        """A unit was computed."""
        for buffer, begun, change in zip(self._all, self._begun, self._changes, strict=True):
            if counts:
                change += buffer.double() - begun.double()
            buffer.copy_(begun)

    @torch.no_grad()
    def end(self, units: int) -> None:
        """The step has ended, in which all ranks together computed so many units. All ranks have to call it."""
        if not self._all:
            return
        changes = torch.cat([change.flatten() for change in self._changes])
        dist.all_reduce(changes, group=self._group)
        for buffer, change in zip(self._all, changes.split([buffer.numel() for buffer in self._all]), strict=True):
            mean = (change / units).view_as(buffer)
            buffer.copy_(
                buffer.double() + mean if buffer.is_floating_point() else buffer + mean.round().to(buffer.dtype)
            )
