"""Buffers that tasks change: averaged exactly, whoever computes, and in the model's file as PyTorch has them."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

torch = pytest.importorskip("torch")

from contract_order import permutation  # noqa: E402
from models_with_buffers import MODELS, data, make, problem  # noqa: E402
from processes import ended, started, tensors  # noqa: E402
from torch import nn  # noqa: E402

SEED = 1
SCRIPT = str(Path(__file__).with_name("models_with_buffers.py"))


def up(name: str, *arguments: str, folder: Path) -> dict:
    return json.loads(ended(started(SCRIPT, name, "up", "--json", "--dashboard", "off", "--threads", "1", *arguments, folder=folder)))


def of_file(path: Path) -> dict[str, torch.Tensor]:
    return {name: torch.from_numpy(array.copy()) for name, array in tensors(path).items()}


def alone(name: str, iterations: int, rate: float) -> nn.Module:
    """The same training in one process of PyTorch: each task begins with the same buffers, which become the mean of what tasks leave."""
    model = make(name)
    if name == "sync":
        # It has the same buffers and parameters, and runs without a GPU.
        model[1] = nn.BatchNorm1d(16)
    optimizer = torch.optim.SGD(model.parameters(), lr=rate, momentum=0.9)
    inputs, targets = data(512, seed=1).tensors
    order = [sample for epoch in range(1 + iterations * 64 // 512) for sample in permutation(SEED, epoch, 512)]
    for iteration in range(iterations):
        before, left = [buffer.clone() for buffer in model.buffers()], []
        optimizer.zero_grad()
        for task in range(4):
            for module, key, value in zip(*owners(model), before, strict=True):
                setattr(module, key, value.clone())
            first = (iteration * 4 + task) * 16
            samples = order[first : first + 16]
            (nn.functional.cross_entropy(model(inputs[samples]), targets[samples]) / 4).backward()
            left.append(list(model.buffers()))
        optimizer.step()
        for module, key, values in zip(*owners(model), zip(*left, strict=True), strict=True):
            mean = torch.stack([value.double() for value in values]).mean(0)
            setattr(module, key, mean.to(values[0].dtype))
    return model


def owners(model: nn.Module) -> tuple[list[nn.Module], list[str]]:
    """The modules of the buffers, and the names that they have there."""
    found = [(module, key) for module in model.modules() for key in module._buffers]
    return [module for module, _ in found], [key for _, key in found]


@pytest.mark.parametrize("name", MODELS)
def test_a_run_is_that_of_one_process_whoever_computes(name: str, tmp_path: Path) -> None:
    package, is_large = name.split()[0], " " in name
    if is_large:
        pytest.importorskip(package)
    # With larger steps, the rounding errors of a deep network double in each of them.
    iterations, rate, apart = (3, 1e-4, 1e-4) if is_large else (20, 0.05, 1e-5)
    flags = ["--iterations", str(iterations), "--lr", str(rate), "--wire", "f32-exact"]
    runs = [
        up(name, *flags, "--workers", "1", "--out", "run", folder=tmp_path),
        up(name, *flags, "--workers", "2", folder=tmp_path),
        up(name, *flags, "--workers", "3", "--policy", "pull", folder=tmp_path),
    ]
    assert len({run["parameters_sha256"] for run in runs}) == 1
    expected = alone(name, iterations, rate).state_dict()
    trained = of_file(tmp_path / "run" / "model.safetensors")
    fresh = make(name)
    # What torch.compile returns loads the names of what it compiled through its own module.
    getattr(fresh, "_orig_mod", fresh).load_state_dict(trained, strict=True)
    for key, value in fresh.state_dict().items():
        assert torch.allclose(value, expected[key], rtol=apart, atol=apart / 10), (key, value, expected[key])
        assert value.is_floating_point() or torch.equal(value, expected[key])
    fresh.eval()
    inputs, targets = data(128, seed=2).tensors
    loss = nn.functional.cross_entropy(fresh(inputs), targets).item()
    assert runs[0]["test_loss"] == pytest.approx(loss, rel=apart)


def test_a_compact_run_is_as_exact_in_buffers(tmp_path: Path) -> None:
    flags = ["--iterations", "20", "--wire", "compact", "--exchange", "star"]
    first = up("norm", *flags, "--workers", "1", "--out", "run", folder=tmp_path)
    assert up("norm", *flags, "--workers", "3", folder=tmp_path)["parameters_sha256"] == first["parameters_sha256"]
    sharded = up("norm", *flags[:-1], "shards", "--workers", "2", folder=tmp_path)
    assert sharded["parameters_sha256"] == first["parameters_sha256"]
    trained = of_file(tmp_path / "run" / "model.safetensors")
    for key, value in alone("norm", 20, 0.05).state_dict().items():
        assert torch.allclose(trained[key], value, rtol=1e-2, atol=2e-3), key
    assert trained["1.num_batches_tracked"] == 20


def test_a_run_is_resumed_with_its_buffers(tmp_path: Path) -> None:
    whole = up("codebook", "--iterations", "20", "--workers", "2", folder=tmp_path)
    up("codebook", "--iterations", "10", "--workers", "2", "--out", "half", folder=tmp_path)
    resumed = up("codebook", "--iterations", "20", "--resume", "half", folder=tmp_path)
    assert resumed["parameters_sha256"] == whole["parameters_sha256"]


def test_a_task_must_not_change_what_no_vector_holds() -> None:
    class Counts(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.linear = nn.Linear(8, 3)
            self.register_buffer("calls", torch.zeros(()), persistent=False)

        def forward(self, inputs: torch.Tensor) -> torch.Tensor:
            self.calls += 1
            return self.linear(inputs)

    from ata.torch import Problem

    computation = Problem(Counts(), data(16, seed=1), nn.functional.cross_entropy, device="cpu").computation("train", 1)
    with pytest.raises(RuntimeError, match=r"a task changed calls, .* make it a persistent buffer"):
        computation.compute(np.arange(8), (0, 1, 0))


def test_what_cannot_be_averaged_is_refused_by_name() -> None:
    from ata.torch import Problem

    model = nn.Linear(8, 3)
    model.register_buffer("hashes", torch.tensor([1 << 40]))
    with pytest.raises(ValueError, match="buffer hashes has"):
        Problem(model, [], nn.functional.cross_entropy)


def test_noisy_normalisation_is_warned_of() -> None:
    computation = problem("norm").computation("train", 1)
    with pytest.warns(UserWarning, match="over the 4 samples of a task"):
        computation.compute(np.arange(4), (0, 1, 0))
