//! The task that drives the engine: it receives commands, and carries out effects.
//!
//! # Layout
//! - here: [`Driver`], its loop, and the passing of time
//! - `commands`: [`DriverCommand`], which other tasks send, and the start and end of sessions, with the facts that a worker receives
//! - `reports`: the leases that workers hold, and their results; `vectors`: the sums that workers are asked for
//! - `sharing`: the sums that workers exchange in shards; `units`: the units of the first iteration
//! - `effects`: the engine's effects
//! - `boundary`: the boundary between two iterations: step, evaluation, checkpoint
//! - `measurements`: measurements of test batches
//! - `ending`: the end of a run
//!
//! The parts, each of which owns its state:
//! - `start`: the initial state of a run
//! - `sessions`: the connected workers
//! - `refusals`: refused gradients
//! - `steps`: the parameters, and the training thread
//! - `evaluations`, `checkpoints`: work that runs concurrently with the iterations
//! - `publisher`: publishes events
//! - `clock`: the run's time

mod boundary;
mod checkpoints;
mod clock;
mod commands;
mod effects;
mod ending;
mod evaluations;
mod measurements;
mod publisher;
mod refusals;
mod reports;
mod sessions;
mod sharing;
mod start;
mod steps;
mod units;
mod vectors;

pub(crate) use commands::DriverCommand;
pub(crate) use sessions::{Presence, SessionHandle};
pub(crate) use vectors::{GAVE_UP, VectorUpload};

use std::collections::VecDeque;
use std::future::Future;
use std::path::PathBuf;
use std::pin::pin;
use std::sync::Arc;
use std::time::{Duration, Instant};

use ata_record::{RunEvent, RunState};
use ata_scheduler::{Effect, Engine, Event};
use ata_types::CHUNK_VALUES;
use ata_wire::duration;
use tokio::sync::{mpsc, watch};

use crate::checkpoint::Saver;
use crate::config::{CheckpointConfig, CoordinatorConfig, RunConfig, Timeouts, TrainingSetup};
use crate::links::{LinkMeter, RecordedLinks};
use crate::reduction::Reduction;
use crate::reduction::exchanges::Exchanges;
use crate::report::{RunError, RunReport, StopReason};
use crate::send_file::ServedFile;
use crate::training::{Paced, StepPace};
use ata_sums::TensorSizes;
use checkpoints::{CheckpointedRun, Checkpoints};
use clock::{Clock, tick};
use commands::RunInfo;
use evaluations::Evaluations;
use publisher::Publisher;
use refusals::Refusals;
use reports::OpenLeases;
use sessions::{RESOURCES_INTERVAL_S, Session, Sessions};
use start::{StartState, Starter};
use steps::Steps;

/// Drives the engine with real workers.
///
/// It handles one command at a time: it passes events to the engine, and carries out the engine's effects in order. A part that finds a
/// session to close or an event for the engine returns it. No method blocks. [`Self::run`] calls [`Self::turn`] for each command and at
/// least once per tick.
pub(crate) struct Driver {
    engine: Engine,
    effects: VecDeque<Effect>,
    /// The sessions that ended while effects were carried out, and why. The engine is notified of them afterwards.
    ended_sessions: Vec<(Session, &'static str)>,
    info: RunInfo,
    sessions: Sessions,
    leases: OpenLeases,
    refusals: Refusals,
    reduction: Reduction,
    meter: LinkMeter,
    links: RecordedLinks,
    exchanges: Exchanges,
    /// The pace of the steps, for the tasks that receive chunks.
    paced: Paced,
    sizes: TensorSizes,
    steps: Steps,
    evaluations: Evaluations,
    checkpoints: Checkpoints,
    publisher: Publisher,
    run_folder: PathBuf,
    /// The time of the run's clock in this turn, in seconds.
    now_s: f64,
    /// The time of the next heartbeat check, in seconds.
    next_check_s: f64,
    /// The time at which workers' use of their machines is read next.
    next_reading_s: f64,
    /// The reason of the last worker failure, or what was wrong with the worker's result.
    last_failure: String,
    ending: Option<Ending>,
    /// Whether the run is ending, so that no new iteration begins.
    is_ending: bool,
}

/// The reason why the loop of a run ends.
type Ending = Result<StopReason, RunError>;

impl Driver {
    /// Begins or resumes a run, and starts its threads. `commands` is the sender of the loop's queue.
    pub(crate) fn new(
        config: CoordinatorConfig,
        commands: &mpsc::Sender<DriverCommand>,
        state: watch::Sender<RunState>,
    ) -> Result<Self, RunError> {
        let (spec, are_separate) = (config.run_spec(), config.keeps_vectors_apart());
        let CoordinatorConfig { mut run, engine, policy, problem, training, evaluation, checkpoints, workers, .. } =
            config;
        let TrainingSetup { start, optimizer, learning_rate, follows_shares, format, .. } = training;
        let (sizes, verify) = (TensorSizes::from(&problem.model.table()), engine.verify);
        let training = ata_sums::TrainingConfig { optimizer, sizes: sizes.clone(), format, budget: spec.most_tasks };
        let failed = Box::new(sender(commands, DriverCommand::RecordFailed));
        let starter = Starter { run: &mut run, engine, policy, problem: &problem, training, state, failed };
        let StartState { engine, names, training, publisher, time_s, epoch, saved, best } = starter.start(start)?;
        let RunConfig { id, folder, settings, .. } = run;

        let (pace, versions) = (StepPace::default(), workers.transfers.versions(spec.parameters));
        let (paced, reports) = (pace.follow(), sender(commands, DriverCommand::Training));
        let steps = Steps::start(training, learning_rate, spec.budget, versions, are_separate, pace, reports);
        let files = problem.data.files().chain(evaluation.source.files());
        let info = RunInfo {
            id: id.clone(),
            timeouts: Timeouts::new(&workers),
            files: files.map(|file| (file.sha256, Arc::new(ServedFile::new(file.clone())))).collect(),
            warm_start: workers.warm_start,
            peer_hosts: workers.peer_hosts,
            follows_shares,
            spec,
        };
        let CheckpointConfig { cadence, retention, store, model_metadata } = checkpoints;
        let saver = Saver { store, retention, table: problem.model.table(), metadata: model_metadata };
        let description = CheckpointedRun {
            run_id: id,
            epoch,
            task_batch: info.spec.task_batch,
            data: problem.data.identity(),
            settings,
        };
        let jobs = saver.spawn(sender(commands, DriverCommand::Save));
        let uploads = workers.transfers.uploads(info.spec.parameters);
        Ok(Self {
            engine,
            effects: VecDeque::new(),
            ended_sessions: Vec::new(),
            sessions: Sessions::restored(names),
            leases: OpenLeases::default(),
            refusals: Refusals::default(),
            reduction: Reduction::new(info.spec.parameters.div_ceil(CHUNK_VALUES as u64), are_separate, uploads),
            meter: LinkMeter::default(),
            links: RecordedLinks::default(),
            exchanges: Exchanges::new(workers.exchange),
            paced,
            sizes,
            steps,
            evaluations: Evaluations::start(evaluation, verify, best, sender(commands, DriverCommand::MeasuredHere)),
            checkpoints: Checkpoints::new(jobs, cadence, description, saved, time_s),
            publisher,
            run_folder: folder,
            info,
            now_s: time_s,
            next_check_s: time_s,
            next_reading_s: time_s,
            last_failure: "none".into(),
            ending: None,
            is_ending: false,
        })
    }

