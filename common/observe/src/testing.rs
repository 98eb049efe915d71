//! Creates events for tests.

use ata_record::{JOURNAL_VERSION, Labels, RunEvent, RunState};
use ata_types::{Iteration, LeaseId, TaskOutcome, WorkerId};

pub(crate) fn run(policy: &str, budget: u64) -> RunEvent {
    RunEvent::Run {
        version: JOURNAL_VERSION,
        run_id: "test-run".into(),
        policy: policy.into(),
        budget,
        iterations: 100,
        task_batch: 6,
        seed: 1,
        model: "cnn".into(),
        labels: Labels::default(),
    }
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
    RunEvent::Join { time_s: 0.0, worker: worker(number), name: format!("worker-{number}"), device: "cpu".into() }
}

pub(crate) fn task(iteration: u64, number: u32, busy_s: Option<f64>, outcome: TaskOutcome) -> RunEvent {
    RunEvent::Task {
        iteration: Iteration(iteration),
        task: 0,
        worker: worker(number),
        lease: LeaseId(1),
        time_s: 0.0,
        busy_s,
        censored_s: None,
        overhead_s: None,
        outlasted: 0,
        outcome,
    }
}

pub(crate) fn step(iteration: u64, time_s: f64) -> RunEvent {
    RunEvent::Step {
        iteration: Iteration(iteration),
        time_s,
        loss: 4.0 / iteration as f64,
        runtime_s: 1.0,
        total_worker_time_s: 2.0,
        tasks: 4,
        wasted: 0,
        employments: 2,
        results: 3,
        learning_rate: 0.001,
        gradient_norm: None,
        saturated: 0,
        vanished: 0,
        shards: 0,
    }
}
