"""A coordinator that has neither the model nor its data: workers bring both, and evaluate the parameters."""

from __future__ import annotations

import json
from pathlib import Path

from processes import ended, started

REGRESSION = Path(__file__).parent.parent / "examples" / "numpy_problem.py"
SETTINGS = ["--iterations", "60", "--budget", "8", "--task-batch", "16", "--optimizer", "sgd", "--lr", "0.05"]


def test_the_coordinator_needs_a_file_of_parameters_alone(tmp_path: Path) -> None:
    script = str(REGRESSION)
    whole = json.loads(ended(started(script, "up", "--json", "--dashboard", "off", *SETTINGS, folder=tmp_path)))

    ended(started(script, "init", "model.safetensors", folder=tmp_path))
    again = started(script, "init", "model.safetensors", folder=tmp_path)
    assert again.wait(timeout=60) == 64, "a file that exists is not overwritten"
    ready = tmp_path / "ready.json"
    head = started(
        *("-m", "ata", "coordinator", "--model", "regression", "--init", "model.safetensors", "--listen", "127.0.0.1:0"),
        *("--json", "--dashboard", "off", "--min-workers", "2", "--ready-file", str(ready), *SETTINGS),
        folder=tmp_path,
    )
    workers = []
    try:
        while not ready.exists():
            assert head.poll() is None, head.communicate()
        address = f"http://{json.loads(ready.read_text())['address']}"
        workers = [started(script, "worker", "--coordinator", address, folder=tmp_path) for _ in range(2)]
        summary = json.loads(ended(head))
        for worker in workers:
            ended(worker)
    finally:
        for process in [head, *workers]:
            process.kill()
    assert summary["parameters_sha256"] == whole["parameters_sha256"]
    assert summary["test_loss"] == whole["test_loss"]


def test_a_model_that_is_neither_known_nor_described_is_refused(tmp_path: Path) -> None:
    head = started("-m", "ata", "coordinator", "--model", "regression", folder=tmp_path)
    _, err = head.communicate(timeout=60)
    assert head.returncode == 64 and "regression" in err and "--init" in err, err
