"""The reference page is that of the docstrings."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path


def test_the_page_is_up_to_date() -> None:
    command = [sys.executable, Path(__file__).parent.parent / "reference.py", "--check"]
    ended = subprocess.run(command, capture_output=True, text=True, check=False)
    assert ended.returncode == 0, ended.stderr
