//! Creates events for tests.

use ata_record::{JOURNAL_VERSION, RunEvent, RunState};
use ata_types::{TaskOutcome, WorkerId};
use serde_json::{Value, json};

pub(crate) fn run(policy: &str, budget: u64) -> RunEvent {
    event(json!({"event": "run", "version": JOURNAL_VERSION, "run_id": "test-run", "policy": policy, "budget": budget,
                 "iterations": 100, "task_batch": 6, "seed": 1, "model": "cnn"}))
}

pub(crate) fn begun(policy: &str, budget: u64) -> RunState {
    let mut state = RunState::default();
    state.apply(&run(policy, budget));
    state
}

pub(crate) fn worker(number: u32) -> WorkerId {
    WorkerId::new(number).expect("a worker's number is positive")
}

pub(crate) fn join(number: u32) -> RunEvent {
    RunEvent::Join {
        time_s: 0.0,
        worker: worker(number),
        name: format!("worker-{number}"),
        device: "cpu".into(),
        machine: String::new(),
    }
}

pub(crate) fn task(iteration: u64, number: u32, busy_s: Option<f64>, outcome: TaskOutcome) -> RunEvent {
    event(json!({"event": "task", "iteration": iteration, "task": 0, "worker": number, "lease": 1, "time_s": 0.0,
                 "busy_s": busy_s, "outcome": outcome}))
}

pub(crate) fn step(iteration: u64, time_s: f64) -> RunEvent {
    event(json!({"event": "step", "iteration": iteration, "time_s": time_s, "loss": 4.0 / iteration as f64,
                 "runtime_s": 1.0, "total_worker_time_s": 2.0, "tasks": 4, "wasted": 0, "employments": 2,
                 "results": 3, "learning_rate": 0.001}))
}

/// Returns the allocation of an iteration to the first workers.
pub(crate) fn allocation(iteration: u64, shares: &[u64], scores_s: &[f64], rule: &str) -> RunEvent {
    let workers: Vec<u64> = (1..).take(scores_s.len()).collect();
    event(json!({"event": "allocation", "iteration": iteration, "time_s": iteration, "workers": workers,
                 "allocation": shares, "scores_s": scores_s, "rule": rule}))
}

fn event(fields: Value) -> RunEvent {
    serde_json::from_value(fields).expect("they are those of an event")
}
