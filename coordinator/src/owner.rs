//! The task that owns the engine: commands in, effects out.

use std::collections::{BTreeMap, HashMap};
use std::future::Future;
use std::path::PathBuf;
use std::pin::pin;
use std::sync::mpsc as std_mpsc;
use std::time::{Duration, Instant};

use ata_learn::{Dataset, Partial, TrainerConfig};
use ata_scheduler::{AbortReason, Effect, Engine, Event, Lease, LeaseId, WaitReason, WorkerId};
use ata_wire::{Assignment, FarewellReason, GradientHeader, Hello, RunSpec, SessionToken, ToWorker, Welcome};
use bytes::Bytes;
use tokio::sync::{mpsc, oneshot, watch};
use tonic::Status;

use crate::config::{CoordinatorConfig, TrainingData};
use crate::membership::{Membership, Session, SessionEnds};
use crate::recorder::{Outcome, Recorder};
use crate::report::{Progress, ProgressPhase, RunError, RunReport, StopReason};
use crate::training::{self, ParameterSet, Stepped, Work};

/// What the other tasks tell the owner.
pub(crate) enum Command {
    /// A worker introduced itself.
    Hello { hello: Hello, reply: oneshot::Sender<Result<SessionEnds, Status>> },
    /// A worker can compute.
    Ready { session: SessionToken },
    /// A worker is alive.
    Heartbeat { session: SessionToken },
    /// A lease came to nothing.
    LeaseFailed { session: SessionToken, lease: u64, reason: String },
    /// A control stream ended.
    Left { session: SessionToken, why: String },
    /// A worker wants parameters.
    Parameters { session: SessionToken, iteration: u64, reply: oneshot::Sender<Result<ParameterSet, Status>> },
    /// A worker is about to send a gradient.
    Announce { session: SessionToken, lease: u64, iteration: u64, reply: oneshot::Sender<Result<(), Status>> },
    /// A whole, finite gradient came in.
    Gradient(Gradient),
    /// A worker lacks the training data.
    Data { session: SessionToken, sha256: Bytes, reply: oneshot::Sender<Result<PathBuf, Status>> },
    /// The training thread took a step.
    Stepped(Stepped),
    /// The training thread failed.
    TrainingFailed,
}

/// A gradient that passed every check but the engine's.
pub(crate) struct Gradient {
    pub(crate) header: GradientHeader,
    pub(crate) values: Vec<f32>,
    /// Whether it will enter the step, and if not, why not.
    pub(crate) reply: oneshot::Sender<Result<(), String>>,
}

/// Time between two looks at overdue heartbeats and leases: an eighth of the default heartbeat timeout.
const TICK: Duration = Duration::from_millis(250);

pub(crate) struct Owner {
    engine: Engine,
    members: Membership,
    /// Leases that workers hold.
    leases: HashMap<LeaseId, (WorkerId, Lease)>,
    parameters: ParameterSet,
    training: std_mpsc::Sender<Work>,
    recorder: Recorder,
    progress: watch::Sender<Progress>,
    run_id: String,
    run_spec: RunSpec,
    training_file: Option<(Bytes, PathBuf)>,
    test_data: Dataset,
    heartbeat_timeout: Duration,
    began: Instant,
    /// When the first iteration began, and when the last one was committed, in seconds since `began`.
    span_s: Option<(f64, f64)>,
    losses: Option<(f64, f64)>,
    task_times_s: Vec<Vec<f64>>,
    tasks_outlasted: u64,
    refused: BTreeMap<String, u64>,
    last_failure: String,
    ending: Option<Ending>,
}

/// Why the loop is to end.
enum Ending {
    Stop(StopReason),
    Abort(AbortReason),
    Fail(RunError),
}

impl Owner {
    pub(crate) fn new(
        config: CoordinatorConfig,
        commands: mpsc::Sender<Command>,
        progress: watch::Sender<Progress>,
    ) -> Result<Self, RunError> {
        let run_spec = config.run_spec();
        let training_file = match &config.training_data {
            TrainingData::Synthetic { .. } => None,
            TrainingData::Cifar100(file) => Some((Bytes::copy_from_slice(&file.sha256()), file.path().to_owned())),
        };
        let trainer_config = TrainerConfig { learning_rate: config.learning_rate, seed: config.engine.seed };
        let trainer = config.model.trainer(&trainer_config, &config.device);
        let (training, parameters) = training::spawn(trainer, commands);
        Ok(Self {
            engine: Engine::new(config.engine, config.policy),
            members: Membership::default(),
            leases: HashMap::new(),
            parameters,
            training,
            recorder: Recorder::create(&config.run_folder)?,
            progress,
            run_id: config.run_id,
            run_spec,
            training_file,
            test_data: config.test_data,
            heartbeat_timeout: config.heartbeat_timeout,
            began: Instant::now(),
            span_s: None,
            losses: None,
            task_times_s: Vec::new(),
            tasks_outlasted: 0,
            refused: BTreeMap::new(),
            last_failure: String::new(),
            ending: None,
        })
    }

