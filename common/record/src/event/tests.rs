use serde_json::json;

use super::*;

/// Returns a step, for tests.
pub(crate) fn step(iteration: u64) -> RunEvent {
    let step = json!({"event": "step", "iteration": iteration, "time_s": iteration, "loss": 0.5, "runtime_s": 1.0,
                      "total_worker_time_s": 2.0, "tasks": 4, "wasted": 0, "employments": 2, "results": 3,
                      "learning_rate": 0.25});
    serde_json::from_value(step).unwrap()
}
