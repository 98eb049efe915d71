use super::*;

/// Returns a step, for tests.
pub(crate) fn step(iteration: u64) -> RunEvent {
    RunEvent::Step {
        iteration: Iteration(iteration),
        time_s: iteration as f64,
        loss: 0.5,
        runtime_s: 1.0,
        total_worker_time_s: 2.0,
        tasks: 4,
        wasted: 0,
        employments: 2,
        results: 3,
        learning_rate: 0.25,
        gradient_norm: None,
        saturated: 0,
        vanished: 0,
        shards: 0,
    }
}
