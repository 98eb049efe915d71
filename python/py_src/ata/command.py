"""The program `ata`, with the built-in models or with a problem of one's own."""

from __future__ import annotations

import json
import multiprocessing
import os
import signal
import sys
from collections.abc import Sequence
from typing import NoReturn

from ata import _core
from ata.problem import Problem

Setting = str | int | float | bool

LOADER = "ata-loader"
"""Names of loader processes begin with this."""


def main(problem: Problem, arguments: Sequence[str] | None = None, **settings: Setting) -> NoReturn:
    """Runs ata's command line for a problem, and ends the process with its exit code.

    A script that ends with this call has all of ata's commands, such as `python train.py up`; `python train.py help` lists them.

    Args:
        problem: What is trained.
        arguments: The command and its flags. By default, those of this process.
        settings: Defaults for what `--config` takes, as in `budget=64, lr=1e-3`. Flags override them.
    """
    if multiprocessing.current_process().name.startswith(LOADER):
        raise RuntimeError(
            "a loader process runs the script anew, up to ata.main: put everything but imports, functions and classes under "
            '`if __name__ == "__main__":`'
        )
    # Tasks take as long as they take.
    own: dict[str, Setting] = {} if getattr(problem, "optimizer", None) is None else {"optimizer": "own"}
    defaults: dict[str, Setting] = {"model": problem.name, "task_time": "none"} | own | settings
    _exit(arguments, _script(), problem, "".join(f"{name} = {json.dumps(value)}\n" for name, value in defaults.items()))


def command() -> NoReturn:
    """The program `ata` itself."""
    _exit(None, [sys.executable, "-m", "ata"], None, "")


def _exit(arguments: Sequence[str] | None, program: list[str], problem: Problem | None, defaults: str) -> NoReturn:
    # Rust handles Ctrl-C, or it ends the process; Python would raise an exception after that.
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    words = sys.argv[1:] if arguments is None else list(arguments)
    code = _core.main(["ata", *words], program, problem, defaults)
    sys.stdout.flush()
    sys.stderr.flush()
    # Of loaders, and of what a problem has started; they would outlive this process.
    for child in multiprocessing.active_children():
        child.terminate()
    # Threads of a run that ended may still call Python, which the interpreter's end does not bear.
    os._exit(code)


def _script() -> list[str]:
    """The words that started this process, without its arguments."""
    return [sys.executable, *sys.orig_argv[1 : len(sys.orig_argv) - len(sys.argv) + 1]]
