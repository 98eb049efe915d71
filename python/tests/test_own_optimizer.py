"""An optimizer that a program brings, in numpy."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
from processes import ended, started, tensors
from stepping_problem import RATE

SCRIPT = str(Path(__file__).with_name("stepping_problem.py"))
SAVED_AT = "6"


def command(fails_at: int, *arguments: str) -> list[str]:
    return [SCRIPT, str(fails_at), "up", "--json", "--dashboard", "off", "--workers", "2", *arguments]


def test_a_step_that_fails_ends_the_run_and_another_program_goes_on(tmp_path: Path) -> None:
    undisturbed = json.loads(ended(started(*command(0, "--out", "whole"), folder=tmp_path)))
    failed = started(*command(11, "--checkpoint-every", SAVED_AT, "--out", "run"), folder=tmp_path)
    assert "the program's own optimizer: ValueError: out of luck" in failed.communicate()[1]
    assert failed.returncode == 70
    resumed = json.loads(ended(started(*command(0, "--resume", "run"), folder=tmp_path)))
    assert resumed["parameters_sha256"] == undisturbed["parameters_sha256"]
    events = [json.loads(line) for line in (tmp_path / "whole" / "events.jsonl").read_text().splitlines()]
    rates = [event["learning_rate"] for event in events if "learning_rate" in event]
    assert len(rates) == 20 and set(rates) == {RATE}


def test_it_is_gradient_descent_with_momentum(tmp_path: Path) -> None:
    ended(started(*command(0, "--out", "own"), folder=tmp_path))
    of_ata = ["--optimizer", "sgd", "--momentum", "0.5", "--lr", str(RATE)]
    ended(started(*command(0, *of_ata, "--out", "ata"), folder=tmp_path))
    own, other = (tensors(tmp_path / name / "model.safetensors") for name in ("own", "ata"))
    for name, values in own.items():
        np.testing.assert_allclose(values, other[name], rtol=1e-5)


def test_a_checkpoint_of_another_optimizer_is_refused(tmp_path: Path) -> None:
    ended(started(*command(0, "--optimizer", "adam", "--iterations", "5", "--out", "run"), folder=tmp_path))
    refused = started(*command(0, "--resume", "run", "--optimizer", "own", "--iterations", "9"), folder=tmp_path)
    assert "optimizer" in refused.communicate()[1]
    assert refused.returncode == 64
