"""Loader processes: the same gradients as without them, and what becomes of those that fail."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest

torch = pytest.importorskip("torch")

from ata.torch import Problem  # noqa: E402

SCRIPT = '''
import multiprocessing, os, random, signal
import numpy as np
import torch
import ata, ata.torch

def once(fault):
    if not multiprocessing.current_process().name.startswith("ata-loader"): return False
    try: os.remove(fault)
    except FileNotFoundError: return False
    return True

class Samples(torch.utils.data.Dataset):
    def __len__(self):
        return 64

    def __getitem__(self, index):
        if once("exception"): raise ValueError(f"sample {index}")
        if once("death"): os.kill(os.getpid(), signal.SIGKILL)
        noise = torch.rand(4) + float(np.random.rand()) + random.random()
        return torch.full((4,), float(index)) / 64 + noise, torch.tensor([float(index)])

def network():
    torch.manual_seed(0)
    return torch.nn.Sequential(torch.nn.Dropout(0.2), torch.nn.Linear(4, 1))

if MAIN:
    loaders = int(os.environ["LOADERS"])
    problem = ata.torch.Problem(network(), Samples(), torch.nn.functional.mse_loss, loaders=loaders, device="cpu")
    ata.main(problem, budget=12, task_batch=4, optimizer="sgd", lr=0.01)
'''


def run(folder: Path, loaders: int, main: str = "__name__ == '__main__'") -> subprocess.CompletedProcess[str]:
    """A run with as many loaders for each worker."""
    script = folder / "train.py"
    script.write_text(SCRIPT.replace("MAIN", main))
    command = [sys.executable, str(script), "up", "--json", "--dashboard", "off", "--workers", "1", "--iterations", "8"]
    environment = os.environ | {"LOADERS": str(loaders), "ATA_THREADS": "1"}
    return subprocess.run(
        command, capture_output=True, text=True, cwd=folder, env=environment, timeout=300, check=False
    )


def digest(ended: subprocess.CompletedProcess[str]) -> str:
    """That of the parameters at the end."""
    assert ended.returncode == 0, ended.stderr
    return json.loads(ended.stdout)["parameters_sha256"]


def test_loaders_change_no_bits_and_fail_alone(tmp_path: Path) -> None:
    expected = digest(run(tmp_path, 0))
    assert digest(run(tmp_path, 2)) == expected
    faults = [tmp_path / "exception", tmp_path / "death"]
    for fault in faults:
        fault.touch()
    ended = run(tmp_path, 2)
    assert digest(ended) == expected
    assert "ValueError: sample" in ended.stderr and "ended with exit code -9 while it loaded" in ended.stderr, ended.stderr
    assert not any(fault.exists() for fault in faults)


class Slow(torch.utils.data.Dataset):
    """Samples that take a while, and say which process loaded them."""

    def __len__(self) -> int:
        return 100

    def __getitem__(self, index: int) -> tuple[Any, Any]:
        time.sleep(0.02)
        if index == 99:
            raise LookupError("there is no sample 99")
        return torch.tensor([float(index)]), torch.tensor([float(os.getpid())])


def forward(model: torch.nn.Module, batch: Any) -> tuple[Any, Any]:
    """Keeps who loaded the batch."""
    inputs, model.loaded_by = batch
    return model(inputs), inputs


@pytest.fixture
def computation() -> Any:
    problem = Problem(torch.nn.Linear(1, 1), Slow(), torch.nn.functional.mse_loss, forward=forward, loaders=2, device="cpu")
    computation = problem.computation("train", 1)
    yield computation
    for loader in computation.loaders.loaders:
        loader._process.terminate()


def requests(*tasks: list[int]) -> list[Any]:
    return [(np.array(samples), (1, 1, task)) for task, samples in enumerate(tasks)]


def test_batches_are_loaded_elsewhere_in_any_order(computation: Any) -> None:
    batches = requests([1, 2], [3, 4], [5, 6], [7, 8])
    computation.announce(batches)
    computation.compute(*batches[0])
    assert computation.model.loaded_by.flatten().tolist() != [os.getpid()] * 2
    # One that no process has begun, then one that another process has.
    computation.compute(*batches[3])
    computation.compute(*batches[1])
    assert computation.model.loaded_by.flatten().tolist() != [os.getpid()] * 2
    computation.load()
    computation.compute(*batches[2])
    assert computation.model.loaded_by.flatten().tolist() == [os.getpid()] * 2, "it was forgotten"


def test_a_loader_that_fails_is_replaced(computation: Any) -> None:
    bad, good = requests([1, 99], [3, 4])
    computation.announce([bad, good])
    with pytest.raises(LookupError, match="there is no sample 99") as raised:
        computation.compute(*bad)
    assert "__getitem__" in str(raised.value.__cause__)
    computation.compute(*good)
    # Killed while it loads, and while it does nothing.
    for is_busy in [True, False]:
        loader = computation.loaders.loaders[0]
        if is_busy:
            computation.announce([good])
        process = loader._process
        os.kill(process.pid, signal.SIGKILL)
        process.join()
        if not is_busy:
            computation.announce([good])
            computation.compute(*good)
            continue
        with pytest.raises(ChildProcessError, match="ended with exit code -9 while it loaded a task's samples, from .3, 4"):
            computation.compute(*good)


def test_a_script_without_a_guard_is_told(tmp_path: Path) -> None:
    ended = run(tmp_path, 1, main="True")
    assert "put everything but imports, functions and classes under" in ended.stderr, ended.stderr
    assert ended.returncode != 0


def test_a_wrong_number_of_loaders_is_refused() -> None:
    with pytest.raises(ValueError, match="loaders=-1"):
        Problem(torch.nn.Linear(1, 1), Slow(), torch.nn.functional.mse_loss, loaders=-1)
