//! Helpers that make and save checkpoints in tests.

use std::sync::mpsc;

use ata_scheduler::{Engine, EngineConfig, POLICIES, PolicyContext};
use ata_sums::{Metadata, Optimizer, ParameterTable, TensorSizes, TrainingConfig, TrainingState, Units};
use ata_types::{Iteration, WireFormat, WorkerId};

use super::saver::{SaveJob, SaveResult, Saver};
use super::{Checkpoint, Progress, Retention, Store, VERSION};

/// Returns a state after `iteration` steps, in which every number depends on `iteration`.
pub fn sample_checkpoint(parameters: usize, iteration: u64) -> Checkpoint {
    let sizes = TensorSizes::new([parameters]);
    let units = Units::from_exponents(&[-20], &sizes).expect("one tensor");
    let config = TrainingConfig { optimizer: Optimizer::default(), sizes, format: WireFormat::F32Exact, budget: 2 };
    let mut training = TrainingState::new(config, vec![0.5; parameters]);
    training.set_units(units);
    for step in 0..iteration {
        let sum = (0..parameters).map(|at| (at as u64 + step) as f32).collect();
        training.step_whole(sum, 2, 0.1, true);
        training.commit_step(&[1.0]);
    }
    let policy = POLICIES.build("ata-auto", &PolicyContext::default()).expect("a policy");
    let progress = Progress {
        version: VERSION,
        run_id: "run".into(),
        iteration: Iteration(iteration),
        epoch: 1,
        time_s: 0.1 + 0.2,
        samples: 96 * iteration,
        data: "synthetic, seed 1".into(),
        best_accuracy: Some(0.1),
        workers: vec![(WorkerId::from_slot(1), "b".into()), (WorkerId::from_slot(0), "a".into())],
        expelled: vec![("c".into(), "mismatches".into())],
        engine: Engine::new(EngineConfig::default(), policy).save(),
        settings: "budget = 16\n".into(),
    };
    Checkpoint { training, progress }
}

/// Writes checkpoints through the saver thread, one after the other. Returns whether each was written, or why not.
pub fn save_checkpoints(
    store: Box<dyn Store>,
    retention: Retention,
    table: &ParameterTable,
    checkpoints: impl IntoIterator<Item = Checkpoint>,
) -> Vec<Result<Iteration, String>> {
    let saver = Saver { store, retention, table: table.clone(), metadata: Metadata::new() };
    let (reports, received) = mpsc::channel();
    let jobs = saver.spawn(move |result| reports.send(result).unwrap_or(()));
    for Checkpoint { training: state, progress } in checkpoints {
        let (copy, training) = mpsc::sync_channel(1);
        copy.send(state).expect("there is room for one");
        jobs.send(SaveJob::Checkpoint { training, progress: Box::new(progress) }).expect("the saver runs");
    }
    drop(jobs);
    let outcome = |result| match result {
        SaveResult::Checkpoint { iteration, .. } => Ok(iteration),
        SaveResult::CheckpointFailed { reason, .. } => Err(reason),
        SaveResult::Model { .. } => unreachable!("no model is written"),
    };
    received.into_iter().map(outcome).collect()
}
