//! The task that drives the engine: commands in, effects out.
//!
//! # Layout
//! - here: [`Driver`], its loop, and the passing of time
//! - `commands`: [`Command`], what other tasks send, and how sessions begin and end
//! - `reports`: leases that are computed; `vectors`: the sums that workers are asked for; `sharing`: those that workers exchange
//!   among each other; `units`: those of the first iteration
//! - `effects`: the engine's effects
//! - `boundary`: what happens between two iterations: step, evaluation, checkpoint
//! - `measurements`: batches of the test data that are measured
//! - `ending`: how a run ends
//!
//! The parts, each of which owns its state:
//! - `start`: the state in which a run begins
//! - `run_info`: what a worker gets to know when it joins
//! - `sessions`: the connected workers
//! - `leases`: what workers hold, and what they reported
//! - `refusals`: gradients that were refused
//! - `steps`: the parameters, and the training thread
//! - `evaluations`, `checkpoints`: what runs next to the iterations
//! - `publisher`: events
//! - `clock`: the run's time

mod boundary;
mod checkpoints;
mod clock;
mod commands;
mod effects;
mod ending;
mod evaluations;
mod leases;
mod measurements;
mod publisher;
mod refusals;
mod reports;
mod run_info;
mod sessions;
mod sharing;
mod start;
mod steps;
pub(crate) mod testing;
mod units;
mod vectors;

pub(crate) use commands::Command;
pub(crate) use sessions::{Presence, SessionHandle};
pub(crate) use vectors::{GAVE_UP, VectorUpload};

use std::collections::VecDeque;
use std::future::Future;
use std::path::PathBuf;
use std::pin::pin;
use std::time::{Duration, Instant};

use ata_record::{RecordError, RunState};
use ata_scheduler::{AbortReason, Effect, Engine, Event};
use ata_types::CHUNK_VALUES;
use ata_wire::duration;
use tokio::sync::{mpsc, watch};

use crate::checkpoint::Saver;
use crate::config::{CheckpointConfig, CoordinatorConfig, RunConfig, Timeouts, TrainingConfig};
use crate::links::{LinkMeter, RecordedLinks};
use crate::reduction::Reduction;
use crate::reduction::exchanges::Exchanges;
use crate::report::{RunError, RunReport, StopReason};
use crate::training::{self, Pace, Paced};
use ata_sums::TensorSizes;
use checkpoints::{Checkpoints, RunDescription};
use clock::{Clock, tick};
use evaluations::Evaluations;
use leases::OpenLeases;
use publisher::Publisher;
use refusals::Refusals;
use run_info::RunInfo;
use sessions::{Session, Sessions};
use start::{StartState, Starter};
use steps::{InitialState, Steps};

/// Drives the engine with real workers.
///
/// It handles one command at a time: it passes events to the engine, and carries out the engine's effects in order. A part that
/// finds a session to close or an event for the engine returns it. The time is an argument, and nothing here blocks.
///
/// # Methods
/// - Construction: [`Self::new`], once.
/// - Loop: [`Self::run`], which calls [`Self::turn`] for each command and at least once per tick. A turn calls, in this order,
///   `command`, `check_time` and `carry_out_all`.
/// - Commands (`commands`, `reports`, `vectors`): `hello`, `ready`, `parameters`, `announce_vector` and so on answer gRPC handlers;
///   `step_finished`, `save_finished` (`boundary`) and `measured_here` (`measurements`) take in what threads
///   did.
/// - Effects (`effects`): a method per effect. `committed` (`boundary`) begins what is due between two iterations.
/// - Events: `notify` passes an event to the engine and queues the effects.
/// - End (`ending`): `finish`, once.
pub(crate) struct Driver {
    engine: Engine,
    /// Effects that were not carried out yet.
    effects: VecDeque<Effect>,
    /// Sessions that ended while effects were carried out, and why. The engine hears of them afterwards.
    ended_sessions: Vec<(Session, &'static str)>,
    info: RunInfo,
    sessions: Sessions,
    leases: OpenLeases,
    refusals: Refusals,
    reduction: Reduction,
    meter: LinkMeter,
    links: RecordedLinks,
    exchanges: Exchanges,
    /// The pace of the steps, for those who receive chunks.
    paced: Paced,
    /// The tensors of the model.
    sizes: TensorSizes,
    steps: Steps,
    evaluations: Evaluations,
    checkpoints: Checkpoints,
    publisher: Publisher,
    run_folder: PathBuf,
    /// Seconds of the run's clock, as of this turn.
    now_s: f64,
    /// When heartbeats are checked next.
    next_check_s: f64,
    /// What the last worker that failed reported, or what was wrong with its result.
    last_failure: String,
    ending: Option<Ending>,
    /// Whether the run is ending, so that no iteration begins any more.
    is_ending: bool,
}

/// Why the loop of a run ends.
#[derive(Debug)]
pub enum Ending {
    /// All iterations are committed, or the run was told to stop.
    Stop(StopReason),
    /// The engine aborted the run.
    Abort(AbortReason),
    /// The training thread failed.
    TrainingFailed,
    /// The journal can no longer be written.
    RecordFailed(RecordError),
}

impl Driver {
    /// Begins or resumes a run, and starts its threads. `commands` leads to the loop.
    pub(crate) fn new(
        config: CoordinatorConfig,
        commands: &mpsc::Sender<Command>,
        state: watch::Sender<RunState>,
    ) -> Result<Self, RunError> {
        let spec = config.run_spec();
        let CoordinatorConfig { mut run, engine, policy, problem, training, evaluation, checkpoints, workers, .. } =
            config;
        let TrainingConfig { start, optimizer, learning_rate, format } = training;
        let sizes = TensorSizes::from(&problem.model.table());
        let keeps_apart = engine.verify.is_some();
        let training = ata_sums::TrainingConfig { optimizer, sizes: sizes.clone(), format, budget: engine.budget };
        let starter = Starter { run: &mut run, engine, policy, problem: &problem, training, state };
        let started = starter.start(start, sender(commands, Command::RecordFailed))?;
        let StartState { engine, names, training, publisher, time_s, epoch, saved, best } = started;
        let RunConfig { id, folder, settings, .. } = run;

        let reports = sender(commands, Command::Training);
        let (initial, pace) = (InitialState::of(&training), Pace::default());
        let paced = pace.follow();
        let work = training::spawn(training, keeps_apart, pace, reports);
        let files: Vec<_> = problem.data.files().chain(evaluation.source.files()).cloned().collect();
        let CheckpointConfig { cadence, retention, store, model_metadata } = checkpoints;
        let saver = Saver { store, retention, table: problem.model.table(), metadata: model_metadata };
        let description = RunDescription {
            run_id: id.clone(),
            epoch,
            samples_per_iteration: spec.budget * u64::from(spec.task_batch),
            data: problem.data.identity(),
            settings,
        };
        let jobs = saver.spawn(sender(commands, Command::Save));
        let chunks = spec.parameters.div_ceil(CHUNK_VALUES as u64);
        let (timeouts, transfers) = (Timeouts::new(&workers), workers.transfers);
        Ok(Self {
            engine,
            effects: VecDeque::new(),
            ended_sessions: Vec::new(),
            sessions: Sessions::restored(names),
            leases: OpenLeases::default(),
            refusals: Refusals::default(),
            reduction: Reduction::new(chunks, keeps_apart, transfers.uploads(spec.parameters)),
            meter: LinkMeter::default(),
            links: RecordedLinks::default(),
            exchanges: Exchanges::new(workers.exchange),
            paced,
            sizes,
            steps: Steps::new(work, learning_rate, &initial, transfers.versions(spec.parameters)),
            evaluations: Evaluations::start(evaluation, best, sender(commands, Command::MeasuredHere)),
            checkpoints: Checkpoints::new(jobs, cadence, description, saved, time_s),
            publisher,
            run_folder: folder,
            info: RunInfo::new(id, spec, timeouts, files, workers.warm_start, workers.peer_hosts),
            now_s: time_s,
            next_check_s: time_s,
            last_failure: "none".into(),
            ending: None,
            is_ending: false,
        })
    }

