"""Python programs that a test starts."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import numpy as np


def started(*command: str, folder: Path) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, *command], cwd=folder, text=True, stdout=subprocess.PIPE, stderr=subprocess.PIPE
    )


def ended(process: subprocess.Popen[str]) -> str:
    """The standard output of a process that ends well."""
    out, err = process.communicate(timeout=120)
    assert process.returncode == 0, err
    return out


def tensors(path: Path) -> dict[str, np.ndarray]:
    """The tensors of a safetensors file."""
    content = path.read_bytes()
    start = 8 + int.from_bytes(content[:8], "little")
    found = json.loads(content[8:start])
    found.pop("__metadata__")
    types = {"F32": np.float32, "I64": np.int64}
    parts = {name: content[start:][slice(*about["data_offsets"])] for name, about in found.items()}
    return {name: np.frombuffer(part, types[found[name]["dtype"]]).reshape(found[name]["shape"]) for name, part in parts.items()}
