"""A PyTorch model on ata's own cluster. On this machine: python examples/spirals.py up --workers 2 --iterations 100
On several: `python spirals.py coordinator --listen 0.0.0.0:7070`, and on the others the line that it prints, with `python spirals.py`."""

import torch
from torch import nn
from torch.utils.data import TensorDataset

import ata
import ata.torch


def spirals(count: int, seed: int) -> TensorDataset:
    """Points of three arms, and the arm that each belongs to."""
    random = torch.Generator().manual_seed(seed)
    arm, radius = torch.randint(3, (count,), generator=random), torch.rand(count, generator=random)
    angle = 4 * radius + arm * 2 * torch.pi / 3 + 0.2 * torch.randn(count, generator=random)
    return TensorDataset(torch.stack([radius * angle.cos(), radius * angle.sin()], 1), arm)


if __name__ == "__main__":
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(2, 64), nn.ReLU(), nn.Dropout(0.1), nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 3))
    problem = ata.torch.Problem(
        model,
        spirals(8192, seed=1),
        nn.functional.cross_entropy,
        evaluate=spirals(1024, seed=2),
        classes=["first", "second", "third"],
    )
    ata.main(problem, budget=16, task_batch=16, optimizer="adamw", lr=1e-2)
