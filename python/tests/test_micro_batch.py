"""Tasks that are computed in parts: as many samples at once as a device holds, with the same gradient."""

from __future__ import annotations

import json
import subprocess
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import numpy as np
import pytest

torch = pytest.importorskip("torch")

from processes import ended, started  # noqa: E402
from torch import Tensor, nn  # noqa: E402
from torch.utils.data import TensorDataset  # noqa: E402

import ata.torch  # noqa: E402
from ata.torch.batch import split  # noqa: E402

KEY = (1, 1, 0)


class Small(nn.Module):
    """A network for a device that holds so many samples."""

    def __init__(self, most: int, *layers: nn.Module) -> None:
        super().__init__()
        self.most, self.largest = most, 0
        self.layers = nn.Sequential(nn.Linear(6, 5), *layers, nn.Linear(5, 3))

    def forward(self, inputs: Tensor) -> Tensor:
        if len(inputs) > self.most:
            raise torch.OutOfMemoryError("a simulated device is full")
        self.largest = max(self.largest, len(inputs))
        return self.layers(inputs)


def computed(most: int, *layers: nn.Module, weighs: bool = False, **options: Any) -> tuple[np.ndarray, float, int]:
    """The gradient and the loss of a task of 16 samples, and how many of them were computed at once."""
    torch.manual_seed(0)
    model = Small(most, *layers)
    generator = torch.Generator().manual_seed(1)
    samples = TensorDataset(torch.randn(16, 6, generator=generator), torch.randint(3, (16,), generator=generator))
    if weighs:
        options |= {"weight": lambda batch: (batch[1] > 0).sum()}
        loss = lambda outputs, targets: nn.functional.cross_entropy(outputs, targets, ignore_index=0)  # noqa: E731
    else:
        loss = nn.functional.cross_entropy
    problem = ata.torch.Problem(model, samples, loss, device="cpu", **options)
    computation = problem.computation("train", 1)
    computation.parameters[:] = problem.initial(1)
    computation.load()
    for _ in range(2):
        found = computation.compute(np.arange(16), KEY)
    return computation.gradient.copy(), found, computation.model.largest


@pytest.mark.parametrize("weighs", [False, True])
def test_parts_add_up_to_the_gradient_of_the_task(weighs: bool) -> None:
    gradient, loss, largest = computed(16, weighs=weighs)
    assert largest == 16
    for most, options, expected in [(16, {"micro_batch": 5}, 4), (16, {"micro_batch": 16}, 16), (7, {}, 4), (1, {}, 1)]:
        with pytest.warns(UserWarning, match="now 1 of them|now 4 of them|now 8 of them") if most < 16 else nullcontext():
            of_parts = computed(most, weighs=weighs, **options)
        assert of_parts[2] == expected
        assert np.abs(of_parts[0] - gradient).max() < 1e-6 and abs(of_parts[1] - loss) < 1e-6


def test_what_does_not_fit_is_an_error() -> None:
    with pytest.raises(torch.OutOfMemoryError), pytest.warns(UserWarning, match="do not fit"):
        computed(0)


@pytest.mark.parametrize("layer", [nn.BatchNorm1d(5), nn.BatchNorm1d(5, track_running_stats=False), nn.utils.spectral_norm(nn.Linear(5, 5))])
def test_layers_that_need_the_whole_task_are_refused(layer: nn.Module) -> None:
    with pytest.raises(RuntimeError, match="all of its samples have to be computed at once"):
        computed(16, layer, micro_batch=8)
    computed(16, layer)


def test_sentences_of_unequal_length_are_split_by_sample() -> None:
    batch = {"words": [torch.zeros(length) for length in (3, 1, 4)], "labels": torch.arange(3), "ids": ["a", "b", "c"]}
    first, second = split(batch, [1, 2])
    assert [len(words) for words in first["words"]] == [3] and first["ids"] == ["a"]
    assert [len(words) for words in second["words"]] == [1, 4] and second["labels"].tolist() == [1, 2]
    pair = split((torch.zeros(3, 2), [torch.zeros(3), torch.ones(3)]), [2, 1])
    assert [(len(images), [len(part) for part in targets]) for images, targets in pair] == [(2, [2, 2]), (1, [1, 1])]


@pytest.mark.parametrize("batch", [torch.zeros(4, 3), [torch.zeros(3), torch.zeros(2)], {"a": torch.zeros(3), "b": torch.tensor(1.0)}, 3])
def test_batches_of_another_number_are_refused(batch: Any) -> None:
    with pytest.raises(TypeError, match="cannot be split into micro-batches: expected 3 samples"):
        list(split(batch, [1, 2]))


PROGRAM = """
import torch
import ata, ata.torch

class Limited(torch.nn.Linear):
    def forward(self, inputs):
        assert len(inputs) <= 3, "more than the worker may compute at once"
        return super().forward(inputs)

samples = torch.utils.data.TensorDataset(torch.randn(64, 4), torch.randn(64, 2))
problem = ata.torch.Problem(Limited(4, 2), samples, torch.nn.functional.mse_loss, device="cpu", micro_batch=5)
ata.main(problem, budget=4, task_batch=8, iterations=3, eval_every=0)
"""


def worked(script: str, *flags: str, folder: Path) -> tuple[subprocess.Popen[str], subprocess.Popen[str]]:
    """A head without the problem's code, and a worker with it."""
    ended(started(script, "init", "model.safetensors", folder=folder))
    about = ["--init", "model.safetensors", "--listen", "127.0.0.1:0", "--ready-file", "ready.json", "--dashboard", "off"]
    settings = ["--iterations", "3", "--budget", "4", "--task-batch", "8", "--evaluate-on", "workers"]
    name = "limited" if "train" in script else "regression"
    head = started("-m", "ata", "coordinator", "--model", name, *about, *settings, folder=folder)
    while not (folder / "ready.json").exists():
        assert head.poll() is None, head.communicate()
    address = json.loads((folder / "ready.json").read_text())["address"]
    return head, started(script, "worker", "--coordinator", f"http://{address}", *flags, folder=folder)


def test_a_worker_may_have_a_limit_of_its_own(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(PROGRAM.replace("len(inputs) <= 3", "not self.training or len(inputs) <= 3"))
    head, worker = worked("train.py", "--micro-batch", "3", folder=tmp_path)
    ended(head)
    ended(worker)


def test_a_limit_for_a_problem_without_parts_is_refused(tmp_path: Path) -> None:
    head, worker = worked(str(Path(__file__).parent.parent / "examples" / "numpy_problem.py"), "--micro-batch", "3", folder=tmp_path)
    try:
        assert "--micro-batch: this problem computes all samples of a task at once" in worker.communicate(timeout=60)[1]
    finally:
        head.kill()
