"""A CNN on ata's own cluster: python examples/cnn.py up. With CIFAR-100 (binary version) in ./cifar-100-binary, or random images."""

from pathlib import Path

import numpy as np
import torch
from torch import nn
from torch.utils.data import TensorDataset

import ata
import ata.torch

FOLDER = Path("cifar-100-binary")


def images(split: str) -> TensorDataset:
    """Images, and the numbers of their classes."""
    if FOLDER.exists():
        records = np.fromfile(FOLDER / f"{split}.bin", np.uint8).reshape(-1, 2 + 3072)
    else:
        records = np.random.default_rng(1).integers(0, 100, (2000, 2 + 3072), np.uint8)
    pixels = torch.from_numpy(records[:, 2:].reshape(-1, 3, 32, 32).copy()).float().sub_(127).div_(64)
    return TensorDataset(pixels, torch.from_numpy(records[:, 1].astype(np.int64)))


def network() -> nn.Module:
    """Three convolutions and two dense layers."""
    layers = []
    for before, after in [(3, 32), (32, 64), (64, 128)]:
        layers += [nn.Conv2d(before, after, 3, padding=1), nn.GroupNorm(8, after), nn.ReLU(), nn.MaxPool2d(2)]
    return nn.Sequential(*layers, nn.Flatten(), nn.Linear(2048, 256), nn.ReLU(), nn.Linear(256, 100))


if __name__ == "__main__":
    torch.manual_seed(0)
    classes = [str(label) for label in range(100)]
    loss = nn.functional.cross_entropy
    problem = ata.torch.Problem(network(), images("train"), loss, evaluate=images("test"), classes=classes, name="cnn32")
    ata.main(problem, budget=32, task_batch=16, optimizer="adamw", lr=1e-3, lr_schedule="cosine", iterations=500)
