"""Tasks with weights, and gradients that some tasks lack: as one process of PyTorch computes it, whoever computes."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from contract_order import permutation
from processes import ended, started, tensors
from tallied_problem import POINTS, WEIGHTS, Tallied

SCRIPT = str(Path(__file__).with_name("tallied_problem.py"))
ITERATIONS = 30
SETTINGS = ["--param-groups", "rar*: weight_decay=0, lr_factor=0.5", "--dashboard", "off", "--json"]


def up(*arguments: str, folder: Path, iterations: int = ITERATIONS) -> str:
    """The digest of a run."""
    return json.loads(ended(started(SCRIPT, "up", "--iterations", str(iterations), *SETTINGS, *arguments, folder=folder)))["parameters_sha256"]


class AdamW:
    """Loshchilov, Hutter 2019, algorithm 2, in double precision; a step without a gradient is none."""

    def __init__(self, values: np.ndarray, rate: float, decay: float) -> None:
        self.values, self.rate, self.decay, self.time = values.astype(np.float64), rate, decay, 0
        self.m, self.v = np.zeros_like(self.values), np.zeros_like(self.values)

    def step(self, gradient: np.ndarray) -> None:
        self.time += 1
        self.m = 0.9 * self.m + 0.1 * gradient
        self.v = 0.999 * self.v + 0.001 * gradient**2
        direction = self.m / (1 - 0.9**self.time) / (np.sqrt(self.v / (1 - 0.999**self.time)) + 1e-8)
        self.values = self.values * (1 - self.rate * self.decay) - self.rate * direction


def defined() -> dict[str, np.ndarray]:
    """The parameters after the run, by their definition: one weighted mean over all samples of a step."""
    center, rare = AdamW(np.ones(4), 0.05, 0.1), AdamW(np.ones(4), 0.025, 0)
    order = [sample for epoch in range(4) for sample in permutation(1, epoch, len(POINTS))]
    for iteration in range(1, ITERATIONS + 1):
        tasks = np.array(order[(iteration - 1) * 24 : iteration * 24]).reshape(6, 4)
        shares = WEIGHTS[tasks].astype(np.float64) / WEIGHTS[tasks].sum()
        # Only every second task has a gradient for the other center.
        if iteration % 3 == 0:
            rare.step(np.einsum("ts,tsx->x", shares[1::2], rare.values - POINTS[tasks][1::2]))
        center.step(np.einsum("ts,tsx->x", shares, center.values - POINTS[tasks]))
    return {"center": center.values, "rare": rare.values.reshape(2, 2), "unused": np.ones(3)}


@pytest.mark.parametrize("wire", ["f32-exact", "compact"])
def test_parameters_are_those_of_the_definition_whoever_computes(wire: str, tmp_path: Path) -> None:
    up("--wire", wire, "--workers", "2", "--out", "halves", "--checkpoint-every", "5", folder=tmp_path, iterations=ITERATIONS // 2)
    digests = {
        up("--wire", wire, "--workers", "1", "--out", "run", folder=tmp_path),
        up("--wire", wire, "--workers", "3", "--policy", "uta", "--exchange", "shards", folder=tmp_path),
        up("--wire", wire, "--workers", "2", "--task-time", "const(9); affine(9, 1)", "--verify", "0.5", folder=tmp_path),
        up("--workers", "2", "--resume", "halves", folder=tmp_path),
    }
    assert len(digests) == 1
    trained = tensors(tmp_path / "run" / "model.safetensors")
    assert trained.keys() == {"center", "rare", "unused"}
    # The compact format rounds differences of parameters.
    allowed = 1e-6 if wire == "f32-exact" else 1e-3
    for name, expected in defined().items():
        assert np.abs(trained[name] - expected).max() < allowed, (name, trained[name], expected)


@pytest.mark.parametrize("weight", [float("nan"), -1.0])
def test_a_bad_weight_is_refused(weight: float) -> None:
    problem = Tallied()
    problem.loss_and_gradient = lambda *_: (0.0, {"unused": None, "center": np.ones(4), "rare": None}, weight)
    with pytest.raises(ValueError, match="expected a number of at least 0"):
        problem.computation("train", 1).compute(np.arange(4), (1, 1, 0))
