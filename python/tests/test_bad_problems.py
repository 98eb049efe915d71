"""What becomes of a run whose problem is wrong, or does what it should not."""

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

import ata

REGRESSION = (Path(__file__).parent.parent / "examples" / "numpy_problem.py").read_text()
FIRST_LINE = '        x, _ = self.data["train"]\n'
GRADIENT = '{"w": 2 * x[samples].T @ error / len(error), "b": [2 * error.mean()]}'
UP = ["up", "--json", "--dashboard", "off", "--iterations", "20", "--workers", "2"]

# What a run has to end if no worker can compute a task, on a busy machine. It would wait twice as long for an outage.
MOST_S = 60


def script(folder: Path, before: str = "", gradient: str = GRADIENT, imports: str = "") -> list[str]:
    """The regression, where a gradient begins with other lines, or is another one."""
    assert FIRST_LINE in REGRESSION and GRADIENT in REGRESSION
    lines = "".join(f"        {line}\n" for line in before.splitlines())
    text = f"{imports}\n" + REGRESSION.replace(FIRST_LINE, lines + FIRST_LINE).replace(GRADIENT, gradient)
    path = folder / "problem.py"
    path.write_text(text)
    return [sys.executable, str(path)]


def run(words: list[str], folder: Path, arguments: list[str] = UP) -> subprocess.CompletedProcess[str]:
    """A run that ends by itself."""
    return subprocess.run([*words, *arguments], capture_output=True, text=True, cwd=folder, timeout=120, check=False)


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory: pytest.TempPathFactory) -> str:
    """The digest of a run in which nothing goes wrong."""
    folder = tmp_path_factory.mktemp("undisturbed")
    ended = run(script(folder), folder)
    assert ended.returncode == 0, ended.stderr
    return json.loads(ended.stdout)["parameters_sha256"]


@pytest.mark.parametrize(
    ("before", "gradient", "expected"),
    [
        ("raise ValueError('never')", GRADIENT, "ValueError: never"),
        ("if key[2] == 5: raise ValueError('this task')", GRADIENT, "ValueError: this task"),
        ("raise SystemExit('no worker can do this')", GRADIENT, "SystemExit: no worker can do this"),
        ("", '{"w": x[0] * np.nan, "b": [0]}', "of the gradient is infinite or NaN"),
        ("if key[1] > 3: return np.nan, self.start(0)", GRADIENT, "the loss is NaN"),
        ("", '{"w": 0.5, "b": [0]}', "the gradient of w has the shape (): expected (8,), as its parameter"),
    ],
)
def test_tasks_that_no_worker_can_compute_end_the_run(before: str, gradient: str, expected: str, tmp_path: Path) -> None:
    began = time.monotonic()
    ended = run(script(tmp_path, before, gradient), tmp_path)
    assert ended.returncode == 70 and "failed" in ended.stderr, ended.stderr
    error = ended.stderr[ended.stderr.rindex("nothing succeeded for") :]
    assert expected in error, ended.stderr
    assert time.monotonic() - began < MOST_S


@pytest.mark.parametrize(
    ("gradient", "reason"),
    [
        ({"w": None, "b": [0]}, r"the gradient of w has None: expected \(8,\), as its parameter"),
        ({"w": 0.5, "b": [0]}, r"the gradient of w has the shape \(\)"),
        ({"w": [[0] * 8], "b": [0]}, r"the gradient of w has the shape \(1, 8\)"),
        ({"w": [0] * 8}, r"gradients of \['w'\]: expected \['b', 'w'\]"),
        ([0] * 9, "expected a dictionary of arrays, not list"),
        (None, "expected a dictionary of arrays, not NoneType"),
    ],
)
def test_gradients_have_the_shapes_of_the_parameters(gradient: Any, reason: str) -> None:
    class Wrong(ata.Problem):
        def start(self, seed: int) -> Any:
            return {"w": np.zeros(8, np.float32), "b": np.zeros(1, np.float32)}

        def samples(self, split: Any, path: Any) -> int:
            return 1

        def loss_and_gradient(self, parameters: Any, samples: Any, key: Any) -> Any:
            return 1.0, gradient

        def measure(self, parameters: Any, samples: Any) -> float:
            return 1.0

    with pytest.raises((ValueError, TypeError), match=reason):
        Wrong().computation("train", 1).compute(np.zeros(1, np.int64), (1, 1, 0))


