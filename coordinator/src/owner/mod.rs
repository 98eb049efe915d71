//! The task that owns the run: commands in, effects out.
//!
//! It takes one command at a time, tells the engine what happened, and carries out the effects in order. A message that
//! cannot be sent is a separate event, handled after everything else. Nothing here blocks, and the time is passed in.
//!
//! # Layout
//! - here: the loop, and the end of the run
//! - `command`: what the other tasks send
//! - `effects`: carries out the engine's effects, in order
//! - `start`: the state in which a run begins or goes on
//! - `workers`: how sessions begin and end
//! - `transfers`: parameters, gradients and data; `uploads`: which gradients may arrive, and when
//! - `trust`: workers that send what does not count
//! - `evaluation`, `saving`: evaluations, checkpoints and models, beside the iterations

mod command;
mod effects;
mod evaluation;
mod saving;
mod start;
#[cfg(test)]
mod tests;
mod transfers;
mod trust;
mod uploads;
mod workers;

pub(crate) use command::{Command, Gradient, NotAnnounced};

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::future::Future;
use std::path::PathBuf;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::time::{Duration, Instant};

use ata_learn::{Dataset, LearningRate, OpenDevice};
use ata_record::{EndState, RecordError, RunEvent, RunState};
use ata_scheduler::{AbortReason, Effect, Engine, Event, WorkerStatistics};
use ata_types::{LeaseId, WorkerId};
use ata_wire::{FarewellReason, Pool, RunSpec, duration};
use tokio::sync::{mpsc, watch};

use crate::checkpoint::Saver;
use crate::clock::{Clock, tick};
use crate::config::{CheckpointConfig, CoordinatorConfig};
use crate::evaluation::EvaluationThread;
use crate::parameters::{ParameterSet, Versions};
use crate::publisher::Publisher;
use crate::refusals::Refusals;
use crate::report::{RunError, RunReport, StopReason};
use crate::send_file::TrainingFile;
use crate::session::{Patience, Session};
use crate::sessions::Sessions;
use crate::trace::Trace;
use crate::training::{self, Arrived, Report, Taken, TrainingThread};
use crate::uploads::Uploads;
use evaluation::Evaluations;
use saving::{Checkpoints, Described};
use start::Begun;

