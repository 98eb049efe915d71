use serde_json::json;

use super::*;

pub(crate) fn step(iteration: u64) -> RunEvent {
    let step = json!({"event": "step", "iteration": iteration, "time_s": iteration, "loss": 0.5, "runtime_s": 1.0,
                      "total_worker_time_s": 2.0, "tasks": 4, "wasted": 0, "employments": 2, "results": 3,
                      "learning_rate": 0.25});
    serde_json::from_value(step).unwrap()
}

pub(crate) fn run(run_id: &str) -> RunEvent {
    let run = json!({"event": "run", "version": JOURNAL_VERSION, "written_by": PROGRAM_VERSION, "run_id": run_id, "policy": "uta",
                     "budget": 4, "iterations": 9, "task_batch": 1, "seed": u64::MAX, "model": "cnn"});
    serde_json::from_value(run).unwrap()
}
