"""The contract is enough: a worker that is written from the proto alone takes part, and the run's parameters are the same bits."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from contract_order import permutation
from contract_worker import Worker, crc32c, encode_sums, pb
from processes import ended, started
from wide_problem import SAMPLES, loss_and_gradient

SCRIPT = str(Path(__file__).parent / "wide_problem.py")
SETTINGS = ["--iterations", "12", "--budget", "8", "--task-batch", "4", "--optimizer", "sgd", "--lr", "0.05", "--json"]


@pytest.mark.parametrize("wire", ["f32-exact", "compact"])
@pytest.mark.parametrize("others", [0, 1])
def test_a_worker_written_from_the_proto_computes_the_same_bits(wire: str, others: int, tmp_path: Path) -> None:
    # The policy gives every worker tasks, however slow it is.
    settings = [*SETTINGS, "--wire", wire, "--dashboard", "off", "--policy", "uta"]
    whole = json.loads(ended(started(SCRIPT, "up", "--workers", "2", *settings, folder=tmp_path)))
    assert started(SCRIPT, "init", "model.safetensors", folder=tmp_path).wait(timeout=60) == 0
    ready = tmp_path / "ready.json"
    head = started(
        *("-m", "ata", "coordinator", "--model", "wide", "--init", "model.safetensors", "--listen", "127.0.0.1:0"),
        *("--min-workers", str(1 + others), "--ready-file", str(ready), *settings),
        folder=tmp_path,
    )
    processes = [head]
    try:
        while not ready.exists():
            assert head.poll() is None, head.communicate()
        address = json.loads(ready.read_text())["address"]
        for _ in range(others):
            processes.append(started(SCRIPT, "worker", "--coordinator", f"http://{address}", folder=tmp_path))
        worker = Worker(address, "contract", loss_and_gradient, SAMPLES)
        assert worker.work() == pb.Farewell.REASON_FINISHED
        run = json.loads(ended(head))
    finally:
        for process in processes:
            process.kill()
    # The last step is taken as soon as its chunks have arrived, so the run may end before the receipt is sent.
    assert worker.accepted() >= 11 and (others or worker.measured > 0), "it took part"
    assert run["parameters_sha256"] == whole["parameters_sha256"]
    assert run["test_loss"] == pytest.approx(whole["test_loss"], rel=1e-12)
    assert run["refused"] == {}


def test_what_the_contract_specifies_has_known_values() -> None:
    assert crc32c(b"123456789") == 0xE3069283
    assert sorted(permutation(3, 5, 2000)) == list(range(2000))
    # Samples 20 to 23 of the order that a test of ata's sampling pins: seed 3, B = 4, 4 samples a task, iteration 2, task 1.
    assert permutation(3, 0, 2000)[20:24] == [954, 290, 691, 1321]
    for value, width in [(0, 0), (-128, 8), (128, 12), (2047, 12), (2048, 16), (1 << 15, 20), (1 << 19, 32), (-(2**31), 32)]:
        sums = np.zeros(300, np.int32)
        sums[200] = value
        encoded = encode_sums(sums, is_compact=True)
        assert (encoded[0], len(encoded)) == (width, 2 + 32 * width), value