    /// Serves commands until the run ends, or `stop` resolves.
    pub(crate) async fn run(
        mut self,
        mut commands: mpsc::Receiver<DriverCommand>,
        stop: impl Future<Output = ()>,
    ) -> RunReport {
        let mut stop = pin!(stop);
        let mut clock = Clock::new(Instant::now(), self.now_s, self.tick());
        // A checkpoint does not include the evaluation after its last step, so a resumed run may have to start with it.
        self.evaluate_if_due();
        self.notify(Event::Proceed);
        let ending = loop {
            let command = tokio::select! {
                // A run that ends in its first turn polls `stop` as well.
                biased;
                () = &mut stop => break Ok(StopReason::Stopped),
                command = commands.recv() => command,
                () = tokio::time::sleep(self.until_next_check()) => None,
            };
            if let Some(ending) = self.turn(clock.read(Instant::now()), command) {
                break ending;
            }
        };
        self.finish(ending, commands, stop).await
    }

    /// Handles a command, if any, and the passing of time, and carries out all resulting effects. Returns why the run ends, if it does.
    fn turn(&mut self, now_s: f64, command: Option<DriverCommand>) -> Option<Ending> {
        self.now_s = now_s;
        if let Some(command) = command {
            self.command(command);
        }
        self.check_time();
        self.carry_out_all();
        self.take_ending()
    }

    /// Returns why the run ends, if anything since the last call ended it.
    fn take_ending(&mut self) -> Option<Ending> {
        if self.steps.has_failed {
            return Some(Err(self.steps.failure.take().map_or(RunError::Training, RunError::Optimizer)));
        }
        self.ending.take()
    }

    fn tick(&self) -> Duration {
        tick(self.info.timeouts.heartbeat)
    }

    /// Returns the time until something may be overdue.
    fn until_next_check(&mut self) -> Duration {
        let timeout = self.engine.poll_timeout().map(|at_s| duration(at_s - self.now_s));
        // One millisecond is added, since a deadline has passed only after its time, not at it.
        timeout.map_or(self.tick(), |timeout| self.tick().min(timeout + Duration::from_millis(1)))
    }

    fn check_time(&mut self) {
        self.let_go();
        if self.now_s >= self.next_check_s {
            self.check_sessions();
            self.check_vectors();
            self.check_exchange();
            self.write_refusals(false);
        }
        if self.engine.poll_timeout().is_some_and(|at_s| at_s <= self.now_s) {
            self.notify(Event::Timeout);
        }
    }

    /// Ends the sessions of silent workers, and advances the evaluation in progress.
    fn check_sessions(&mut self) {
        if self.now_s < self.next_check_s {
            return;
        }
        self.next_check_s = self.now_s + self.tick().as_secs_f64();
        for (session, why) in self.sessions.close_overdue(self.now_s, &self.info.timeouts) {
            self.dismiss(session, why);
        }
        self.advance_evaluation();
        if self.now_s >= self.next_reading_s {
            self.next_reading_s = self.now_s + RESOURCES_INTERVAL_S;
            let workers = self.sessions.resources(self.now_s);
            if !workers.is_empty() {
                self.publisher.publish(RunEvent::Resources { time_s: self.now_s, workers });
            }
        }
    }

    /// Passes an event to the engine, and queues its effects.
    fn notify(&mut self, event: Event) {
        let mut effects = Vec::new();
        self.engine.handle(self.now_s, event, &mut effects);
        self.effects.extend(effects);
    }
}

/// Returns a function that sends the messages of a thread to the driver. If the driver is gone, they no longer matter.
fn sender<T>(commands: &mpsc::Sender<DriverCommand>, wrap: fn(T) -> DriverCommand) -> impl Fn(T) + Send + use<T> {
    let commands = commands.clone();
    move |message| drop(commands.blocking_send(wrap(message)))
}

#[cfg(test)]
pub(crate) mod tests;
