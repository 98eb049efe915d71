"""Weighted losses, parameters that tasks do not use, and parameter groups, against one process of PyTorch."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

torch = pytest.importorskip("torch")

from contract_order import permutation  # noqa: E402
from processes import ended, started, tensors  # noqa: E402
from torch import nn  # noqa: E402
from torch_tallies import CLASS_WEIGHTS, EPSILON, IGNORED, make, samples, weight  # noqa: E402

SCRIPT = str(Path(__file__).with_name("torch_tallies.py"))
ITERATIONS = 20
GROUPS = {"experts": "*.bias: weight_decay=0; scale: lr_factor=0.1", "gpt2": "*.bias *.ln_*: weight_decay=0"}


def up(name: str, *arguments: str, folder: Path) -> str:
    flags = ["--json", "--dashboard", "off", "--threads", "1", "--iterations", str(ITERATIONS), "--param-groups", GROUPS[name]]
    return json.loads(ended(started(SCRIPT, name, "up", *flags, *arguments, folder=folder)))["parameters_sha256"]


def alone(name: str, tasks_of_a_step: int = 4) -> nn.Module:
    """The same training in one process: one weighted mean over the samples of all tasks of a step, and no gradient where none has one."""
    model = make(name)
    groups: dict[str, list[nn.Parameter]] = {"decayed": [], "plain": [], "slow": []}
    for key, parameter in model.named_parameters():
        groups["slow" if key == "scale" else "plain" if key.endswith("bias") or ".ln_" in key else "decayed"].append(parameter)
    optimizer = torch.optim.AdamW(
        [
            {"params": groups["decayed"]},
            {"params": groups["plain"], "weight_decay": 0.0},
            {"params": groups["slow"], "lr": 0.001},
        ],
        lr=0.01,
        weight_decay=0.1,
        eps=EPSILON,
    )
    data = samples()
    order = [sample for epoch in range(1 + ITERATIONS * 16 // 512) for sample in permutation(1, epoch, 512)]
    for first in range(0, ITERATIONS * 4, tasks_of_a_step):
        optimizer.zero_grad()
        batches = [data[order[task * 4 :][:4]] for task in range(first, first + tasks_of_a_step)]
        total = sum(weight(batch) for batch in batches)
        for inputs, targets in batches:
            outputs = model(inputs)
            (nn.functional.cross_entropy(outputs, targets, CLASS_WEIGHTS, ignore_index=IGNORED, reduction="sum") / total).backward()
        optimizer.step()
    return model


@pytest.mark.parametrize("name", ["experts", "gpt2"])
def test_a_run_is_that_of_one_process_whoever_computes(name: str, tmp_path: Path) -> None:
    if name == "gpt2":
        pytest.importorskip("transformers")
    digests = {
        up(name, "--workers", "1", "--out", "run", folder=tmp_path),
        up(name, "--workers", "3", "--policy", "pull", folder=tmp_path),
    }
    assert len(digests) == 1
    trained = {key: torch.from_numpy(array.copy()) for key, array in tensors(tmp_path / "run" / "model.safetensors").items()}
    fresh = make(name)
    fresh.load_state_dict(trained, strict=True)
    for key, expected in alone(name).named_parameters():
        apart = float((trained[key] - expected.detach()).norm() / expected.detach().norm())
        # Rounding errors grow with the depth of a network.
        assert apart < (1e-4 if name == "gpt2" else 1e-5), (key, apart)
    if name == "experts":
        assert torch.equal(trained["experts.2.weight"], make(name).experts[2].weight), "no task uses this expert"


def test_local_steps_of_one_worker_are_those_of_one_process(tmp_path: Path) -> None:
    up("experts", "--workers", "1", "--local-steps", "4", "--out", "run", folder=tmp_path)
    trained = {key: torch.from_numpy(array.copy()) for key, array in tensors(tmp_path / "run" / "model.safetensors").items()}
    for key, expected in alone("experts", tasks_of_a_step=1).named_parameters():
        apart = float((trained[key] - expected.detach()).norm() / expected.detach().norm())
        assert apart < 1e-5, (key, apart)
