"""A VQ-VAE and a GAN, whose losses have several parts. The program's first argument names the one that it trains."""

from __future__ import annotations

import sys
from typing import Any

import torch
from models_with_buffers import Codebook, data
from torch import Tensor, nn
from torch.func import functional_call

import ata
import ata.torch

FASTER = 4
"""How much faster the discriminator learns than the generator."""


class Autoencoder(nn.Module):
    """A VQ-VAE (van den Oord et al. 2017) whose codes follow the encoder's outputs. Its output is its loss."""

    def __init__(self) -> None:
        super().__init__()
        self.encoder, self.codebook, self.decoder = nn.Linear(8, 4), Codebook(5, 4), nn.Linear(4, 8)

    def forward(self, inputs: Tensor) -> Tensor:
        encoded = self.encoder(inputs)
        quantised = self.codebook(encoded)
        commitment = nn.functional.mse_loss(encoded, quantised.detach())
        return nn.functional.mse_loss(self.decoder(quantised), inputs) + 0.25 * commitment


class Adversaries(nn.Module):
    """A GAN (Goodfellow et al. 2014). Its output is the sum of both losses, neither of which reaches the other's parameters."""

    def __init__(self) -> None:
        super().__init__()
        self.generator = nn.Sequential(nn.Linear(4, 16), nn.ReLU(), nn.Linear(16, 8))
        self.discriminator = nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 1))

    def losses(self, inputs: Tensor) -> tuple[Tensor, Tensor]:
        made = self.generator(torch.randn(len(inputs), 4))
        truth = nn.functional.binary_cross_entropy_with_logits
        real, fake = self.discriminator(inputs), self.discriminator(made.detach())
        fixed = {name: parameter.detach() for name, parameter in self.discriminator.named_parameters()}
        judged = functional_call(self.discriminator, fixed, made)
        return truth(judged, torch.ones_like(judged)), truth(real, torch.ones_like(real)) + truth(fake, torch.zeros_like(fake))

    def forward(self, inputs: Tensor) -> Tensor:
        return sum(self.losses(inputs))


MODELS: dict[str, tuple[type[nn.Module], dict[str, Any]]] = {
    "vq-vae": (Autoencoder, {"optimizer": "sgd", "lr": 0.05}),
    "gan": (Adversaries, {"optimizer": "adam", "lr": 0.001, "param_groups": f"discriminator.*: lr_factor={FASTER}"}),
}


def make(name: str) -> nn.Module:
    torch.manual_seed(0)
    return MODELS[name][0]()


if __name__ == "__main__":
    name = sys.argv.pop(1)
    problem = ata.torch.Problem(
        make(name),
        data(512, seed=1),
        lambda loss, _: loss,
        forward=lambda model, batch: (model(batch[0]), batch[1]),
        evaluate=data(128, seed=2),
        device="cpu",
        name=name,
    )
    ata.main(problem, budget=4, task_batch=16, iterations=20, wire="f32-exact", **MODELS[name][1])
