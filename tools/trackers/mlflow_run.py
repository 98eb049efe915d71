"""Logs a run to MLflow, from the files of its folder: settings, tags, curves, and the results. It may still be training.

    pip install mlflow-skinny
    python tools/trackers/mlflow_run.py runs/RUN_ID [--uri http://mlflow:5000] [--experiment ata] [--follow]

With --follow it ends with the run. Without --uri, MLFLOW_TRACKING_URI says where the server is.
"""

import argparse
import json
import os
import time
import tomllib
from pathlib import Path

import mlflow

# What a run leaves, the last of it at the end, and how long it may take for that after its last event.
RESULTS, RESULTS_S = ["summary.json", "model.safetensors", "report.html"], 60
METRICS = {
    "step": {"loss": "loss", "runtime_s": "iteration_s", "total_worker_time_s": "worker_time_s", "learning_rate": "learning_rate"},
    "evaluation": {"loss": "test_loss", "accuracy": "test_accuracy"},
}


def events(journal: Path, follow: bool):
    """The events so far; with `follow`, until the run ends. A journal whose older part was folded is another file, which is read from its
    beginning; what was passed on before is left out."""
    lines, part, last, passed = journal.open(), "", 0, 0
    while True:
        part += lines.readline()
        if part.endswith("\n"):
            event = json.loads(part)
            part = ""
            last = max(last, event.get("time_s", 0))
            if event.get("time_s", 0) > passed or not passed:
                yield event
            if event["event"] == "end":
                return
        elif not follow:
            return
        elif os.fstat(lines.fileno()).st_ino != journal.stat().st_ino:
            lines, part, passed = journal.open(), "", last
        else:
            time.sleep(1)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("run", type=Path, help="the run's folder")
    parser.add_argument("--uri")
    parser.add_argument("--experiment", default="ata")
    parser.add_argument("--follow", action="store_true")
    options = parser.parse_args()
    if options.uri:
        mlflow.set_tracking_uri(options.uri)
    mlflow.set_experiment(options.experiment)
    settings = tomllib.loads((options.run / "config.toml").read_text())
    name = settings.get("name", options.run.resolve().name)
    with mlflow.start_run(run_name=name, tags=settings.get("tags", {})):
        mlflow.log_params({key: value for key, value in settings.items() if not isinstance(value, dict)})
        for event in events(options.run / "events.jsonl", options.follow):
            metrics = {to: event.get(of) for of, to in METRICS.get(event["event"], {}).items()}
            metrics |= event.get("metrics", {}) if event["event"] == "evaluation" else {}
            metrics = {name: value for name, value in metrics.items() if value is not None}
            if metrics:
                mlflow.log_metrics(metrics, step=event["iteration"])
        until = time.monotonic() + RESULTS_S
        while options.follow and not (options.run / RESULTS[-1]).exists() and time.monotonic() < until:
            time.sleep(1)
        for file in RESULTS:
            if (options.run / file).exists():
                mlflow.log_artifact(options.run / file)


if __name__ == "__main__":
    main()
