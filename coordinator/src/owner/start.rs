//! The state in which a run begins, or goes on from a checkpoint.

use std::path::Path;

use ata_learn::{Model, Optimizer, TrainingState};
use ata_record::{BEST_MODEL_FILE, JOURNAL_VERSION, Listeners, RunEvent, RunState, resume_journal};
use ata_scheduler::{Engine, EngineConfig, Policy, WorkerId};
use tokio::sync::{mpsc, watch};

use super::evaluation::Best;
use super::{Command, sender};
use crate::checkpoint::{Checkpoint, Progress};
use crate::config::Start;
use crate::names::Names;
use crate::publisher::Publisher;
use crate::report::RunError;

/// The settings that matter at the start.
pub(super) struct Settings<'a> {
    pub(super) engine: EngineConfig,
    pub(super) policy: Box<dyn Policy>,
    pub(super) policy_specification: String,
    pub(super) optimizer: Optimizer,
    pub(super) model: &'a dyn Model,
    pub(super) model_specification: &'a str,
    pub(super) run_id: &'a str,
    pub(super) task_batch: u32,
    /// [`crate::TrainingData::identity`]
    pub(super) data: &'a str,
    pub(super) folder: &'a Path,
    pub(super) listeners: Listeners,
}

/// A run that has begun, and goes on.
pub(super) struct Begun {
    pub(super) engine: Engine,
    pub(super) names: Names,
    pub(super) training: TrainingState,
    pub(super) publisher: Publisher,
    /// Seconds of the run's clock.
    pub(super) time_s: f64,
    /// How often the run was resumed.
    pub(super) epoch: u64,
    /// The last iteration of the checkpoint that it goes on from; 0 if it begins.
    pub(super) saved: u64,
    pub(super) tasks_outlasted: u64,
    pub(super) best: Best,
}

/// Begins a run, and its journal.
pub(super) fn begin(
    start: Start,
    settings: Settings<'_>,
    commands: &mpsc::Sender<Command>,
    state: watch::Sender<RunState>,
) -> Result<Begun, RunError> {
    let parameters = match start {
        Start::Checkpoint(checkpoint) => return resume(*checkpoint, settings, commands, state),
        Start::Parameters(parameters) => parameters,
        Start::Random => settings.model.initial_parameters(settings.engine.seed),
    };
    let failed = sender(commands, Command::RecordFailed);
    let publisher = Publisher::create(settings.folder, state, settings.listeners, failed)?;
    publisher.publish(RunEvent::Run {
        version: JOURNAL_VERSION,
        run_id: settings.run_id.into(),
        policy: settings.policy_specification,
        budget: settings.engine.budget,
        iterations: settings.engine.iterations,
        task_batch: settings.task_batch,
        seed: settings.engine.seed,
        model: Some(settings.model_specification.into()),
    });
    Ok(Begun {
        engine: Engine::new(settings.engine, settings.policy),
        names: Names::default(),
        training: TrainingState::new(settings.optimizer, parameters),
        publisher,
        time_s: 0.0,
        epoch: 0,
        saved: 0,
        tasks_outlasted: 0,
        best: Best::default(),
    })
}

fn resume(
    checkpoint: Checkpoint,
    settings: Settings<'_>,
    commands: &mpsc::Sender<Command>,
    state: watch::Sender<RunState>,
) -> Result<Begun, RunError> {
    let Checkpoint { training, progress } = checkpoint;
    let Progress { iteration, time_s, tasks_outlasted, best_accuracy, workers, expelled, engine, .. } = progress;
    if progress.data != settings.data {
        return Err(RunError::OtherData { was: progress.data, is: settings.data.into() });
    }
    let epoch = progress.epoch + 1;
    let iterations = settings.engine.iterations;
    let engine = Engine::restore(settings.engine, settings.policy, engine)?;
    let mut listeners = settings.listeners;
    let past = resume_journal(settings.folder, iteration, |event| listeners.recall(event))?;
    // If the best model is lost, the best one from now on takes its place.
    let has_best = settings.folder.join(BEST_MODEL_FILE).exists();
    let best = Best { accuracy: best_accuracy, loss: past.lowest_test_loss };
    let best = if has_best { best } else { Best::default() };
    let failed = sender(commands, Command::RecordFailed);
    let publisher = Publisher::append(settings.folder, past, state, listeners, failed)?;
    publisher.publish(RunEvent::Resume {
        time_s,
        version: JOURNAL_VERSION,
        epoch,
        iteration,
        policy: settings.policy_specification,
        iterations,
    });
    let known = |(number, name): (u32, String)| Some((WorkerId::new(number)?, name.parse().ok()?));
    let expelled = expelled.into_iter().filter_map(|(name, why)| Some((name.parse().ok()?, why)));
    let names = Names::restored(workers.into_iter().filter_map(known), expelled);
    Ok(Begun { engine, names, training, publisher, time_s, epoch, saved: iteration, tasks_outlasted, best })
}