    /// Serves commands until the run ends, or `stop` resolves.
    pub(crate) async fn run(
        mut self,
        mut commands: mpsc::Receiver<Command>,
        stop: impl Future<Output = ()>,
    ) -> Result<RunReport, RunError> {
        let mut stop = pin!(stop);
        let mut tick = tokio::time::interval(TICK);
        let ending = loop {
            tokio::select! {
                Some(command) = commands.recv() => self.command(command),
                _ = tick.tick() => self.tick(),
                () = &mut stop => break Ending::Stop(StopReason::Stopped),
            }
            if let Some(ending) = self.ending.take() {
                break ending;
            }
        };
        // Whoever still asks is told that the run is over.
        drop(commands);
        self.finish(ending).await
    }

    fn command(&mut self, command: Command) {
        match command {
            Command::Hello { hello, reply } => answer(reply, self.hello(&hello)),
            Command::Ready { session } => self.ready(session),
            Command::Heartbeat { session } => self.heard(session),
            Command::LeaseFailed { session, lease, reason } => self.lease_failed(session, LeaseId(lease), &reason),
            Command::Left { session, why } => {
                if let Some(session) = self.members.close(session) {
                    self.lost(&session, &why);
                }
            }
            Command::Parameters { session, iteration, reply } => answer(reply, self.parameters(session, iteration)),
            Command::Announce { session, lease, iteration, reply } => {
                answer(reply, self.announced(session, LeaseId(lease), iteration))
            }
            Command::Gradient(Gradient { header, values, reply }) => answer(reply, self.gradient(&header, values)),
            Command::Data { session, sha256, reply } => answer(reply, self.data(session, &sha256)),
            Command::Stepped(stepped) => self.stepped(stepped),
            Command::TrainingFailed => self.ending = Some(Ending::Fail(RunError::Training)),
        }
    }

    // ---- sessions -------------------------------------------------------------------------------------------------------

    fn hello(&mut self, hello: &Hello) -> Result<SessionEnds, Status> {
        let (ends, replaced) = self.members.open(hello, Instant::now())?;
        if let Some(session) = replaced {
            self.lost(&session, "it connected again");
        }
        let session = self.members.of_token(ends.token)?;
        let welcome = ToWorker::Welcome(Welcome {
            session: session.token,
            number: session.worker.number(),
            run_id: self.run_id.clone(),
            heartbeat_interval_ms: (self.heartbeat_timeout.as_millis() / 4).max(1) as u32,
            run: self.run_spec.clone(),
        });
        session.send(welcome);
        tracing::info!(worker = %session.worker, name = %session.name, device = hello.device, "worker connected");
        Ok(ends)
    }

    fn heard(&mut self, token: SessionToken) {
        if let Ok(session) = self.members.of_token(token) {
            session.heard = Instant::now();
        }
    }

    fn ready(&mut self, token: SessionToken) {
        let Ok(session) = self.members.of_token(token) else { return };
        if !session.ready {
            session.ready = true;
            let worker = session.worker;
            tracing::info!(%worker, name = %session.name, "worker ready");
            self.tell(Event::WorkerJoined { worker });
        }
        self.heard(token);
    }

    /// A session that is already closed ended.
    fn lost(&mut self, session: &Session, why: &str) {
        tracing::warn!(worker = %session.worker, name = %session.name, why, "worker lost");
        if session.ready {
            self.drop_leases(session.worker);
            self.tell(Event::WorkerLost { worker: session.worker });
        }
    }

    /// Records the leases of a worker as lost.
    fn drop_leases(&mut self, worker: WorkerId) {
        let lost = self.leases.extract_if(|_, (holder, _)| *holder == worker);
        for (_, (worker, lease)) in lost {
            self.recorder.tasks(worker, &lease, &[], Outcome::Lost);
        }
    }

    fn tick(&mut self) {
        for token in self.members.silent(Instant::now(), self.heartbeat_timeout) {
            if let Some(session) = self.members.close(token) {
                self.lost(&session, "no heartbeat");
            }
        }
        self.tell(Event::Tick);
    }

    /// Sends a worker a message; one that does not take messages is lost.
    fn send(&mut self, worker: WorkerId, message: ToWorker) {
        if self.members.of_worker(worker).is_some_and(|session| !session.send(message))
            && let Some(session) = self.members.close_worker(worker)
        {
            self.lost(&session, "it does not take messages");
        }
    }

    // ---- transfers ------------------------------------------------------------------------------------------------------

