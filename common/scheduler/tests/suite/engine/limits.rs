//! Limits that end a run before its last iteration.

use ata_scheduler::{Effect, EngineConfig, FinishReason, Limits, StepOutcome};

use crate::engine::support::{BUSY_S, Cluster, assigned, is_start};

/// Runs one worker with one task per iteration, each of which takes 1 s of runtime, [`BUSY_S`] of worker time and one
/// employment, with loss 1/k in iteration k. Returns the iteration after which it ends, and the reason.
fn end(iterations: u64, limits: Limits) -> (u64, FinishReason) {
    let mut cluster = Cluster::with("uta", EngineConfig { iterations, limits, ..EngineConfig::default() });
    // A run begins with its first assignment.
    cluster.now_s = 100.0;
    let mut effects = cluster.join(1);
    for iteration in 1.. {
        cluster.now_s += 1.0;
        let (number, lease) = assigned(&effects)[0];
        cluster.done(number, &lease).unwrap();
        let loss = Some(1.0 / iteration as f64);
        effects = cluster.commit_with(iteration, StepOutcome { loss, ..StepOutcome::default() });
        if let [Effect::Finish { reason }] = effects[..] {
            assert_eq!(cluster.join(2), [], "a finished run assigns nothing");
            return (iteration, reason);
        }
    }
    unreachable!("a run ends")
}

#[test]
fn each_limit_ends_the_run_after_the_step_that_reaches_it() {
    let none = Limits::default();
    let loss = Limits { target_loss: Some(0.3), ..none };
    let runtime = Limits { runtime_s: Some(2.5), ..none };
    let worker_time = Limits { total_worker_time_s: Some(4.0 * BUSY_S + 0.1), ..none };
    let employments = Limits { employments: Some(6), ..none };
    for (limits, iteration, reason) in [
        (none, 8, FinishReason::Iterations),
        (loss, 4, FinishReason::TargetLoss),
        (Limits { target_loss: Some(0.25), ..none }, 4, FinishReason::TargetLoss),
        (runtime, 3, FinishReason::Runtime),
        (Limits { runtime_s: Some(3.0), ..none }, 3, FinishReason::Runtime),
        (worker_time, 5, FinishReason::TotalWorkerTime),
        (employments, 6, FinishReason::Employments),
        (Limits { runtime_s: Some(4.0), ..loss }, 4, FinishReason::TargetLoss),
        (Limits { employments: Some(2), ..worker_time }, 2, FinishReason::Employments),
        (Limits { runtime_s: Some(8.0), ..none }, 8, FinishReason::Runtime),
        (
            Limits { target_accuracy: Some(0.9), employments: Some(9), runtime_s: Some(9.0), ..none },
            8,
            FinishReason::Iterations,
        ),
    ] {
        assert_eq!(end(8, limits), (iteration, reason), "{limits:?}");
    }
}

#[test]
fn a_loss_that_is_no_number_is_no_success() {
    let limits = Limits { target_loss: Some(0.5), ..Limits::default() };
    let mut cluster = Cluster::with("uta", EngineConfig { iterations: 9, limits, ..EngineConfig::default() });
    let mut effects = cluster.join(1);
    for (iteration, loss) in (1..).zip([None, Some(f64::NAN), Some(f64::INFINITY)]) {
        cluster.done(1, &assigned(&effects)[0].1).unwrap();
        effects = cluster.commit_with(iteration, StepOutcome { loss, ..StepOutcome::default() });
        assert!(is_start(&effects[0], iteration + 1));
    }
}
