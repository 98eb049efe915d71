"""A VQ-VAE and GANs, whose losses have several parts. The program's first argument names the one that it trains."""

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


class Alternating(Adversaries):
    """A GAN whose networks are trained in turn, by a counter that each iteration advances."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("turn", torch.tensor(0))

    def forward(self, inputs: Tensor) -> Tensor:
        loss = self.losses(inputs)[self.turn.item() % 2]
        if self.training:
            self.turn += 1
        return loss


class Halving:
    """Halves a rate in every fifth step."""

    def __init__(self, optimizer: torch.optim.Optimizer) -> None:
        self.optimizer, self.steps = optimizer, 0

    def step(self) -> None:
        self.steps += 1
        if self.steps % 5 == 0:
            self.optimizer.param_groups[0]["lr"] /= 2

    def state_dict(self) -> dict[str, int]:
        return {"steps": self.steps}

    def load_state_dict(self, state: dict[str, int]) -> None:
        self.steps = state["steps"]


def of_both(model: nn.Module) -> list[Any]:
    """Two optimizers that ata does not have, a scheduler of PyTorch, and another one."""
    generator = torch.optim.NAdam(model.generator.parameters(), lr=0.002)
    discriminator = torch.optim.RMSprop(model.discriminator.parameters(), lr=0.001, momentum=0.5, eps=1e-4)
    return [generator, discriminator, torch.optim.lr_scheduler.OneCycleLR(generator, 0.01, total_steps=30), Halving(discriminator)]


OWN = {"gan-own": of_both, "gan-in-turn": of_both}
"""What the programs step by themselves."""

MODELS: dict[str, tuple[type[nn.Module], dict[str, Any]]] = {
    "vq-vae": (Autoencoder, {"optimizer": "sgd", "lr": 0.05}),
    "gan": (Adversaries, {"optimizer": "adam", "lr": 0.001, "param_groups": f"discriminator.*: lr_factor={FASTER}"}),
    "gan-own": (Adversaries, {}),
    "gan-in-turn": (Alternating, {}),
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
        find_unused_parameters=name == "gan-in-turn",
        optimizer=OWN.get(name),
        device="cpu",
        name=name,
    )
    ata.main(problem, budget=4, task_batch=16, iterations=20, wire="f32-exact", **MODELS[name][1])
