"""Reads a run's event files with TensorBoard's own reader, and compares them with metrics.csv.

    python3 -m venv venv && venv/bin/pip install tensorboard
    ata up --tensorboard --out run
    venv/bin/python tools/pytorch/tensorboard_check.py run
"""

import csv
import math
import sys
from pathlib import Path

from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

COLUMNS = {
    "loss/training": "loss",
    "loss/test": "test_loss",
    "accuracy/test": "test_accuracy",
    "optimizer/learning_rate": "learning_rate",
    "time/iteration_s": "runtime_s",
    "time/worker_time_s": "total_worker_time_s",
    "tasks/wasted": "tasks_wasted",
}


def main(run: Path) -> None:
    events = EventAccumulator(str(run / "tensorboard"), size_guidance={"scalars": 0})
    events.Reload()
    with open(run / "metrics.csv", newline="") as file:
        rows = list(csv.DictReader(file))
    for tag, column in COLUMNS.items():
        expected = {int(row["iteration"]): float(row[column]) for row in rows if row[column]}
        if not expected:
            continue
        found = {event.step: event.value for event in events.Scalars(tag)}
        # A run that was resumed has evaluations in its event files that its journal dropped.
        assert expected.keys() <= found.keys(), f"{tag}: {len(found)} steps, {len(expected)} in metrics.csv"
        for step, value in expected.items():
            assert math.isclose(found[step], value, rel_tol=1e-6), f"{tag}, step {step}: {found[step]}, not {value}"
        print(f"{tag}: {len(found)} values, as in metrics.csv")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
