//! The state in which a run begins, or goes on from a checkpoint.

use std::path::Path;

use ata_learn::{Model, Optimizer, TrainingState};
use ata_record::{BEST_MODEL_FILE, DAMAGED_FILE, JOURNAL_VERSION, Listeners, RunEvent, RunState, resume_journal};
use ata_scheduler::{Engine, EngineConfig, Ledger, Policy};
use ata_types::{Iteration, WorkerId};
use tokio::sync::{mpsc, watch};

use super::evaluation::Best;
use super::{Command, sender};
use crate::checkpoint::Checkpoint;
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

impl Settings<'_> {
    /// The first line of the journal.
    fn run(&self) -> RunEvent {
        RunEvent::Run {
            version: JOURNAL_VERSION,
            run_id: self.run_id.into(),
            policy: self.policy_specification.clone(),
            budget: self.engine.budget,
            iterations: self.engine.iterations,
            task_batch: self.task_batch,
            seed: self.engine.seed,
            model: self.model_specification.into(),
        }
    }
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
    let (begins, failed) = (settings.run(), sender(commands, Command::RecordFailed));
    let publisher = Publisher::create(settings.folder, state, settings.listeners, failed)?;
    publisher.publish(begins);
    Ok(Begun {
        engine: Engine::new(settings.engine, settings.policy),
        names: Names::default(),
        training: TrainingState::new(settings.optimizer, parameters),
        publisher,
        time_s: 0.0,
        epoch: 0,
        saved: 0,
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
    progress.check_data(settings.data)?;
    let begins = settings.run();
    let engine = Engine::restore(settings.engine, settings.policy, progress.engine)?;
    let mut listeners = settings.listeners;
    let hear = |event: &RunEvent| listeners.recall(event);
    let resumed = resume_journal(settings.folder, settings.run_id, Iteration(progress.iteration), hear)?;
    if resumed.unreadable > 0 {
        let (lines, kept) = (resumed.unreadable, settings.folder.join(DAMAGED_FILE));
        tracing::warn!("{lines} lines of the journal cannot be read; it is kept as it was in {}", kept.display());
    }
    let mut past = resumed.state;
    if past.iterations != progress.iteration {
        let (found, all) = (past.iterations, progress.iteration);
        tracing::warn!("the journal holds {found} of {all} steps: figures lack the others, the checkpoint does not");
    }
    if resumed.unreadable > 0 || past.iterations != progress.iteration {
        correct(&mut past, engine.ledger(), &progress.workers, progress.time_s);
    }
    // If the best model is lost, the best one from now on takes its place.
    let has_best = settings.folder.join(BEST_MODEL_FILE).exists();
    let best = Best { accuracy: progress.best_accuracy, loss: past.lowest_test_loss };
    let failed = sender(commands, Command::RecordFailed);
    let publisher = Publisher::append(settings.folder, past, state, listeners, failed)?;
    if !resumed.has_begun {
        publisher.publish(begins);
    }
    let epoch = progress.epoch + 1;
    publisher.publish(RunEvent::Resume {
        time_s: progress.time_s,
        version: JOURNAL_VERSION,
        epoch,
        iteration: Iteration(progress.iteration),
        policy: settings.policy_specification,
        iterations: settings.engine.iterations,
    });
    let known = |(worker, name): (WorkerId, String)| Some((worker, name.parse().ok()?));
    let expelled = progress.expelled.into_iter().filter_map(|(name, why)| Some((name.parse().ok()?, why)));
    Ok(Begun {
        engine,
        names: Names::restored(progress.workers.into_iter().filter_map(known), expelled),
        training,
        publisher,
        time_s: progress.time_s,
        epoch,
        saved: progress.iteration,
        best: if has_best { best } else { Best::default() },
    })
}

/// Sets the sums that an incomplete journal got wrong to what the checkpoint says.
fn correct(past: &mut RunState, ledger: &Ledger, workers: &[(WorkerId, String)], time_s: f64) {
    past.iterations = ledger.iterations;
    past.iteration_time_s = ledger.iteration_time_s;
    past.total_worker_time_s = ledger.total_worker_time_s;
    past.tasks_applied = ledger.tasks_applied;
    past.tasks_wasted = ledger.tasks_wasted;
    past.employments = ledger.employments;
    past.results = ledger.results;
    past.span_s = Some((past.span_s.map_or(0.0, |(began_s, _)| began_s), time_s));
    for (worker, name) in workers {
        let known = ledger.workers.get(worker.slot());
        let worker = past.workers.entry(*worker).or_default();
        worker.name.clone_from(name);
        if let Some(known) = known {
            (worker.tasks_applied, worker.busy_s, worker.overhead_s) =
                (known.tasks_applied, known.busy_s, known.overhead_s);
        }
    }
}
