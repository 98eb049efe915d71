//! The commands that other tasks send to the driver, and the start and end of sessions.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use ata_learn::BatchResult;
use ata_net::Peer;
use ata_record::{RecordError, RefusalKind, RunEvent};
use ata_scheduler::{Event, Observed, Report, WorkerStatistics};
use ata_types::{Iteration, LeaseId, VectorId, WorkerId};
use ata_wire::{
    FarewellReason, FromWorker, GradientHeader, Hello, PeerAddress, Reader, Receipt, RunSpec, SessionToken, ToWorker,
    Welcome, WorkerName,
};
use bytes::Bytes;
use tokio::sync::oneshot;
use tonic::Status;

use super::Driver;
use super::sessions::{OpenedSession, Session, SessionHandle};
use crate::checkpoint::SaveResult;
use crate::config::{Timeouts, interval_ms};
use crate::parameters::{DueSets, TrainedParameters};
use crate::reduction::VectorReply;
use crate::send_file::{File, ServedFile};
use crate::training::TrainingEvent;

/// A request from a gRPC handler, or a message from a thread.
pub(crate) enum DriverCommand {
    /// A worker introduced itself.
    Hello { hello: Hello, peer: Peer, reply: oneshot::Sender<Result<SessionHandle, Status>> },
    /// A worker sent a message on its control stream.
    Said { session: SessionToken, message: FromWorker },
    /// A control stream ended.
    Left { session: SessionToken, why: String },
    /// A worker is ready to receive parameters.
    Parameters { session: SessionToken, reader: Reader, reply: oneshot::Sender<Result<DueSets, Status>> },
    /// A worker is about to send a requested vector. The reply is sent once its leases are known to be computed.
    AnnounceVector { header: GradientHeader, peer: Peer, reply: VectorReply },
    /// All chunks of a vector were passed on or, if `values` is set, assembled.
    VectorArrived { session: SessionToken, vector: VectorId, values: Option<Vec<i32>>, reply: oneshot::Sender<Receipt> },
    /// A vector is incomplete, or failed a check.
    VectorFailed { session: SessionToken, vector: VectorId, kind: RefusalKind, reason: String },
    /// A worker requests the training data.
    Data { session: SessionToken, sha256: Bytes, peer: Peer, reply: oneshot::Sender<Result<File, Status>> },
    /// The training thread sent a message.
    Training(TrainingEvent),
    /// The coordinator has measured a batch of the test data.
    MeasuredHere(BatchResult),
    /// A worker is ready to receive the parameters of an evaluation.
    EvaluatedParameters {
        session: SessionToken,
        step: Iteration,
        reader: Reader,
        reply: oneshot::Sender<Result<TrainedParameters, Status>>,
    },
    /// The operator lifts what counts against the workers of a name. The reply is the first iteration whose checkpoint includes that.
    Forgive { name: WorkerName, reply: oneshot::Sender<Iteration> },
    /// The saver thread has finished a checkpoint or a model.
    Save(SaveResult),
    /// The journal can no longer be written.
    RecordFailed(RecordError),
}

impl DriverCommand {
    /// Returns whether the command matters at the end: messages of threads do, and those of workers if they evaluate the parameters.
    pub(super) fn matters_at_end(&self, workers_evaluate: bool) -> bool {
        match self {
            // A comparison belongs to an iteration that will not be completed.
            Self::Training(event) => !matches!(event, TrainingEvent::Comparison { .. }),
            Self::MeasuredHere(_) | Self::Save(_) | Self::RecordFailed(_) => true,
            Self::AnnounceVector { .. } | Self::VectorArrived { .. } | Self::VectorFailed { .. } => false,
            Self::Said { message, .. } => {
                let matters =
                    matches!(message, FromWorker::Ready { .. } | FromWorker::Measured(_) | FromWorker::Leaving(_));
                workers_evaluate && matters
            }
            _ => workers_evaluate,
        }
    }

    /// Answers a command about a vector that came after the last step, so that the worker's session goes on. The last chunk of a vector may
    /// complete that step before its arrival is reported.
    pub(super) fn answer_late(self) {
        let not_held = || Receipt::NotHeld { reason: "the last step was taken".into() };
        match self {
            Self::VectorArrived { values: None, reply, .. } => answer(reply, Receipt::Accepted),
            Self::VectorArrived { reply, .. } => answer(reply, not_held()),
            Self::AnnounceVector { reply, .. } => answer(reply, Err(Ok(not_held()))),
            _ => {}
        }
    }
}

