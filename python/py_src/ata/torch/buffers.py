"""The tensors of a model that a run's vectors hold: trained parameters, and buffers, which a step sets to the mean of what its tasks leave."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor, nn

from ata.problem import Kind
from ata.problem import Tensor as Entry

LARGEST = 2**24
"""Up to here, every integer is a `float32`."""


def entries(model: nn.Module) -> list[tuple[Entry, Tensor]]:
    """The tensors of the vectors: trained parameters in the order of the model, then buffers, those of one type together.

    Raises:
        ValueError: If a buffer can be neither averaged nor counted.
    """
    trained = {key: found for key, found in named(model.named_parameters(remove_duplicate=False)).items() if found[1].requires_grad}
    buffers = named(persistent(model))
    return [
        *(entry(names, "trained", tensor) for names, tensor in trained.values()),
        *(entry(names, kind(names[0], tensor), tensor) for names, tensor in sorted(buffers.values(), key=lambda found: str(found[1].dtype))),
    ]


def entry(names: list[str], kind: Kind, tensor: Tensor) -> tuple[Entry, Tensor]:
    return Entry(names[0], tuple(tensor.shape), kind, tuple(names[1:])), tensor


def named(tensors: Iterator[tuple[str, Tensor]]) -> dict[int, tuple[list[str], Tensor]]:
    """Each tensor with all of its names, without what `torch.compile` adds to them."""
    found: dict[int, tuple[list[str], Tensor]] = {}
    for name, tensor in tensors:
        names = found.setdefault(id(tensor), ([], tensor))[0]
        if (plain := name.replace("_orig_mod.", "")) not in names:
            names.append(plain)
    return found


def persistent(model: nn.Module) -> Iterator[tuple[str, Tensor]]:
    """The buffers that belong to the model's state, by name."""
    for prefix, module in model.named_modules(remove_duplicate=False):
        for key, buffer in module._buffers.items():  # noqa: SLF001
            if buffer is not None and key not in module._non_persistent_buffers_set:  # noqa: SLF001
                yield f"{prefix}.{key}" if prefix else key, buffer


def kind(name: str, buffer: Tensor) -> Kind:
    if buffer.is_floating_point():
        return "averaged"
    if buffer.is_complex() or (buffer.numel() > 0 and buffer.to(torch.float64).abs().max() > LARGEST):
        raise ValueError(
            f"buffer {name} has complex numbers, or integers above 2^24, which cannot be averaged: if it never changes, register it with "
            "persistent=False"
        )
    return "counter"


class Buffers:
    """The buffers of a computation's model, as parts of one vector for each type.

    Args:
        model: The model, whose buffers become views of these vectors.
        values: The part of the parameters that is theirs.
        changes: Where `end` leaves their values before a task minus those after it.
    """

    def __init__(self, model: nn.Module, values: Tensor, changes: Tensor) -> None:
        self.values, self.changes = values, changes
        self.by_type: list[Tensor] = []
        tensors = [tensor for found, tensor in entries(model) if found.kind != "trained"]
        for dtype in dict.fromkeys(tensor.dtype for tensor in tensors):
            of_type = [tensor for tensor in tensors if tensor.dtype == dtype]
            sizes = [tensor.numel() for tensor in of_type]
            self.by_type.append(torch.empty(sum(sizes), dtype=dtype, device=values.device))
            for tensor, view in zip(of_type, self.by_type[-1].split(sizes), strict=True):
                tensor.data = view.view(tensor.shape)
        self.sizes = [vector.numel() for vector in self.by_type]
        held = set(map(id, tensors))
        self.held: list[tuple[dict[str, Tensor | None], str, Tensor]] = []
        self.unsent: list[tuple[str, dict[str, Any], str]] = []
        for prefix, module in model.named_modules():
            for key, buffer in module._buffers.items():  # noqa: SLF001
                if id(buffer) in held:
                    self.held.append((module._buffers, key, buffer))  # noqa: SLF001
                elif buffer is not None:
                    self.unsent.append((f"{prefix}.{key}", module._buffers, key))  # noqa: SLF001
            for key, parameter in module._parameters.items():  # noqa: SLF001
                if parameter is not None and not parameter.requires_grad:
                    self.unsent.append((f"{prefix}.{key}", module._parameters, key))  # noqa: SLF001

    @torch.no_grad()
    def begin(self) -> None:
        """Gives the buffers the values of the vector."""
        for vector, values in zip(self.by_type, self.values.split(self.sizes), strict=True):
            vector.copy_(values)
        # A task that ran out of memory may have replaced them.
        for holder, key, buffer in self.held:
            holder[key] = buffer
        tensors = [holder[key] for _, holder, key in self.unsent]
        self.before = [(tensor, getattr(tensor, "_version", 0)) for tensor in tensors]

    @torch.no_grad()
    def end(self) -> None:
        """Leaves what a task has changed in `changes`.

        Raises:
            RuntimeError: If the task changed a tensor that no vector holds, so that later tasks would depend on it.
        """
        for holder, key, buffer in self.held:
            if (current := holder[key]) is not buffer:
                buffer.copy_(current)  # type: ignore[arg-type]
                holder[key] = buffer
        for (name, holder, key), (tensor, version) in zip(self.unsent, self.before, strict=True):
            if is_changed(tensor, version, holder[key]):
                raise RuntimeError(
                    f"a task changed {name.removeprefix('.')}, on which later tasks would depend: make it a persistent buffer, which is "
                    "averaged over the tasks, or leave it as it is"
                )
        parts = zip(self.by_type, self.values.split(self.sizes), self.changes.split(self.sizes), strict=True)
        for vector, values, changes in parts:
            torch.sub(values, vector, out=changes)


def is_changed(before: Tensor | None, version: int, after: Tensor | None) -> bool:
    """Whether a task has changed a tensor, rather than filled or enlarged a cache."""
    if before is None or after is None:
        return False
    if before is after:
        return after._version != version  # noqa: SLF001
    return before.shape == after.shape and not torch.equal(before, after)


class BatchNorm(nn.modules.batchnorm._BatchNorm):  # noqa: SLF001
    """Batch normalisation of inputs with any number of dimensions, in place of `SyncBatchNorm`."""

    def _check_input_dim(self, input: Tensor) -> None:  # noqa: A002
        pass


def synchronised(model: nn.Module) -> list[nn.SyncBatchNorm]:
    """The modules that would normalise by the samples of all processes."""
    return [module for module in model.modules() if isinstance(module, nn.SyncBatchNorm)]


def normalises_batches(model: nn.Module) -> bool:
    """Whether outputs for a sample depend on the other samples of its task."""
    return any(isinstance(module, nn.modules.batchnorm._BatchNorm) and module.training for module in model.modules())  # noqa: SLF001
