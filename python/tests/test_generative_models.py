"""A VQ-VAE, and GANs with an optimizer for each of their networks, against one process of PyTorch."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch")

from contract_order import permutation  # noqa: E402
from generative_models import FASTER, MODELS, OWN, make  # noqa: E402
from models_with_buffers import data  # noqa: E402
from processes import ended, started, tensors  # noqa: E402
from torch import nn  # noqa: E402

from ata.torch.batches import seed  # noqa: E402

SCRIPT = str(Path(__file__).with_name("generative_models.py"))
ITERATIONS, SEED = 20, 1


def up(name: str, *arguments: str, folder: Path) -> str:
    flags = ["--json", "--dashboard", "off", "--threads", "1"]
    return json.loads(ended(started(SCRIPT, name, "up", *flags, *arguments, folder=folder)))["parameters_sha256"]


def steppers(model: nn.Module, name: str) -> list[Any]:
    if name in OWN:
        return OWN[name](model)
    if name == "vq-vae":
        return [torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)]
    rates = [(model.generator, 0.001), (model.discriminator, 0.001 * FASTER)]
    return [torch.optim.Adam(network.parameters(), lr=rate) for network, rate in rates]


def alone(name: str) -> nn.Module:
    model = make(name)
    stepped = steppers(model, name)
    inputs, _ = data(512, seed=1).tensors
    order = [sample for epoch in range(1 + ITERATIONS * 64 // 512) for sample in permutation(SEED, epoch, 512)]
    for iteration in range(ITERATIONS):
        before, left = {key: value.clone() for key, value in model.named_buffers()}, []
        model.zero_grad()
        for task in range(4):
            model.load_state_dict(before, strict=False)
            samples = order[(iteration * 4 + task) * 16 :][:16]
            seed((SEED, iteration + 1, task), "compute")
            (model(inputs[samples]) / 4).backward()
            left.append({key: value.double().clone() for key, value in model.named_buffers()})
        model.load_state_dict({key: torch.stack([task[key] for task in left]).mean(0).to(before[key].dtype) for key in before}, strict=False)
        for each in stepped:
            each.step()
    return model


@pytest.mark.parametrize("name", MODELS)
def test_a_run_is_that_of_one_process_whoever_computes(name: str, tmp_path: Path) -> None:
    digests = {up(name, "--workers", "1", "--out", "run", folder=tmp_path), up(name, "--workers", "3", folder=tmp_path)}
    assert len(digests) == 1
    trained = {key: torch.from_numpy(array.copy()) for key, array in tensors(tmp_path / "run" / "model.safetensors").items()}
    fresh = make(name)
    fresh.load_state_dict(trained, strict=True)
    start = make(name).state_dict()
    for key, expected in alone(name).state_dict().items():
        assert torch.allclose(trained[key], expected, rtol=1e-5, atol=1e-6), (key, trained[key], expected)
        assert not torch.equal(trained[key], start[key]), key


@pytest.mark.parametrize("name", OWN)
def test_a_resumed_run_has_the_state_of_its_optimizers(name: str, tmp_path: Path) -> None:
    whole = up(name, folder=tmp_path)
    up(name, "--iterations", "13", "--checkpoint-every", "13", "--out", "run", folder=tmp_path)
    assert up(name, "--resume", "run", "--iterations", "20", folder=tmp_path) == whole


def test_the_compact_format_and_a_late_gradient_suit_optimizers_of_the_program(tmp_path: Path) -> None:
    one, other = (up("gan-own", "--wire", "compact", "--workers", workers, folder=tmp_path) for workers in ("1", "3"))
    assert one == other
    up("gan-own", "--policy", "ringmaster", "--workers", "2", folder=tmp_path)


def test_flags_choose_an_optimizer_of_ata_or_are_refused(tmp_path: Path) -> None:
    assert up("gan-own", "--optimizer", "adam", "--lr", "0.001", folder=tmp_path) != up("gan-own", folder=tmp_path)
    refused = started(SCRIPT, "gan-own", "up", "--lr", "0.1", folder=tmp_path)
    assert "--lr has no effect: the program's own optimizer has its own" in refused.communicate()[1]
    assert refused.returncode == 64