/// The facts about the run that a worker receives when it joins. They never change.
pub(super) struct RunInfo {
    pub(super) id: String,
    pub(super) spec: RunSpec,
    /// The times after which silent or slow workers are lost.
    pub(super) timeouts: Timeouts,
    /// The training data and the test data, if workers may fetch them.
    pub(super) files: HashMap<[u8; 32], Arc<ServedFile>>,
    pub(super) warm_start: BTreeMap<String, WorkerStatistics>,
    pub(super) peer_hosts: Vec<String>,
    pub(super) follows_shares: bool,
}

impl Driver {
    pub(super) fn command(&mut self, command: DriverCommand) {
        match command {
            DriverCommand::Hello { hello, peer, reply } => answer(reply, self.hello(&hello, &peer)),
            DriverCommand::Said { session, message } => self.said(session, message),
            DriverCommand::Left { session, why } => {
                if let Some(session) = self.sessions.close_token(session) {
                    self.lost(&session, &why);
                }
            }
            DriverCommand::Parameters { session, reader, reply } => answer(reply, self.parameters(session, reader)),
            DriverCommand::AnnounceVector { header, peer, reply } => self.announce_vector(header, &peer, reply),
            DriverCommand::VectorArrived { session, vector, values, reply } => {
                self.vector_arrived(session, vector, values, reply);
            }
            DriverCommand::VectorFailed { session, vector, kind, reason } => {
                if let Ok(worker) = self.sessions.of_token(session).map(|session| session.worker) {
                    self.fail_vector(worker, vector, kind, &reason);
                }
            }
            DriverCommand::Data { session, sha256, peer, reply } => answer(reply, self.data(session, &sha256, &peer)),
            DriverCommand::Training(TrainingEvent::Step(result)) => self.step_finished(result),
            DriverCommand::Training(TrainingEvent::Comparison { tasks, collections: [first, second], agree }) => {
                self.notify(Event::Compared { tasks, first, second, agree });
            }
            DriverCommand::Training(TrainingEvent::Abandoned) => self.steps.is_under_way = false,
            DriverCommand::Training(TrainingEvent::Failed(reason)) => {
                self.steps.failure = reason;
                self.steps.fail();
            }
            DriverCommand::MeasuredHere(result) => self.measured_here(result),
            DriverCommand::EvaluatedParameters { session, step, reader, reply } => {
                answer(reply, self.evaluated_parameters(session, step, reader));
            }
            DriverCommand::Forgive { name, reply } => answer(reply, self.forgive(&name)),
            DriverCommand::Save(result) => self.save_finished(result),
            DriverCommand::RecordFailed(error) => self.ending = Some(Err(error.into())),
        }
    }

    fn hello(&mut self, hello: &Hello, peer: &Peer) -> Result<SessionHandle, Status> {
        let is_clear = |worker| self.engine.is_clear(worker);
        let OpenedSession { handle, claim, replaced } =
            self.sessions.open(self.now_s, hello, peer.machine(), is_clear)?;
        if let Some(session) = replaced {
            self.lost(&session, "it reconnected");
        }
        self.sessions.of_token(handle.token)?.admit(peer);
        if claim.is_taken_over {
            self.notify(Event::WorkerForgotten { worker: claim.worker });
        }
        let (worker, timeouts) = (claim.worker, &self.info.timeouts);
        let welcome = Welcome {
            session: handle.token,
            worker,
            run_id: self.info.id.clone(),
            heartbeat_interval_ms: interval_ms(timeouts.heartbeat),
            idle_heartbeat_interval_ms: interval_ms(timeouts.idle),
            run: self.info.spec.clone(),
        };
        self.sessions.send(worker, ToWorker::Welcome(welcome));
        tracing::info!(%worker, name = %hello.name, device = hello.device, "worker connected");
        Ok(handle)
    }

    fn said(&mut self, token: SessionToken, message: FromWorker) {
        let Ok(session) = self.sessions.of_token(token) else { return };
        session.heard_s = self.now_s;
        let worker = session.worker;
        let kind = |uncomputable| if uncomputable { RefusalKind::Uncomputable } else { RefusalKind::NotComputed };
        match message {
            FromWorker::Ready { fuses, peer_address } => self.ready(worker, fuses, peer_address),
            FromWorker::Progress(computed) => self.progress(worker, computed),
            FromWorker::Leaving(leases) => self.begin_to_leave(worker, &leases),
            FromWorker::LeaseFailed { lease, reason, uncomputable } => {
                self.lease_failed(worker, lease, kind(uncomputable), &reason);
            }
            FromWorker::VectorFailed { vector, reason, uncomputable } => {
                self.fail_vector(worker, vector, kind(uncomputable), &reason);
            }
            FromWorker::Measured(measured) => self.measured(worker, measured),
            FromWorker::LinkProbed { bytes, seconds } => {
                self.notify(Event::LinkObserved(Observed::Probed { worker, bytes: bytes as f64, seconds }));
            }
            FromWorker::ExchangeReport(report) => self.exchange_reported(worker, &report),
            FromWorker::Reached { probe, outcome } => self.reached(worker, probe, outcome),
            // The service handles these.
            FromWorker::Hello(_) | FromWorker::Heartbeat { .. } => {}
        }
    }

