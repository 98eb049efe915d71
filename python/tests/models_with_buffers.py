"""Models whose buffers change in each task. The program's first argument names the one that it trains."""

from __future__ import annotations

import sys
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils.data import TensorDataset

import ata
import ata.torch

CLASSES = 3


class Codebook(nn.Module):
    """Vector quantisation, whose codes follow the inputs (van den Oord et al. 2017, appendix A.1)."""

    def __init__(self, codes: int, width: int) -> None:
        super().__init__()
        self.register_buffer("codes", torch.randn(codes, width))
        self.register_buffer("sizes", torch.ones(codes))
        self.register_buffer("uses", torch.zeros((), dtype=torch.int64))

    def forward(self, inputs: Tensor) -> Tensor:
        chosen = torch.cdist(inputs, self.codes).argmin(1)
        codes = self.codes[chosen]
        if self.training:
            with torch.no_grad():
                belongs = nn.functional.one_hot(chosen, len(self.codes)).float()
                # One buffer is replaced, the others are changed.
                self.sizes = 0.9 * self.sizes + 0.1 * belongs.sum(0)
                self.codes += 0.1 * belongs.T @ (inputs - codes)
                self.uses += 1
        return inputs + (codes - inputs).detach()


class Tied(nn.Module):
    """One weight under two names, and a constant."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.last = nn.Linear(8, 8), nn.Linear(8, 8)
        self.last.weight = self.first.weight
        self.register_buffer("positions", torch.arange(8))

    def forward(self, inputs: Tensor) -> Tensor:
        return self.last(self.first(inputs).tanh() + self.positions / 8)[:, :CLASSES]


class Picture(nn.Module):
    """Eight inputs as an image of 64 by 64."""

    def forward(self, inputs: Tensor) -> Tensor:
        return nn.functional.interpolate(inputs.view(-1, 1, 2, 4), 64).expand(-1, 3, -1, -1)


class Words(nn.Module):
    """A language model that reads the signs of the inputs."""

    def __init__(self) -> None:
        from transformers import GPT2Config, GPT2LMHeadModel

        super().__init__()
        drop = {"resid_pdrop": 0, "embd_pdrop": 0, "attn_pdrop": 0}
        self.model = GPT2LMHeadModel(GPT2Config(vocab_size=11, n_positions=8, n_embd=12, n_layer=2, n_head=2, **drop))

    def forward(self, inputs: Tensor) -> Tensor:
        return self.model((inputs > 0).long()).logits[:, -1, :CLASSES]


def of_torchvision(name: str, **options: Any) -> nn.Module:
    import torchvision

    return nn.Sequential(Picture(), getattr(torchvision.models, name)(num_classes=CLASSES, **options))


def of_timm(name: str) -> nn.Module:
    import timm

    return nn.Sequential(Picture(), timm.create_model(name, num_classes=CLASSES))


def image(*layers: nn.Module) -> nn.Module:
    """A network that sees eight inputs as an image of 2 by 4."""
    return nn.Sequential(nn.Unflatten(1, (1, 2, 4)), *layers, nn.Flatten(), nn.LazyLinear(CLASSES))


MODELS = {
    "norm": lambda: nn.Sequential(nn.Linear(8, 16), nn.BatchNorm1d(16), nn.ReLU(), nn.Linear(16, CLASSES)),
    "cumulative": lambda: nn.Sequential(nn.Linear(8, 16), nn.BatchNorm1d(16, momentum=None), nn.ReLU(), nn.Linear(16, CLASSES)),
    "sync": lambda: nn.Sequential(nn.Linear(8, 16), nn.SyncBatchNorm(16), nn.ReLU(), nn.Linear(16, CLASSES)),
    "instance": lambda: image(nn.Conv2d(1, 4, 3, padding=1), nn.InstanceNorm2d(4, track_running_stats=True), nn.ReLU()),
    "spectral": lambda: nn.Sequential(nn.utils.parametrizations.spectral_norm(nn.Linear(8, 16)), nn.ReLU(), nn.Linear(16, CLASSES)),
    "hooked_spectral": lambda: nn.Sequential(nn.utils.spectral_norm(nn.Linear(8, 16)), nn.ReLU(), nn.Linear(16, CLASSES)),
    "codebook": lambda: nn.Sequential(nn.Linear(8, 4), Codebook(5, 4), nn.Linear(4, CLASSES)),
    "tied": Tied,
    "compiled": lambda: torch.compile(Tied(), backend="eager"),
    "torchvision resnet18": lambda: of_torchvision("resnet18"),
    "torchvision mobilenet_v3_small": lambda: of_torchvision("mobilenet_v3_small", dropout=0),
    "timm resnet10t": lambda: of_timm("resnet10t"),
    "transformers GPT-2": Words,
}


def make(name: str) -> nn.Module:
    torch.manual_seed(0)
    model = MODELS[name]()
    if any(isinstance(parameter, nn.UninitializedParameter) for parameter in model.parameters()):
        model.eval()(torch.zeros(2, 8))
    return model.train()


def data(count: int, seed: int) -> TensorDataset:
    generator = torch.Generator().manual_seed(seed)
    inputs = torch.randn(count, 8, generator=generator)
    return TensorDataset(inputs, inputs[:, :CLASSES].argmax(1))


def problem(name: str) -> ata.torch.Problem:
    return ata.torch.Problem(
        make(name), data(512, seed=1), nn.functional.cross_entropy, evaluate=data(128, seed=2), device="cpu", name="buffers"
    )


if __name__ == "__main__":
    name = sys.argv.pop(1)
    ata.main(problem(name), budget=4, task_batch=16, optimizer="sgd", lr=0.05, iterations=20)
