"""Streams as data: any worker computes a task, and reads few of them for it."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

torch = pytest.importorskip("torch")

from processes import ended, started  # noqa: E402
from streaming_problem import SAMPLES, SHARDS, Stream  # noqa: E402

from ata.torch import Shards  # noqa: E402

SCRIPT = str(Path(__file__).with_name("streaming_problem.py"))


def up(folder: Path, *flags: str) -> str:
    common = ["--json", "--dashboard", "off", "--threads", "1", "--iterations", "20"]
    return json.loads(ended(started(SCRIPT, "up", *common, *flags, folder=folder)))["parameters_sha256"]


def test_whoever_computes_a_task_has_its_samples(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    digests = {up(tmp_path, "--workers", workers) for workers in ("1", "3")}
    monkeypatch.setenv("LOADERS", "2")
    assert len(digests | {up(tmp_path, "--workers", "2")}) == 1


def test_a_run_takes_the_samples_of_few_streams_at_a_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENED", str(tmp_path))
    # The iterations take 320 samples: those of ten streams.
    up(tmp_path, "--workers", "1", "--evaluate-on", "head")
    opened: dict[str, int] = {}
    for path in tmp_path.glob("[0-9]*-*"):
        process = path.name.split("-")[0]
        opened[process] = opened.get(process, 0) + 1
    # The head evaluates all of them.
    assert sorted(opened.values()) in ([16, SHARDS], [15, SHARDS])


def test_shards_are_read_once_while_they_are_kept() -> None:
    reads: list[int] = []

    def read(shard: int) -> list[int]:
        reads.append(shard)
        return list(range(100 * shard, 100 * shard + 5 + shard))

    data = Shards(read, 4, 5, keep=2)
    assert len(data) == 20
    assert [data[at] for at in (0, 19, 1, 15, 4, 5, 0)] == [0, 304, 1, 300, 4, 100, 0]
    assert reads == [0, 3, 1]
    assert np.array_equal(Shards(Stream, 2, 3)[4][0], list(Stream(1))[1][0])


def test_short_shards_are_refused() -> None:
    with pytest.raises(ValueError, match=f"shard 1 has {SAMPLES + 1} samples: expected 40"):
        Shards(Stream, 2, 40)[41]
    with pytest.raises(ValueError, match="keep=0: expected numbers of at least 1"):
        Shards(Stream, 2, 40, keep=0)