    fn parameters(&mut self, token: SessionToken, iteration: u64) -> Result<ParameterSet, Status> {
        self.members.of_token(token)?;
        if iteration == self.parameters.iteration {
            Ok(self.parameters.clone())
        } else {
            let current = self.parameters.iteration;
            Err(Status::not_found(format!("parameters of iteration {iteration}: the current one is {current}")))
        }
    }

    fn data(&mut self, token: SessionToken, sha256: &Bytes) -> Result<PathBuf, Status> {
        self.members.of_token(token)?;
        match &self.training_file {
            Some((expected, path)) if expected == sha256 => Ok(path.clone()),
            _ => Err(Status::not_found("this run does not use that data set")),
        }
    }

    /// Whether the worker holds that lease, so that its gradient may be sent at all.
    fn announced(&mut self, token: SessionToken, lease: LeaseId, iteration: u64) -> Result<(), Status> {
        let worker = self.members.of_token(token)?.worker;
        match self.leases.get(&lease) {
            Some((holder, held)) if *holder == worker && held.iteration == iteration => Ok(()),
            _ => {
                self.count_refused("lease not held");
                Err(Status::aborted(format!("worker {worker} does not hold lease {lease} of iteration {iteration}")))
            }
        }
    }

    fn gradient(&mut self, header: &GradientHeader, values: Vec<f32>) -> Result<(), String> {
        let worker = self.members.of_token(header.session).map_err(|status| status.message().to_owned())?.worker;
        let lease = LeaseId(header.lease);
        let mut effects = Vec::new();
        let event = Event::TasksDone { worker, lease, busy_s: &header.busy_s };
        if let Err(refusal) = self.engine.handle(self.now_s(), event, &mut effects) {
            self.count_refused("lease not held");
            return Err(refusal.to_string());
        }
        let Some((_, held)) = self.leases.remove(&lease) else { return Err("no such lease".into()) };
        self.recorder.tasks(worker, &held, &header.busy_s, Outcome::Applied);
        self.task_times_s.resize(self.task_times_s.len().max(worker.slot() + 1), Vec::new());
        self.task_times_s[worker.slot()].extend_from_slice(&header.busy_s);
        self.tasks_outlasted += header.outlasted;
        let (first, count) = (held.tasks.first, held.tasks.count);
        self.train(Work::Add(Partial { first, count, gradient: values, loss: header.loss_sum }));
        self.apply(effects);
        Ok(())
    }

    fn lease_failed(&mut self, token: SessionToken, lease: LeaseId, reason: &str) {
        let Ok(session) = self.members.of_token(token) else { return };
        let worker = session.worker;
        tracing::warn!(%worker, %lease, reason, "lease failed");
        self.count_refused(reason);
        self.last_failure = format!("worker {worker}: {reason}");
        let mut effects = Vec::new();
        if self.engine.handle(self.now_s(), Event::TasksFailed { worker, lease }, &mut effects).is_ok() {
            if let Some((_, held)) = self.leases.remove(&lease) {
                self.recorder.tasks(worker, &held, &[], Outcome::Failed);
            }
            self.apply(effects);
        }
    }

    fn count_refused(&mut self, reason: &str) {
        *self.refused.entry(reason.to_owned()).or_default() += 1;
    }

    // ---- the engine -----------------------------------------------------------------------------------------------------

    fn now_s(&self) -> f64 {
        self.began.elapsed().as_secs_f64()
    }

    /// Tells the engine something it never refuses.
    fn tell(&mut self, event: Event<'_>) {
        let mut effects = Vec::new();
        match self.engine.handle(self.now_s(), event, &mut effects) {
            Ok(()) => self.apply(effects),
            Err(refusal) => tracing::error!(%refusal, "the engine refused an event"),
        }
    }

    fn apply(&mut self, effects: Vec<Effect>) {
        for effect in effects {
            match effect {
                Effect::Start { .. } => self.started(),
                Effect::Assign { worker, lease } => self.assign(worker, lease),
                Effect::Cancel { worker, lease } => {
                    if let Some((_, held)) = self.leases.remove(&lease) {
                        self.recorder.tasks(worker, &held, &[], Outcome::Cancelled);
                    }
                    self.send(worker, ToWorker::Cancel { lease: lease.0 });
                }
                Effect::Evict { worker, silent_s } => self.evict(worker, silent_s),
                Effect::Step { iteration, tasks } => {
                    let tasks = tasks.iter().map(|range| range.count).sum();
                    self.train(Work::Step { iteration, tasks });
                }
                Effect::Wait { reason } => self.wait(reason),
                Effect::Finish => self.ending = Some(Ending::Stop(StopReason::Finished)),
                Effect::Abort { reason } => self.ending = Some(Ending::Abort(reason)),
            }
        }
    }

