"""What computes and averages gradients: PyTorch's DistributedDataParallel, or its fully_shard."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Any, Protocol

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.fsdp import FSDPModule
from torch.nn.parallel import DistributedDataParallel

from ata.torch.clock import Clock
from ata.torch.sampler import divided


class Parallel(Protocol):
    """The gradients of a model's ranks."""

    @property
    def group(self) -> dist.ProcessGroup:
        """The ranks."""

    # Whether the time of a micro-batch includes its backward pass.
    is_timed_backward: bool
    # Whether all ranks have to compute equally many micro-batches.
    computes_equally_many: bool

    def micro_batches(self, shares: list[int], mine: int, most: int, least_most: int) -> list[int]:
        """The sizes of a rank's micro-batches: at most `most`, of which the smallest of any rank is `least_most`."""

    def accumulating(self, *, is_last: bool) -> AbstractContextManager[object]:
        """The context of a micro-batch: gradients are averaged over the ranks in the last one only."""

    def join_without_samples(self) -> None:
        """A rank without micro-batches takes part in the average."""


def parallel_of(model: nn.Module, clock: Clock) -> Parallel:
    """How a model that is data parallel averages."""
    if isinstance(model, DistributedDataParallel):
        return Replicated(model)
    if isinstance(model, FSDPModule):
        return Sharded(model, clock)
    raise TypeError(
        f"a model of type {type(model).__name__} is not data parallel: expected DistributedDataParallel(model), or a module "
        "after torch.distributed.fsdp.fully_shard(model)"
    )


class Replicated:
    """DistributedDataParallel: only the last backward pass of a rank communicates."""

    is_timed_backward = True
    computes_equally_many = False

    def __init__(self, model: DistributedDataParallel) -> None:
        if model.static_graph:
            raise ValueError(
                "static_graph=True: with it, DistributedDataParallel can neither compute micro-batches (pytorch#143580) nor a step in "
                "which this rank has no samples; create it without"
            )
        self.group = model.process_group
        self._model = model
        self._sparse = {
            layer.weight
            for layer in model.modules()
            if isinstance(layer, (nn.Embedding, nn.EmbeddingBag)) and layer.sparse
        }
        # One that samples used, if they may not use all.
        self._used = next(model.parameters())

    def micro_batches(self, shares: list[int], mine: int, most: int, least_most: int) -> list[int]:
        return divided(mine, -(-mine // most)) if mine else []

    def accumulating(self, *, is_last: bool) -> AbstractContextManager[object]:
        if not is_last:
            return self._model.no_sync()
        return self._using() if self._model.find_unused_parameters else nullcontext()

    @contextmanager
    def _using(self) -> Iterator[None]:
        yield
        self._used = next((each for each in self._model.parameters() if each.grad is not None), self._used)

    def join_without_samples(self) -> None:
        """A forward pass that depends on no sample, and on each parameter by nothing: its gradients are exactly zero."""
        module = self._model.module
        before = module.__dict__.get("forward")
        parameters = [parameter for parameter in module.parameters() if parameter.requires_grad]
        if self._model.find_unused_parameters:
            # What no rank's samples used must not look used; for the rest, that of other ranks counts.
            parameters = [self._used]

        def nothing(parameter: nn.Parameter) -> torch.Tensor:
            if parameter not in self._sparse:
                return parameter.reshape(-1)[:0].sum()
            none = torch.empty(0, dtype=torch.long, device=parameter.device)
            return nn.functional.embedding(none, parameter, sparse=True).sum()

        def forward() -> torch.Tensor:
            return torch.stack([nothing(parameter) for parameter in parameters]).sum()

        module.forward = forward
        try:
            self._model().backward()
        finally:
            # Libraries replace it as well.
            if before is None:
                del module.forward
            else:
                module.forward = before


# A backward pass takes about twice as long as its forward pass, on any device.
PASSES = 3.0


class Sharded:
    """A module after fully_shard. Its ranks gather parameters in each pass, so that all compute equally many micro-batches, some of
    which may hold one sample that does not count.

    They wait for each other at every gathering, in backward passes in the midst of it. So only the forward pass is timed, from one
    gathering to the next. Shares depend on the ratios of times, which are the same.
    """

    is_timed_backward = False
    computes_equally_many = True

    def __init__(self, model: FSDPModule, clock: Clock) -> None:
        assert isinstance(model, nn.Module), "fully_shard makes a module one of both"
        parameter: Any = next(model.parameters())
        mesh = parameter.device_mesh
        if mesh.ndim != 1:
            raise ValueError("fully_shard over a mesh of one dimension is supported, not of several")
        self.group = mesh.get_group()
        self._model: FSDPModule = model
        self._clock = clock
        self._is_forward = False
        clock.factor = PASSES
        for module in model.modules():
            if isinstance(module, FSDPModule):
                # Around the hook that gathers.
                module.register_forward_pre_hook(self._gathers, prepend=True)
                module.register_forward_pre_hook(self._gathered)
        model.register_forward_pre_hook(self._begins, prepend=True)
        model.register_forward_hook(self._ends)

    def micro_batches(self, shares: list[int], mine: int, most: int, least_most: int) -> list[int]:
        return divided(mine, -(-max(shares) // least_most))

    @contextmanager
    def accumulating(self, *, is_last: bool) -> Iterator[None]:
        self._model.set_requires_gradient_sync(is_last)
        self._model.set_is_last_backward(is_last)
        yield

    def join_without_samples(self) -> None:
        raise AssertionError("every rank has micro-batches")

    def _begins(self, module: nn.Module, inputs: object) -> None:
        self._is_forward = True

    def _gathers(self, module: nn.Module, inputs: object) -> None:
        # Not when activations are computed again, in a backward pass.
        if self._is_forward:
            self._clock.pause()

    def _gathered(self, module: nn.Module, inputs: object) -> None:
        if self._is_forward:
            self._clock.resume()

    def _ends(self, module: nn.Module, inputs: object, output: object) -> None:
        self._is_forward = False
        self._clock.end()
