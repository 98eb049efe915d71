//! The task that owns the run: commands in, effects out.
//!
//! It takes one command at a time, tells the engine what happened, and carries out the effects in order. A message that
//! cannot be sent is a separate event, handled after everything else. Nothing here blocks, and the time is passed in.
//!
//! # Layout
//! - here: the loop, and the end of the run
//! - `command`: what the other tasks send
//! - `effects`: carries out the engine's effects, in order
//! - `workers`: how sessions begin and end
//! - `transfers`: parameters, gradients and data

mod command;
mod effects;
#[cfg(test)]
mod tests;
mod transfers;
mod workers;

pub(crate) use command::{Command, Gradient, NotAnnounced};

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::future::Future;
use std::path::PathBuf;
use std::pin::{Pin, pin};
use std::sync::mpsc as std_mpsc;
use std::time::{Duration, Instant};

use ata_learn::{Dataset, Partial, TrainerConfig};
use ata_record::{EndState, JOURNAL_VERSION, RecordError, RunEvent, RunState};
use ata_scheduler::{AbortReason, Effect, Engine, Event, LeaseId, WorkerStatistics};
use ata_wire::{FarewellReason, RunSpec};
use bytes::Bytes;
use tokio::sync::{mpsc, oneshot, watch};

use crate::clock::{Clock, TICK};
use crate::config::{CoordinatorConfig, TrainingData};
use crate::parameters::ParameterVersions;
use crate::publisher::Publisher;
use crate::report::{RunError, RunReport, StopReason};
use crate::sessions::{Session, Sessions};
use crate::training::{self, Work};

pub(crate) struct Owner {
    engine: Engine,
    sessions: Sessions,
    /// Effects not carried out yet.
    queue: VecDeque<Effect>,
    /// Sessions that ended while effects were carried out, and why; the engine is told afterwards.
    broken: Vec<(Session, &'static str)>,
    /// Gradients that were accepted, and wait for the outcome of their lease.
    arrived: HashMap<LeaseId, Arrived>,
    versions: ParameterVersions,
    training: std_mpsc::Sender<Work>,
    publisher: Publisher,
    /// What an earlier run learned about the workers, by name.
    warm_start: BTreeMap<String, WorkerStatistics>,
    run_id: String,
    run_spec: RunSpec,
    training_file: Option<(Bytes, PathBuf)>,
    test_data: Dataset,
    heartbeat_timeout: Duration,
    /// Seconds of the run's clock, as of this turn.
    now_s: f64,
    /// When heartbeats are checked next.
    next_look_s: f64,
    /// Mean loss of the step that is being committed.
    loss: f64,
    tasks_outlasted: u64,
    last_failure: String,
    ending: Option<Ending>,
}

/// A gradient that the engine accepted.
struct Arrived {
    busy_s: Vec<f64>,
    gradient: Partial,
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
        commands: mpsc::Sender<Command>,
        state: watch::Sender<RunState>,
    ) -> Result<Self, RunError> {
        let run_spec = config.run_spec();
        let training_file = match &config.training_data {
            TrainingData::Synthetic { .. } => None,
            TrainingData::Cifar100(file) => Some((Bytes::copy_from_slice(&file.sha256()), file.path().to_owned())),
        };
        // If the owner is gone, the run is over, and what its threads report no longer matters.
        let told = commands.clone();
        let failed = move |error| drop(told.blocking_send(Command::RecordFailed(error)));
        let publisher = Publisher::create(&config.run_folder, state, failed)?;
        publisher.publish(RunEvent::Run {
            version: JOURNAL_VERSION,
            run_id: config.run_id.clone(),
            policy: config.policy_specification,
            budget: config.engine.budget,
            iterations: config.engine.iterations,
            task_batch: config.task_batch,
            seed: config.engine.seed,
        });
        let trainer_config = TrainerConfig { learning_rate: config.learning_rate, seed: config.engine.seed };
        let trainer = config.model.trainer(&trainer_config, &config.device);
        let report = move |report| drop(commands.blocking_send(Command::Training(report)));
        let (training, parameters) = training::spawn(trainer, report);
        Ok(Self {
            engine: Engine::new(config.engine, config.policy),
            sessions: Sessions::default(),
            queue: VecDeque::new(),
            broken: Vec::new(),
            arrived: HashMap::new(),
            versions: ParameterVersions::new(parameters),
            training,
            publisher,
            warm_start: config.warm_start,
            run_id: config.run_id,
            run_spec,
            training_file,
            test_data: config.test_data,
            heartbeat_timeout: config.heartbeat_timeout,
            now_s: 0.0,
            next_look_s: 0.0,
            loss: f64::NAN,
            tasks_outlasted: 0,
            last_failure: "none".into(),
            ending: None,
        })
    }

