"""Python programs that a test starts."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path


def started(*command: str, folder: Path) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, *command], cwd=folder, text=True, stdout=subprocess.PIPE, stderr=subprocess.PIPE
    )


def ended(process: subprocess.Popen[str]) -> str:
    """The standard output of a process that ends well."""
    out, err = process.communicate(timeout=120)
    assert process.returncode == 0, err
    return out