    /// Serves commands until the run ends, or `stop` resolves.
    pub(crate) async fn run(
        mut self,
        mut commands: mpsc::Receiver<Command>,
        stop: impl Future<Output = ()>,
    ) -> RunReport {
        let mut stop = pin!(stop);
        let mut clock = Clock::new(Instant::now(), self.now_s, self.tick());
        // A checkpoint does not hold the evaluation after its last step.
        self.evaluate_if_due();
        self.notify(Event::Proceed);
        let ending = loop {
            let command = tokio::select! {
                command = commands.recv() => command,
                () = tokio::time::sleep(self.until_next_check()) => None,
                () = &mut stop => break Ending::Stop(StopReason::Stopped),
            };
            if let Some(ending) = self.turn(clock.read(Instant::now()), command) {
                break ending;
            }
        };
        self.finish(ending, commands, stop).await
    }

    /// Handles a command, if any, and the passing of time, with all that follows. Returns why the run ends, if it does.
    fn turn(&mut self, now_s: f64, command: Option<Command>) -> Option<Ending> {
        self.now_s = now_s;
        if let Some(command) = command {
            self.command(command);
        }
        self.check_time();
        self.carry_out_all();
        self.take_ending()
    }

    /// Why the run ends, if anything since the last call ends it.
    fn take_ending(&mut self) -> Option<Ending> {
        let failed = self.steps.has_failed().then_some(Ending::TrainingFailed);
        failed.or(self.ending.take())
    }

    /// Longest time between two turns.
    fn tick(&self) -> Duration {
        tick(self.info.timeouts().heartbeat)
    }

    /// Time until something may be overdue.
    fn until_next_check(&mut self) -> Duration {
        let timeout = self.engine.poll_timeout().map(|at_s| duration(at_s - self.now_s));
        // A millisecond more, since a deadline has passed only after its time, not at it.
        timeout.map_or(self.tick(), |timeout| self.tick().min(timeout + Duration::from_millis(1)))
    }

    fn check_time(&mut self) {
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

    /// Ends the sessions of silent workers, and goes on with an evaluation, if that is due.
    fn check_sessions(&mut self) {
        if self.now_s < self.next_check_s {
            return;
        }
        self.next_check_s = self.now_s + self.tick().as_secs_f64();
        for (session, why) in self.sessions.close_overdue(self.now_s, self.info.timeouts()) {
            self.dismiss(session, why);
        }
        self.advance_evaluation();
    }

    /// Passes an event to the engine, and queues its effects.
    fn notify(&mut self, event: Event) {
        let mut effects = Vec::new();
        self.engine.handle(self.now_s, event, &mut effects);
        self.effects.extend(effects);
    }
}

/// Sends the messages of a thread to the driver. Without a driver the run is over, and they no longer matter.
fn sender<T>(commands: &mpsc::Sender<Command>, wrap: fn(T) -> Command) -> impl Fn(T) + Send + use<T> {
    let commands = commands.clone();
    move |message| drop(commands.blocking_send(wrap(message)))
}