    /// Serves commands until the run ends, or `stop` resolves.
    pub(crate) async fn run(
        mut self,
        mut commands: mpsc::Receiver<Command>,
        stop: impl Future<Output = ()>,
    ) -> RunReport {
        let mut stop = pin!(stop);
        let mut clock = Clock::new(Instant::now());
        self.tell(Event::Proceed);
        let ending = loop {
            let command = tokio::select! {
                command = commands.recv() => command,
                () = tokio::time::sleep(self.until_next_look()) => None,
                () = &mut stop => break Ending::Stop(StopReason::Stopped),
            };
            if let Some(ending) = self.turn(clock.look(Instant::now()), command) {
                break ending;
            }
        };
        // Later requests are told that the run is over.
        drop(commands);
        self.finish(ending, stop).await
    }

    /// Handles a command, if any, and the passing of time, with all that follows. Returns why the run ends, if it does.
    fn turn(&mut self, now_s: f64, command: Option<Command>) -> Option<Ending> {
        self.now_s = now_s;
        if let Some(command) = command {
            self.command(command);
        }
        self.look_at_the_time();
        self.carry_out_all();
        self.ending.take()
    }

    /// Time until something may be overdue.
    fn until_next_look(&mut self) -> Duration {
        let timeout = self.engine.poll_timeout().map(|at_s| Duration::from_secs_f64((at_s - self.now_s).max(0.0)));
        // A millisecond more: a deadline has passed only after its time, not at it.
        timeout.map_or(TICK, |timeout| TICK.min(timeout + Duration::from_millis(1)))
    }

    fn look_at_the_time(&mut self) {
        if self.now_s >= self.next_look_s {
            self.next_look_s = self.now_s + TICK.as_secs_f64();
            for session in self.sessions.close_silent(self.now_s, self.heartbeat_timeout.as_secs_f64()) {
                self.lost(&session, "no heartbeat");
            }
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

    async fn finish(mut self, ending: Ending, stop: Pin<&mut impl Future<Output = ()>>) -> RunReport {
        self.take_leave(&ending);
        let ended = match ending {
            Ending::Stop(StopReason::Finished(reason)) => {
                self.evaluate(stop).await.map(|()| StopReason::Finished(reason))
            }
            Ending::Stop(StopReason::Stopped) => Ok(StopReason::Stopped),
            Ending::Abort(reason) => Err(RunError::Aborted { reason, last_failure: self.last_failure.clone() }),
            Ending::TrainingFailed => Err(RunError::Training),
            Ending::RecordFailed(error) => Err(error.into()),
        };
        let (state, reason) = match &ended {
            Ok(StopReason::Finished(reason)) => (EndState::Finished, reason.name().to_owned()),
            Ok(StopReason::Stopped) => (EndState::Stopped, "it was told to stop".to_owned()),
            Err(error) => (EndState::Failed, error.to_string()),
        };
        self.publisher.publish(RunEvent::End { time_s: self.now_s, state, reason });
        let of = |number: u32| self.engine.statistics().get(number as usize - 1).copied().unwrap_or_default();
        let statistics = self.sessions.names().map(|(number, name)| (name.to_string(), of(number))).collect();
        let parameters_sha256 = self.versions.current().sha256();
        let (state, written) = self.publisher.finish();
        let ended = written.map_err(RunError::from).and(ended);
        RunReport { ended, state, statistics, parameters_sha256, tasks_outlasted: self.tasks_outlasted }
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

    /// Evaluates the final parameters on the test data, unless `stop` resolves first.
    async fn evaluate(&mut self, stop: Pin<&mut impl Future<Output = ()>>) -> Result<(), RunError> {
        let iteration = self.engine.iteration();
        self.publisher.publish(RunEvent::Evaluating { time_s: self.now_s, iteration });
        let (reply, answer) = oneshot::channel();
        let data = self.test_data.clone();
        self.training.send(Work::Evaluate { data, reply }).map_err(|_| RunError::Training)?;
        let began = Instant::now();
        let evaluation = tokio::select! {
            evaluation = answer => evaluation.map_err(|_| RunError::Training)??,
            () = stop => return Ok(()),
        };
        self.now_s += began.elapsed().as_secs_f64();
        let (loss, accuracy) = (evaluation.loss, evaluation.accuracy);
        self.publisher.publish(RunEvent::Evaluation { time_s: self.now_s, iteration, loss, accuracy });
        Ok(())
    }
}