    fn started(&mut self) {
        let now_s = self.now_s();
        self.span_s.get_or_insert((now_s, now_s));
        self.recorder.allocation(now_s, &self.engine);
        let allocation = self.engine.decision().map_or_else(Vec::new, |(workers, decision)| {
            workers.iter().map(|worker| worker.number()).zip(decision.allocation.iter().copied()).collect()
        });
        let workers = self.members.ready();
        self.progress.send_modify(|progress| {
            progress.phase = ProgressPhase::Training;
            progress.allocation = allocation;
            progress.workers = workers;
        });
    }

    fn assign(&mut self, worker: WorkerId, lease: Lease) {
        self.leases.insert(lease.id, (worker, lease));
        let assignment = Assignment {
            lease: lease.id.0,
            iteration: lease.iteration,
            first_task: lease.tasks.first,
            tasks: lease.tasks.count,
        };
        self.send(worker, ToWorker::Assign(assignment));
    }

    fn evict(&mut self, worker: WorkerId, silent_s: f64) {
        let detail = format!("no result for {silent_s:.0} s");
        tracing::warn!(%worker, detail, "worker evicted");
        self.drop_leases(worker);
        if let Some(session) = self.members.close_worker(worker) {
            session.send(ToWorker::Farewell { reason: FarewellReason::Evicted, detail });
        }
    }

    fn wait(&mut self, reason: WaitReason) {
        let WaitReason::Workers { present, needed } = reason;
        tracing::info!("{reason}");
        self.progress.send_modify(|progress| {
            progress.phase = ProgressPhase::Waiting { present, needed };
            progress.workers = present;
        });
    }

    fn train(&mut self, work: Work) {
        if self.training.send(work).is_err() {
            self.ending = Some(Ending::Fail(RunError::Training));
        }
    }

    fn stepped(&mut self, stepped: Stepped) {
        let Stepped { iteration, loss, parameters } = stepped;
        self.parameters = parameters;
        let (first, _) = self.losses.unwrap_or((loss, loss));
        self.losses = Some((first, loss));
        let now_s = self.now_s();
        if let Some(span_s) = &mut self.span_s {
            span_s.1 = now_s;
        }
        let mut effects = Vec::new();
        if let Err(refusal) = self.engine.handle(now_s, Event::StepCommitted { iteration }, &mut effects) {
            tracing::error!(%refusal, "the engine refused a step");
        }
        if let Some(cost) = self.engine.ledger().last
            && let Err(error) = self.recorder.step(now_s, loss, &cost)
        {
            self.ending = Some(Ending::Fail(error));
            return;
        }
        self.progress.send_modify(|progress| {
            progress.iterations_done = iteration;
            progress.loss = Some(loss);
        });
        self.apply(effects);
    }

    // ---- the end --------------------------------------------------------------------------------------------------------

    async fn finish(mut self, ending: Ending) -> Result<RunReport, RunError> {
        let (reason, detail) = match &ending {
            Ending::Stop(StopReason::Finished) => (FarewellReason::Finished, "the run is finished"),
            Ending::Stop(StopReason::Stopped) => (FarewellReason::Stopping, "the coordinator was told to stop"),
            Ending::Abort(_) | Ending::Fail(_) => (FarewellReason::Finished, "the run failed"),
        };
        let workers = self.members.ever();
        for session in self.members.close_all() {
            session.send(ToWorker::Farewell { reason, detail: detail.into() });
        }
        let stopped = match ending {
            Ending::Stop(stopped) => stopped,
            Ending::Abort(reason) => return Err(RunError::Aborted { reason, last_failure: self.last_failure }),
            Ending::Fail(error) => return Err(error),
        };
        let evaluation = match stopped {
            StopReason::Finished => {
                self.progress.send_modify(|progress| progress.phase = ProgressPhase::Evaluating);
                let (reply, answer) = oneshot::channel();
                self.training.send(Work::Evaluate { data: self.test_data, reply }).map_err(|_| RunError::Training)?;
                Some(answer.await.map_err(|_| RunError::Training)??)
            }
            StopReason::Stopped => None,
        };
        Ok(RunReport {
            stopped,
            workers,
            ledger: self.engine.ledger().clone(),
            runtime_s: self.span_s.map_or(0.0, |(first, last)| last - first),
            first_loss: self.losses.map(|(first, _)| first),
            final_loss: self.losses.map(|(_, last)| last),
            evaluation,
            parameters_sha256: self.parameters.sha256(),
            task_times_s: self.task_times_s,
            tasks_outlasted: self.tasks_outlasted,
            refused: self.refused,
        })
    }
}

/// Answers a request; whoever asked may be gone by now, which is no concern of ours.
fn answer<T>(reply: oneshot::Sender<T>, value: T) {
    drop(reply.send(value));
}