@pytest.mark.parametrize(
    ("wrong", "expected"),
    [
        ("raise ValueError('for once')", "ValueError: for once"),
        ("raise OSError('for once')", "OSError: for once"),
        ("return np.nan, self.start(0)", "the loss is NaN"),
        ("return 1.0, {'w': np.full(8, np.inf), 'b': [0]}", "finite"),
        ("os.kill(os.getpid(), signal.SIGKILL)", ""),
    ],
)
def test_a_worker_that_fails_costs_no_bits(wrong: str, expected: str, undisturbed: str, tmp_path: Path) -> None:
    # Which of the workers fails is chance: the first to take the file away.
    (tmp_path / "fault").touch()
    before = f"if key[1] == 5 and taken(): {wrong}"
    imports = (
        "import os, signal\n"
        "def taken():\n"
        "    try: os.remove('fault')\n"
        "    except FileNotFoundError: return False\n"
        "    return True\n"
    )
    ended = run(script(tmp_path, before, imports=imports), tmp_path)
    assert ended.returncode == 0 and expected in ended.stderr, ended.stderr
    assert not (tmp_path / "fault").exists()
    assert json.loads(ended.stdout)["parameters_sha256"] == undisturbed


def test_an_outage_is_waited_for(undisturbed: str, tmp_path: Path) -> None:
    """Longer than a run waits for tasks that no worker can compute."""
    before = (
        "import time\n"
        "self.began = getattr(self, 'began', time.monotonic())\n"
        "try:\n"
        "    if time.monotonic() < self.began + 13: open('/does/not/exist')\n"
        "except OSError as error: raise ValueError('no samples') from error\n"
    )
    ended = run(script(tmp_path, before), tmp_path)
    assert ended.returncode == 0 and "ValueError: no samples" in ended.stderr, ended.stderr
    assert json.loads(ended.stdout)["parameters_sha256"] == undisturbed


@pytest.mark.skipif(sys.platform == "win32", reason="there are no signals of this kind")
def test_ctrl_c_ends_a_run_that_computes_forever(tmp_path: Path) -> None:
    words = script(tmp_path, "if key[1] > 2: open('there', 'w').close(); time.sleep(1000)", imports="import time")
    process = subprocess.Popen(
        [*words, *UP], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, cwd=tmp_path, start_new_session=True
    )
    until = time.monotonic() + 60
    while not (tmp_path / "there").exists():
        assert process.poll() is None and time.monotonic() < until
        time.sleep(0.01)
    # As a terminal does, to all of its processes.
    os.killpg(process.pid, signal.SIGINT)
    _, errors = process.communicate(timeout=30)
    assert process.returncode == 130 and "Traceback" not in errors, errors


@pytest.mark.skipif(sys.platform == "win32", reason="there is no fork")
@pytest.mark.parametrize(
    ("before", "expected"),
    [
        # The child ends itself, as it should.
        ("child = os.fork()\nif child == 0: os._exit(0)\nos.waitpid(child, 0)", ""),
        # It goes on as if it were the worker, or fails there.
        ("child = os.fork()\nif child > 0: os.waitpid(child, 0)", "a process that the problem forked came back"),
        ("child = os.fork()\nif child == 0: raise ValueError\nos.waitpid(child, 0)", "a process that the problem forked"),
        # Processes that outlive the call, and then the worker.
        (
            "if not hasattr(self, 'pool'): self.pool = multiprocessing.get_context('fork').Pool(2)\n"
            "assert self.pool.map(abs, [-1, -2, -3]) == [1, 2, 3]",
            "",
        ),
    ],
)
def test_a_problem_may_fork(before: str, expected: str, undisturbed: str, tmp_path: Path) -> None:
    ended = run(script(tmp_path, before, imports="import multiprocessing, os"), tmp_path)
    assert ended.returncode == 0 and expected in ended.stderr, ended.stderr
    assert json.loads(ended.stdout)["parameters_sha256"] == undisturbed
