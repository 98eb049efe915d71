"""Averaged tensors: each task begins with the same values, and a step takes the mean of what its tasks leave."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from averaged_problem import POINTS, Normalised
from contract_order import permutation
from processes import ended, started, tensors

SCRIPT = str(Path(__file__).with_name("averaged_problem.py"))
SETTINGS = ["--iterations", "30", "--weight-decay", "0.1", "--clip-norm", "0.5", "--dashboard", "off", "--json"]


def up(*arguments: str, folder: Path) -> str:
    """The digest of a run."""
    return json.loads(ended(started(SCRIPT, "up", *SETTINGS, *arguments, folder=folder)))["parameters_sha256"]


def defined() -> dict[str, np.ndarray]:
    """The statistics after the run, by their definition and in double precision."""
    statistics = {"mean": np.zeros(6), "var": np.ones(6)}
    order = [sample for epoch in range(3) for sample in permutation(1, epoch, len(POINTS))]
    tasks = POINTS[order].astype(np.float64)[: 30 * 8 * 5].reshape(30, 8, 5, 6)
    for of_iteration in tasks:
        for name, found in [("mean", of_iteration.mean(1)), ("var", of_iteration.var(1))]:
            statistics[name] = 0.9 * statistics[name] + 0.1 * found.mean(0)
    return statistics


@pytest.mark.parametrize("wire", ["f32-exact", "compact"])
def test_statistics_are_those_of_their_definition_whoever_computes(wire: str, tmp_path: Path) -> None:
    digests = {
        up("--wire", wire, "--workers", "1", "--out", "run", folder=tmp_path),
        up("--wire", wire, "--workers", "3", "--policy", "uta", "--exchange", "shards", folder=tmp_path),
        up("--wire", wire, "--workers", "2", "--task-time", "const(9); affine(9, 1)", "--verify", "0.5", folder=tmp_path),
    }
    assert len(digests) == 1
    trained = tensors(tmp_path / "run" / "model.safetensors")
    for name, expected in defined().items():
        assert np.abs(trained[name] - expected).max() < 1e-6, (name, trained[name], expected)
    assert trained["center"].shape == (2, 3) and np.abs(trained["center"] - 1).min() > 0.1


def test_a_head_without_the_problem_averages_as_well(tmp_path: Path) -> None:
    whole = up("--workers", "2", folder=tmp_path)
    assert started(SCRIPT, "init", "model.safetensors", folder=tmp_path).wait(timeout=60) == 0
    about = ["-m", "ata", "coordinator", "--model", "normalised", "--init", "model.safetensors", "--listen", "127.0.0.1:0"]
    settings = ["--budget", "8", "--task-batch", "5", "--optimizer", "adamw", "--lr", "0.05", "--ready-file", "ready.json", *SETTINGS]
    head = started(*about, *settings, folder=tmp_path)
    worker = None
    try:
        while not (tmp_path / "ready.json").exists():
            assert head.poll() is None, head.communicate()
        address = json.loads((tmp_path / "ready.json").read_text())["address"]
        worker = started(SCRIPT, "worker", "--coordinator", f"http://{address}", folder=tmp_path)
        assert json.loads(ended(head))["parameters_sha256"] == whole
    finally:
        head.kill()
        if worker is not None:
            worker.kill()


def test_unknown_names_are_refused() -> None:
    problem = Normalised()
    problem.averaged = ("mean", "deviation")
    with pytest.raises(ValueError, match=r"start\(\) has no deviation"):
        problem.tensors()