pub(crate) struct Owner {
    engine: Engine,
    sessions: Sessions,
    /// Effects not carried out yet.
    queue: VecDeque<Effect>,
    /// Sessions that ended while effects were carried out, and why; the engine is told afterwards.
    broken: Vec<(Session, &'static str)>,
    /// Gradients that were accepted, and wait for the outcome of their lease.
    arrived: HashMap<LeaseId, Arrived>,
    refusals: Refusals,
    uploads: Uploads,
    /// Those of the current iteration.
    parameters: ParameterSet,
    versions: Versions,
    training: TrainingThread,
    learning_rate: LearningRate,
    evaluations: Evaluations,
    checkpoints: Checkpoints,
    publisher: Publisher,
    trace: Trace,
    /// What an earlier run learned about the workers, by name.
    warm_start: BTreeMap<String, WorkerStatistics>,
    run_id: String,
    run_spec: RunSpec,
    run_folder: PathBuf,
    training_file: Option<Arc<TrainingFile>>,
    patience: Patience,
    /// Seconds of the run's clock, as of this turn.
    now_s: f64,
    /// When heartbeats are checked next.
    next_look_s: f64,
    /// What is known of the step that is being committed.
    step: Taken,
    last_failure: String,
    ending: Option<Ending>,
    /// Whether the run is ending: no iteration begins any more.
    is_ending: bool,
}

/// Why the loop ends.
#[derive(Debug)]
enum Ending {
    Stop(StopReason),
    Abort(AbortReason),
    TrainingFailed,
    RecordFailed(RecordError),
}

impl Owner {
    pub(crate) fn new(
        config: CoordinatorConfig,
        commands: &mpsc::Sender<Command>,
        pool: Pool,
        state: watch::Sender<RunState>,
    ) -> Result<Self, RunError> {
        let (run_spec, data) = (config.run_spec(), config.training_data.identity());
        let (patience, training_file) = (config.patience(), config.training_data.file());
        let trace = Trace::new(config.span_links, &config.run_id, &config.policy_specification);
        let Begun { engine, names, training, publisher, time_s, epoch, saved, best } = start::begin(
            config.start,
            start::Settings {
                engine: config.engine,
                policy: config.policy,
                policy_specification: config.policy_specification,
                optimizer: config.optimizer,
                model: &*config.model,
                model_specification: &config.model_specification,
                run_id: &config.run_id,
                task_batch: config.task_batch,
                data: &data,
                folder: &config.run_folder,
                listeners: config.listeners,
            },
            commands,
            state,
        )?;
        let mut versions = Versions::new(config.transfers.versions(run_spec.parameters));
        let (training, parameters) =
            training::spawn(training, config.aggregate, pool, config.span_links, sender(commands, Command::Training));
        versions.add(&parameters);
        let evaluation = evaluation(config.test_data, config.device, commands);
        let CheckpointConfig { cadence, retention, store } = config.checkpoints;
        let saver = Saver { store, retention, table: config.model.table(), metadata: config.model_metadata };
        let jobs = saver.spawn(sender(commands, Command::Saved));
        let described = Described { settings: config.settings, data };
        Ok(Self {
            engine,
            sessions: Sessions::restored(names),
            queue: VecDeque::new(),
            broken: Vec::new(),
            arrived: HashMap::new(),
            refusals: Refusals::default(),
            uploads: Uploads::new(config.transfers.uploads(run_spec.parameters)),
            parameters,
            versions,
            training,
            learning_rate: config.learning_rate,
            evaluations: Evaluations::new(evaluation, config.eval_every, best),
            checkpoints: Checkpoints::new(jobs, cadence, epoch, described, saved, time_s),
            publisher,
            trace,
            warm_start: config.warm_start,
            run_id: config.run_id,
            run_spec,
            run_folder: config.run_folder,
            training_file,
            patience,
            now_s: time_s,
            next_look_s: time_s,
            step: Taken::default(),
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
        let mut clock = Clock::new(Instant::now(), self.now_s, tick(self.patience.heartbeat));
        // The evaluation after the last step that was saved is no part of the checkpoint.
        self.evaluate_if_due(self.parameters.steps());
        let room_freed = self.uploads.freed();
        self.tell(Event::Proceed);
        let ending = loop {
            let command = tokio::select! {
                command = commands.recv() => command,
                () = room_freed.notified() => None,
                () = tokio::time::sleep(self.until_next_look()) => None,
                () = &mut stop => break Ending::Stop(StopReason::Stopped),
            };
            if let Some(ending) = self.turn(clock.look(Instant::now()), command) {
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
        self.look_at_the_time();
        self.make_room();
        self.carry_out_all();
        self.ending.take()
    }

    /// Time until something may be overdue.
    fn until_next_look(&mut self) -> Duration {
        let timeout = self.engine.poll_timeout().map(|at_s| duration(at_s - self.now_s));
        // A millisecond more: a deadline has passed only after its time, not at it.
        let tick = tick(self.patience.heartbeat);
        timeout.map_or(tick, |timeout| tick.min(timeout + Duration::from_millis(1)))
    }

    fn look_at_the_time(&mut self) {
        if self.now_s >= self.next_look_s {
            self.next_look_s = self.now_s + tick(self.patience.heartbeat).as_secs_f64();
            for (session, why) in self.sessions.close_overdue(self.now_s, &self.patience) {
                self.dismiss(session, why);
            }
            self.look_at_uploads();
            self.write_refusals(false);
        }
        if self.engine.poll_timeout().is_some_and(|at_s| at_s <= self.now_s) {
            self.tell(Event::Timeout);
        }
    }

    /// Passes an event to the engine, and queues its effects.
    fn tell(&mut self, event: Event) {
        let mut effects = Vec::new();
        self.engine.handle(self.now_s, event, &mut effects);
        self.queue.extend(effects);
    }

    async fn finish(
        mut self,
        ending: Ending,
        mut commands: mpsc::Receiver<Command>,
        stop: Pin<&mut impl Future<Output = ()>>,
    ) -> RunReport {
        self.is_ending = true;
        self.take_leave(&ending);
        self.write_refusals(true);
        // What is saved next holds whole steps only.
        self.settle(&mut commands, |owner| !owner.training.is_stepping).await;
        self.save_last(&mut commands).await;
        let mut ended = self.result(ending);
        if let Some(Err(error)) = self.ending.take().map(|failed| self.result(failed)) {
            ended = ended.and(Err(error));
        }
        if let Ok(reason @ StopReason::Finished(_)) = ended {
            let evaluated = self.evaluate_last(&mut commands, stop).await;
            ended = evaluated.map(|is_done| if is_done { reason } else { StopReason::Stopped });
        }
        let written = self.write_model(&mut commands).await;
        let ended = ended.and_then(|reason| written.map(|()| reason).map_err(RunError::from));
        let (state, reason) = match &ended {
            Ok(StopReason::Finished(reason)) => (EndState::Finished, reason.name().to_owned()),
            Ok(StopReason::Stopped) => (EndState::Stopped, "it was told to stop".to_owned()),
            Err(error) => (EndState::Failed, error.to_string()),
        };
        self.publisher.publish(RunEvent::End { time_s: self.now_s, state, reason });
        let of = |worker: WorkerId| self.engine.statistics().get(worker.slot()).copied().unwrap_or_default();
        let statistics = self.sessions.names().map(|(worker, name)| (name.to_string(), of(worker))).collect();
        let parameters_sha256 = self.parameters.sha256();
        let (state, written) = self.publisher.finish();
        RunReport {
            ended: written.map_err(RunError::from).and(ended),
            state,
            statistics,
            not_saved: self.checkpoints.failed,
            parameters_sha256,
        }
    }

    fn result(&self, ending: Ending) -> Result<StopReason, RunError> {
        match ending {
            Ending::Stop(reason) => Ok(reason),
            Ending::Abort(reason) => Err(RunError::Aborted { reason, last_failure: self.last_failure.clone() }),
            Ending::TrainingFailed => Err(RunError::Training),
            Ending::RecordFailed(error) => Err(error.into()),
        }
    }

    /// Handles what the run's own threads report, until `is_done`. Requests come too late, and are told that the run is
    /// over. Results that are compared are those of an iteration that will not be completed.
    async fn settle(&mut self, commands: &mut mpsc::Receiver<Command>, is_done: impl Fn(&Self) -> bool) {
        let (since_s, since) = (self.now_s, Instant::now());
        while !is_done(self) {
            let Some(command) = commands.recv().await else { return };
            self.now_s = since_s + since.elapsed().as_secs_f64();
            match command {
                Command::Evaluated(_)
                | Command::Saved(_)
                | Command::Training(Report::Stepped(_) | Report::Failed)
                | Command::RecordFailed(_) => {
                    self.command(command);
                    self.carry_out_all();
                }
                _ => {}
            }
        }
    }

    /// Tells the workers that the run is over, and why.
    fn take_leave(&mut self, ending: &Ending) {
        let (reason, detail) = match ending {
            Ending::Stop(StopReason::Finished(_)) => (FarewellReason::Finished, "the run is finished"),
            Ending::Stop(StopReason::Stopped) => (FarewellReason::Stopping, "the coordinator was told to stop"),
            Ending::Abort(_) | Ending::TrainingFailed | Ending::RecordFailed(_) => {
                (FarewellReason::Failed, "the run failed; see the coordinator's log")
            }
        };
        for session in self.sessions.close_all() {
            session.farewell(reason, detail);
        }
    }
}

/// The thread that evaluates on the test images.
fn evaluation(test_data: Arc<dyn Dataset>, device: OpenDevice, commands: &mpsc::Sender<Command>) -> EvaluationThread {
    EvaluationThread::spawn(move || test_data.evaluator(&device), sender(commands, Command::Evaluated))
}

/// Sends what a thread reports to the owner. If that is gone, the run is over, and the report no longer matters.
fn sender<T>(commands: &mpsc::Sender<Command>, wrap: fn(T) -> Command) -> impl Fn(T) + Send + use<T> {
    let commands = commands.clone();
    move |report| drop(commands.blocking_send(wrap(report)))
}