    fn ready(&mut self, worker: WorkerId, fuses: bool, peer_address: Option<PeerAddress>) {
        let Some(session) = self.sessions.of_worker(worker) else { return };
        if !session.make_ready(fuses, peer_address, &self.info.peer_hosts) {
            return;
        }
        let machine = session.machine;
        let (name, device) = (session.name.to_string(), session.device.clone());
        tracing::info!(%worker, name, fuses, "worker ready");
        let prior = self.info.warm_start.get(&name).copied().unwrap_or_default();
        let machine_name = self.sessions.names.machine(worker).to_owned();
        self.publisher.publish(RunEvent::Join { time_s: self.now_s, worker, name, device, machine: machine_name });
        self.notify(Event::WorkerJoined { worker, machine, prior, fuses });
        self.advance_evaluation();
    }

    /// Lifts everything that counts against the workers of a name, on all machines. Returns the iteration after this one.
    fn forgive(&mut self, name: &WorkerName) -> Iteration {
        for worker in self.sessions.names.forgive(name) {
            self.notify(Event::Forgiven { worker });
        }
        tracing::info!(%name, "workers of this name are forgiven");
        self.publisher.publish(RunEvent::Forgive { time_s: self.now_s, name: name.to_string() });
        self.advance_evaluation();
        self.steps.last_step().next()
    }

    /// Gives a leaving worker no more work, and the leases that it has not begun to others.
    fn begin_to_leave(&mut self, worker: WorkerId, given_back: &[LeaseId]) {
        // The engine does not know a worker that is not ready.
        let is_ready = self.sessions.of_worker(worker).is_some_and(|session| session.is_ready);
        self.sessions.leaving.entry(worker).or_insert(!is_ready);
        if !is_ready {
            return self.let_go();
        }
        self.evaluations.leave(worker);
        self.notify(Event::WorkerLeaving { worker });
        for lease in given_back {
            let mut effects = Vec::new();
            // The lease may have been cancelled meanwhile.
            if self.engine.report(self.now_s, worker, *lease, Report::GivenBack, &mut effects).is_ok() {
                self.effects.extend(effects);
            }
        }
        self.advance_evaluation();
    }

    /// Says farewell to the workers that have nothing more to deliver, or to pass on.
    pub(super) fn let_go(&mut self) {
        let is_free = |(worker, is_done): &(&WorkerId, &bool)| **is_done && self.exchanges.of(**worker).is_empty();
        let free: Vec<WorkerId> = self.sessions.leaving.iter().filter(is_free).map(|(worker, _)| *worker).collect();
        for worker in free {
            self.leave_collections(worker);
            let Some(session) = self.sessions.close(worker) else { continue };
            tracing::info!(%worker, name = %session.name, "worker left");
            if session.is_ready {
                let why = "it was told to stop".into();
                self.publisher.publish(RunEvent::Loss { time_s: self.now_s, worker, why });
            }
            session.farewell(FarewellReason::Left, "everything that this worker has computed has arrived");
        }
    }

    fn parameters(&mut self, token: SessionToken, reader: Reader) -> Result<DueSets, Status> {
        self.sessions.of_token(token)?.parameters(self.now_s, reader)
    }

    fn data(&mut self, token: SessionToken, sha256: &Bytes, peer: &Peer) -> Result<File, Status> {
        let session = self.sessions.of_token(token)?;
        session.admit(peer);
        let served = self.info.files.get(&sha256[..]);
        let served = served.ok_or_else(|| Status::not_found("this run does not use that data set"))?.clone();
        Ok(File { served, presence: session.presence.clone(), _sending: session.begin_data()? })
    }

    /// Ends the session of a worker that does not respond or read as required.
    pub(super) fn dismiss(&mut self, session: Session, why: &str) {
        self.lost(&session, why);
        session.farewell(FarewellReason::Evicted, why);
    }

    /// Records the end of a session, and notifies the engine.
    pub(super) fn lost(&mut self, session: &Session, why: &str) {
        let worker = session.worker;
        tracing::warn!(%worker, name = %session.name, why, "worker lost");
        self.leave_collections(worker);
        self.evaluations.leave(worker);
        if session.is_ready {
            self.publisher.publish(RunEvent::Loss { time_s: self.now_s, worker, why: why.into() });
            self.notify(Event::WorkerLost { worker });
        }
    }
}

/// Replies to a request. The requester may have stopped waiting, which does not matter.
pub(super) fn answer<T>(reply: oneshot::Sender<T>, value: T) {
    drop(reply.send(value));
}
