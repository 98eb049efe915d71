"""A problem in JAX: its gradients, its random numbers, and a run."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

jax = pytest.importorskip("jax")

from ata.jax import Problem  # noqa: E402

EXAMPLE = Path(__file__).parent.parent / "examples" / "jax_spirals.py"
SAMPLES = np.array([3, 5, 7])
METRICS = {"absolute error": lambda outputs, targets: abs(outputs - targets).mean()}


def linear(parameters: Any, inputs: Any, key: Any) -> Any:
    outputs = inputs @ parameters["w"] + parameters["b"]
    return outputs if key is None else outputs + jax.random.normal(key, outputs.shape)


def squares(outputs: Any, targets: Any) -> Any:
    return ((outputs - targets) ** 2).mean()


@pytest.fixture
def computation() -> Any:
    random = np.random.default_rng(1)
    data = (random.normal(size=(20, 3)).astype(np.float32), random.normal(size=(20, 2)).astype(np.float32))
    computation = Problem({"w": np.ones((3, 2), np.float32), "b": np.zeros(2, np.float32)}, linear, squares, data, metrics=METRICS).computation("train", 1)
    computation.load()
    return computation


def test_it_computes_the_same_as_by_hand(computation: Any) -> None:
    key = (1, 2, 3)
    loss = computation.compute(SAMPLES, key)
    inputs, targets = (array[SAMPLES] for array in computation.data)
    words = np.random.SeedSequence(key).generate_state(2)
    noise = jax.random.normal(jax.random.fold_in(jax.random.key(words[0]), words[1]), (3, 2))
    error = inputs.sum(1, keepdims=True) + noise - targets
    expected = np.concatenate([2 * error.mean(0) / 2, (2 * inputs.T @ error / error.size).ravel()])
    assert loss == pytest.approx(float((error**2).mean()), rel=1e-5)
    assert np.allclose(computation.gradient, expected, rtol=1e-4)
    measured, labels, predictions, metrics = computation.measure(SAMPLES)
    assert measured == pytest.approx(float(((error - noise) ** 2).mean()), rel=1e-5) and labels == predictions == []
    assert metrics == {"absolute error": pytest.approx(float(abs(error - noise).mean()), rel=1e-5)}


def test_random_numbers_depend_on_the_task_alone(computation: Any) -> None:
    def gradient(*key: int) -> list[float]:
        computation.compute(SAMPLES, key)
        return computation.gradient.tolist()

    first = gradient(2**63, 1, 0)
    assert gradient(2**63, 1, 1) != first != gradient(2**63, 2, 0)
    assert gradient(2**63, 1, 0) == first


def test_parameters_are_read_only_when_they_are_loaded(computation: Any) -> None:
    before = computation.measure(SAMPLES)
    computation.parameters[:] = 5
    assert computation.measure(SAMPLES) == before
    computation.load()
    assert computation.measure(SAMPLES) != before


@pytest.mark.parametrize(
    ("parameter", "targets", "message"),
    [(np.ones(3), 20, r"\['w'\] is float64"), (np.ones(3, np.float32), 19, "20 inputs and 19 targets")],
)
def test_what_cannot_be_trained_is_refused(parameter: Any, targets: int, message: str) -> None:
    data = (np.zeros((20, 3), np.float32), np.zeros(targets, np.float32))
    with pytest.raises(ValueError, match=message):
        Problem({"w": parameter}, linear, squares, data)


def test_a_run_learns_and_its_bits_do_not_depend_on_who_computes(tmp_path: Path) -> None:
    def up(*flags: str) -> dict[str, Any]:
        command = [sys.executable, str(EXAMPLE), "up", "--json", "--dashboard", "off", "--iterations", "60", *flags]
        ended = subprocess.run(command, capture_output=True, text=True, cwd=tmp_path, timeout=120, check=False)
        assert ended.returncode == 0, ended.stderr
        return json.loads(ended.stdout)

    first = up("--workers", "2")
    assert first["test_accuracy"] > 0.8, first
    assert up("--workers", "3", "--policy", "uta")["parameters_sha256"] == first["parameters_sha256"]
