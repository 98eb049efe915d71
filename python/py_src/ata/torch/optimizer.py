"""The optimizers of a program, which step a copy of the model on the head node."""

from __future__ import annotations

import copy
import io
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Protocol

import torch
from torch import nn

from ata.torch.batches import seed
from ata.torch.vectors import Vectors

if TYPE_CHECKING:
    from ata.torch.problem import Problem


class Stepped(Protocol):
    """An optimizer, a scheduler of learning rates, or whatever else has to do something in each step. If it has `state_dict` and
    `load_state_dict`, these are in checkpoints."""

    def step(self) -> Any:
        """Called once in each step."""


Make = Callable[[nn.Module], Stepped | Sequence[Stepped]]


class HeadOptimizer:
    """Takes the steps of a run.

    Args:
        problem: Its problem, whose model is copied.
        make: From this copy to what is stepped.
    """

    def __init__(self, problem: Problem, make: Make) -> None:
        model = copy.deepcopy(problem.model).cpu()
        self.vectors = Vectors(model, problem.tensors(), torch.device("cpu"))
        self.parameters, self.gradient = self.vectors.values.numpy(), self.vectors.gradients.numpy()
        made = make(model)
        self.stepped = list(made) if isinstance(made, Sequence) else [made]
        for stepped in self.stepped:
            if not callable(getattr(stepped, "step", None)):
                raise TypeError(f"optimizer: {type(stepped).__name__} has no step()")

    def step(self, iteration: int, factor: float, used: list[bool] | None) -> float:
        """As `ata.problem.OwnOptimizer`."""
        seed((0, iteration, 0), "step")
        self.vectors.buffers.begin()
        for at, ((_, parameter), gradient) in enumerate(zip(self.vectors.trained, self.vectors.views, strict=True)):
            parameter.grad = gradient if used is None or used[at] else None
        pointers = [parameter.data_ptr() for _, parameter in self.vectors.trained]
        groups = [group for stepped in self.stepped for group in getattr(stepped, "param_groups", [])]
        rate = float(groups[0]["lr"]) * factor if groups else 0.0
        for stepped in self.stepped:
            step_slower(stepped, factor)
        for (name, parameter), pointer in zip(self.vectors.trained, pointers, strict=True):
            if parameter.data_ptr() != pointer:
                raise RuntimeError(f"the optimizer replaced the data of {name}: expected a change in place")
        return rate

    def state(self) -> bytes:
        """As `ata.problem.OwnOptimizer`."""
        file = io.BytesIO()
        torch.save([stepped.state_dict() if hasattr(stepped, "state_dict") else None for stepped in self.stepped], file)
        return file.getvalue()

    def restore(self, state: bytes) -> None:
        """As `ata.problem.OwnOptimizer`."""
        states = torch.load(io.BytesIO(state), weights_only=True)
        if len(states) != len(self.stepped):
            raise ValueError(f"optimizer: the checkpoint has the states of {len(states)} objects, and the program makes {len(self.stepped)}")
        for stepped, own in zip(self.stepped, states, strict=True):
            if own is not None:
                # One that has a state can also load it.
                stepped.load_state_dict(own)  # type: ignore[attr-defined]


def step_slower(stepped: Stepped, factor: float) -> None:
    """Steps at learning rates that are multiplied by a factor."""
    groups = getattr(stepped, "param_groups", []) if factor != 1 else []
    rates = [group["lr"] for group in groups]
    for group, rate in zip(groups, rates, strict=True):
        group["lr"] = rate * factor
    stepped.step()
    for group, rate in zip(groups, rates, strict=True):
        group["lr"] = rate
