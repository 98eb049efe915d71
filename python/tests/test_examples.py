"""The examples run, as far as what they import is installed."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

EXAMPLES = Path(__file__).parent.parent / "examples"
MOST_LINES = 40
UP = ["up", "--workers", "2", "--iterations", "30", "--dashboard", "off"]
TORCHRUN = ["-m", "torch.distributed.run", "--nproc-per-node", "2"]


@pytest.mark.parametrize(
    ("name", "needs", "options", "arguments", "expected"),
    [
        ("scheduler", [], [], [], "step 10: shares ["),
        ("numpy_problem", [], [], UP, "sha256"),
        ("spirals", ["torch"], [], UP, "sha256"),
        ("jax_spirals", ["jax"], [], UP, "sha256"),
        ("ddp", ["torch"], TORCHRUN, [], "even shares: about"),
        ("local", ["torch"], TORCHRUN, [], "epoch 1: loss"),
        ("accelerate_ddp", ["torch", "accelerate"], TORCHRUN, [], "epoch 1: shares ["),
        ("lightning_ddp", ["torch", "lightning"], [], [], "shares of the last step: ["),
        ("trainer_ddp", ["torch", "transformers", "accelerate"], TORCHRUN, [], "'uneven/samples_rank1'"),
    ],
)
def test_an_example(name: str, needs: list[str], options: list[str], arguments: list[str], expected: str, tmp_path: Path) -> None:
    for module in needs:
        pytest.importorskip(module)
    environment = os.environ | {"ACCELERATE_USE_CPU": "true", "GLOO_SOCKET_IFNAME": "lo", "OMP_NUM_THREADS": "1"}
    command = [sys.executable, *options, EXAMPLES / f"{name}.py", *arguments]
    ended = subprocess.run(
        command, capture_output=True, text=True, env=environment, cwd=tmp_path, timeout=120, check=False
    )
    assert ended.returncode == 0 and expected in ended.stdout, ended.stdout + ended.stderr


def test_examples_are_short() -> None:
    for path in EXAMPLES.glob("*.py"):
        assert len(path.read_text().splitlines()) <= MOST_LINES, path
