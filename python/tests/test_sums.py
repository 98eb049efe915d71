"""Sums of gradients on a device: the same integers as those of the CPU."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

torch = pytest.importorskip("torch")

from processes import ended, started  # noqa: E402

from ata.torch import sums  # noqa: E402

SCRIPT = str(Path(__file__).with_name("summing_problem.py"))


def up(how: str, *arguments: str, folder: Path, bad: str = "none") -> dict[str, Any]:
    flags = ["--json", "--dashboard", "off", "--threads", "1", "--workers", "2"]
    summary = json.loads(ended(started(SCRIPT, how, bad, "layer" if bad != "none" else "batch", "up", *flags, *arguments, folder=folder)))
    return {key: summary[key] for key in ("parameters_sha256", "saturated", "vanished")}


@pytest.mark.parametrize("flags", [("--wire", "f32-exact"), ("--wire", "compact"), ("--wire", "compact", "--policy", "pull")])
def test_a_run_is_the_same_wherever_gradients_are_summed(flags: tuple[str, ...], tmp_path: Path) -> None:
    assert up("summed", *flags, folder=tmp_path) == up("copied", *flags, folder=tmp_path)


def test_what_is_not_finite_is_found(tmp_path: Path) -> None:
    skip = ("--on-bad-sample", "skip")
    assert up("summed", *skip, folder=tmp_path, bad="7") == up("copied", *skip, folder=tmp_path, bad="7")


@pytest.mark.parametrize("how", ["summed", "copied"])
def test_a_layer_that_refuses_a_single_sample_does_not_hide_what_is_wrong(how: str, tmp_path: Path) -> None:
    process = started(SCRIPT, how, "7", "batch", "up", "--dashboard", "off", "--workers", "1", folder=tmp_path)
    _, err = process.communicate(timeout=120)
    assert process.returncode != 0
    assert "gradient is infinite or NaN" in err or "loss is" in err, err


def summed(gradients: list[list[float]], factor: float, limit: float, tasks: int = 1) -> tuple[list[int], list[float], int, int]:
    gradient = torch.zeros(len(gradients[0]))
    own = sums.Sums(gradient, [1, 0, len(gradient) - 1])
    own.begin(np.array([factor, factor], np.float32), np.array([2, len(gradient) - 2]), len(gradient))
    for values in gradients:
        gradient[:] = torch.tensor(values)
        assert own.add(limit, tasks) == bool(np.isfinite(values).all())
    values, maxima, clamped, lost = own.end()
    return values.tolist(), maxima.tolist(), clamped, lost


def test_integers_are_the_nearest_ties_to_even_and_clamped(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sums, "CHUNK", 5)
    values = [0.0, -0.0, 0.5, 1.5, -0.5, -2.5, 0.499_999_97, 6.6, -6.6, 99.0, -99.0, 1e38, -1e38, 1e-40]
    nearest = [0, 0, 0, 2, 0, -2, 0, 7, -7, 50, -50, 50, -50, 0]
    largest = float(np.float32(1e38))
    assert summed([values], 1.0, 50.0) == (nearest, [0.0, 0.0, largest], 4, 4)
    # A task that is not finite adds nothing.
    assert summed([values, [np.nan] * 14, values], 1.0, 50.0) == ([2 * value for value in nearest], [0.0, 0.0, largest], 8, 8)


def test_a_batch_of_several_tasks_counts_for_each() -> None:
    values, maxima, clamped, lost = summed([[1.0, 0.25, -2.0]], 0.5, 100.0, tasks=4)
    assert (values, maxima, clamped, lost) == ([2, 0, -4], [1.0, 0.0, 2.0], 0, 1)
