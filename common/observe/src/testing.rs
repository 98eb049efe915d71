//! Events for tests.

use ata_record::{Fate, JOURNAL_VERSION, RunEvent};

use crate::view::{Prices, View};

pub(crate) fn run(policy: &str, budget: u64) -> RunEvent {
    RunEvent::Run {
        version: JOURNAL_VERSION,
        run_id: "test-run".into(),
        policy: policy.into(),
        budget,
        iterations: 100,
        task_batch: 6,
        seed: 1,
        model: Some("cnn".into()),
    }
}

pub(crate) fn begun(policy: &str, budget: u64) -> View {
    let mut view = View::new(Prices::default());
    view.apply(&run(policy, budget));
    view
}

pub(crate) fn join(worker: u32) -> RunEvent {
    RunEvent::Join { time_s: 0.0, worker, name: format!("worker-{worker}"), device: "cpu".into() }
}

pub(crate) fn task(iteration: u64, worker: u32, busy_s: Option<f64>, outcome: Fate) -> RunEvent {
    RunEvent::Task {
        iteration,
        task: 0,
        worker,
        lease: None,
        time_s: None,
        busy_s,
        cut_s: None,
        overhead_s: None,
        outlasted: 0,
        outcome,
    }
}

pub(crate) fn step(iteration: u64, time_s: f64) -> RunEvent {
    RunEvent::Step {
        iteration,
        time_s,
        loss: 4.0 / iteration as f64,
        runtime_s: 1.0,
        total_worker_time_s: 2.0,
        tasks: 4,
        wasted: 0,
        employments: 2,
        results: 3,
        learning_rate: Some(0.001),
        gradient_norm: None,
    }
}
