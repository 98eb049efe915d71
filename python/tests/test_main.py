"""ata's own cluster with gradients from Python: the program, on this machine."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest

import ata

EXAMPLES = Path(__file__).parent.parent / "examples"
REGRESSION = EXAMPLES / "numpy_problem.py"


def run(script: Path, *arguments: str, folder: Path) -> subprocess.CompletedProcess[str]:
    """A script with ata's arguments."""
    command = [sys.executable, str(script), *arguments]
    return subprocess.run(command, capture_output=True, text=True, cwd=folder, timeout=120, check=False)


def up(script: Path, *arguments: str, folder: Path) -> dict:
    """The summary of a run that ends well."""
    ended = run(script, "up", "--json", "--dashboard", "off", *arguments, folder=folder)
    assert ended.returncode == 0, ended.stderr
    return json.loads(ended.stdout)


def test_a_run_learns_and_its_bits_do_not_depend_on_who_computes(tmp_path: Path) -> None:
    first = up(REGRESSION, "--iterations", "60", "--workers", "2", folder=tmp_path)
    assert first["test_loss"] < 1, first
    other = up(REGRESSION, "--iterations", "60", "--workers", "3", "--policy", "uta", folder=tmp_path)
    assert first["parameters_sha256"] == other["parameters_sha256"]


def test_a_run_is_resumed_and_its_model_is_read(tmp_path: Path) -> None:
    whole = up(REGRESSION, "--iterations", "40", "--workers", "2", folder=tmp_path)
    flags = ["--workers", "2", "--out", "half", "--checkpoint-every", "5"]
    up(REGRESSION, "--iterations", "20", *flags, folder=tmp_path)
    resumed = up(REGRESSION, "--iterations", "40", "--resume", "half", folder=tmp_path)
    assert resumed["parameters_sha256"] == whole["parameters_sha256"]
    measured = run(REGRESSION, "eval", "half", "--json", folder=tmp_path)
    assert json.loads(measured.stdout)["parameters_sha256"] == whole["parameters_sha256"], measured.stderr


@pytest.mark.parametrize(("name", "needs"), [("numpy_problem", "numpy"), ("spirals", "torch"), ("jax_spirals", "jax")])
def test_a_run_that_was_killed_with_all_its_processes_goes_on(name: str, needs: str, tmp_path: Path) -> None:
    pytest.importorskip(needs)
    script = EXAMPLES / f"{name}.py"
    flags = ["--workers", "2", "--threads", "1", "--iterations", "150"]
    whole = up(script, *flags, folder=tmp_path)
    command = [sys.executable, str(script), "up", "--dashboard", "off", *flags, "--out", "killed", "--checkpoint-every", "5"]
    process = subprocess.Popen(command, cwd=tmp_path, stderr=subprocess.DEVNULL, stdout=subprocess.DEVNULL, start_new_session=True)
    until = time.monotonic() + 60
    while not (saved := list((tmp_path / "killed").glob("checkpoints/step-*"))) and time.monotonic() < until:
        time.sleep(0.01)
    os.killpg(process.pid, signal.SIGKILL)
    assert saved and process.wait() == -signal.SIGKILL, "it was to be killed in its midst"
    resumed = up(script, "--resume", "killed", folder=tmp_path)
    assert (resumed["iterations"], resumed["parameters_sha256"]) == (150, whole["parameters_sha256"])


def test_other_names_of_models_are_refused(tmp_path: Path) -> None:
    ended = run(REGRESSION, "up", "--model", "cnn", folder=tmp_path)
    assert ended.returncode == 64 and "this program trains 'regression'" in ended.stderr, ended.stderr


def test_the_program_ata_is_in_the_package(tmp_path: Path) -> None:
    ended = subprocess.run(
        [sys.executable, "-m", "ata", "up", "--iterations", "2", "--workers", "1", "--json", "--dashboard", "off"],
        capture_output=True,
        text=True,
        cwd=tmp_path,
        timeout=120,
        check=False,
    )
    assert ended.returncode == 0 and json.loads(ended.stdout)["iterations"] == 2, ended.stderr
    shown = subprocess.run([Path(sys.executable).with_name("ata"), "--version"], capture_output=True, text=True, check=True)
    assert shown.stdout.strip() == f"ata {ata.__version__}"


def test_torch_computes_the_same_as_by_hand(tmp_path: Path) -> None:
    torch = pytest.importorskip("torch")
    from ata.torch import Problem

    model = torch.nn.Sequential(torch.nn.Linear(3, 4), torch.nn.Tanh(), torch.nn.Linear(4, 2))
    inputs, labels = torch.randn(20, 3), torch.randint(2, (20,))
    data = torch.utils.data.TensorDataset(inputs, labels)
    metrics = {"first score": lambda outputs, targets: outputs[:, 0].mean()}
    problem = Problem(model, data, torch.nn.functional.cross_entropy, classes=["a", "b"], metrics=metrics, device="cpu")
    computation = problem.computation("train", 1)
    computation.parameters[:] = problem.initial(0)
    computation.load()
    samples = np.array([3, 5, 7])
    loss = computation.compute(samples, (1, 1, 0))
    expected = torch.nn.functional.cross_entropy(model(inputs[samples]), labels[samples])
    expected.backward()
    gradient = torch.cat([parameter.grad.reshape(-1) for parameter in model.parameters()])
    assert loss == expected.item() and np.array_equal(computation.gradient, gradient.numpy())
    _, classes, predictions, measured = computation.measure(samples)
    assert measured == {"first score": model(inputs[samples])[:, 0].mean().item()}
    assert classes == labels[samples].tolist() and predictions == model(inputs[samples]).argmax(1).tolist()


def test_dropout_depends_on_the_task_alone() -> None:
    torch = pytest.importorskip("torch")
    from ata.torch import Problem

    model = torch.nn.Sequential(torch.nn.Dropout(0.5), torch.nn.Linear(16, 1))
    data = torch.utils.data.TensorDataset(torch.randn(8, 16), torch.randn(8, 1))
    problem = Problem(model, data, torch.nn.functional.mse_loss, device="cpu")
    computation = problem.computation("train", 1)
    computation.parameters[:] = problem.initial(0)

    def gradient(*key: int) -> list[float]:
        computation.compute(np.arange(8), key)
        return computation.gradient.tolist()

    first = gradient(1, 1, 0)
    assert gradient(1, 1, 1) != first != gradient(1, 2, 0)
    assert gradient(1, 1, 0) == first


@pytest.mark.parametrize(
    ("model", "reason"),
    [
        ("torch.nn.Linear(3, 3).half()", "float32"),
        ("torch.nn.Linear(3, 3).requires_grad_(False)", "nothing to train"),
    ],
)
def test_models_that_cannot_be_trained_are_refused(model: str, reason: str) -> None:
    torch = pytest.importorskip("torch")
    from ata.torch import Problem

    with pytest.raises(ValueError, match=reason):
        Problem(eval(model, {"torch": torch}), [], torch.nn.functional.mse_loss)  # noqa: S307


def test_streams_are_refused_with_a_way_out() -> None:
    torch = pytest.importorskip("torch")
    from ata.torch import Problem

    class Stream(torch.utils.data.IterableDataset):
        def __iter__(self):
            return iter([])

    model, loss = torch.nn.Linear(3, 3), torch.nn.functional.mse_loss
    for data in [{"train": Stream()}, {"train": [], "evaluate": Stream()}, {"train": iter([])}]:
        with pytest.raises(ValueError, match=r"(train|evaluate): \w+ is a stream: .* len and \[\]"):
            Problem(model, loss=loss, **data)
