"""The sum of tasks' gradients on a device, in the integers of ata's exact sums, so that it is copied once for several tasks."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from ata.problem import Floats, Integers

CHUNK = 2**22
"""How many values are converted at once, which bounds the memory for it."""


class Sums:
    """A sum of gradients: for each value, the sum of its nearest integers, ties to even, after multiplication by a factor.

    Args:
        gradient: Where gradients are.
        sizes: The sizes of its tensors.
    """

    def __init__(self, gradient: Tensor, sizes: list[int]) -> None:
        self.gradient = gradient
        self.tensors = [tensor for tensor in gradient.split(sizes) if tensor.numel() > 0]
        self.has_values = torch.tensor(sizes) > 0
        self.values = torch.zeros(len(gradient), dtype=torch.int32, device=gradient.device)
        self.host_values = torch.zeros(len(gradient), dtype=torch.int32, pin_memory=gradient.is_cuda)
        self.host_maxima = torch.zeros(len(sizes))

    def begin(self, factors: Floats, counts: Integers, counted: int) -> None:
        """Begins a sum.

        Args:
            factors: The factors, each for so many consecutive values.
            counts: These numbers of values.
            counted: For so many values, those that become 0 are counted.
        """
        device = self.gradient.device
        each, repeats = (torch.from_numpy(array).to(device) for array in (factors, counts))
        self.factors = each.repeat_interleave(repeats, output_size=len(self.gradient))
        self.values.zero_()
        self.maxima = torch.zeros(len(self.tensors), device=device)
        self.counts = torch.zeros(2, dtype=torch.int64, device=device)
        self.counted = counted

    @torch.no_grad()
    def add(self, limit: float, tasks: int) -> bool:
        """Adds the gradient, which is the mean of these tasks, so many times. Integers are at most `limit`.

        Returns:
            Whether it is finite. Otherwise nothing is added.
        """
        maxima = torch.stack(torch._foreach_norm(self.tensors, float("inf")))  # noqa: SLF001
        if not torch.isfinite(maxima.max()).item():
            return False
        self.maxima = torch.maximum(self.maxima, maxima)
        for first in range(0, len(self.gradient), CHUNK):
            part = slice(first, first + CHUNK)
            gradient = self.gradient[part] if tasks == 1 else self.gradient[part] * tasks
            scaled = gradient * self.factors[part]
            sizes = scaled.abs()
            counted = max(self.counted - first, 0)
            is_lost = (gradient[:counted] != 0) & (sizes[:counted] <= 0.5)
            self.counts += torch.stack([(sizes > limit).count_nonzero(), is_lost.count_nonzero()])
            # Numbers of this type round to even, and are integers from 2^23 on.
            self.values[part] += scaled.clamp_(-limit, limit).round_().to(torch.int32)
        return True

    def end(self) -> tuple[np.ndarray, Floats, int, int]:
        """The sum, the largest magnitudes of a task in each tensor, and how many values were out of range or became 0."""
        self.host_values.copy_(self.values)
        self.host_maxima[self.has_values] = self.maxima.cpu()
        clamped, lost = self.counts.tolist()
        return self.host_values.numpy(), self.host_maxima.numpy(), clamped, lost
