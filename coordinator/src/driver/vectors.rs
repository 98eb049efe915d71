//! Vectors that are asked for, announced, arriving and refused.

use ata_learn::Units;
use ata_record::RefusalKind;
use ata_scheduler::Event;
use ata_types::{CollectionId, LeaseId, TaskRange, VectorId, WorkerId};
use ata_wire::{GradientHeader, Peer, Receipt, SessionToken, Shard, ToWorker};
use tokio::sync::oneshot;

use super::Driver;
use super::collections::{AcceptedVector, EndedVector, Requests};
use super::commands::answer;
use super::uploads::UploadRefusal;
use crate::driver::Presence;
use crate::links::WorkerMeter;
use crate::training::{Gate, Magnitudes, Paced, Work};

/// A worker that the engine asks for the sum of some leases, the collection, and the leases.
pub(super) type Asked = (WorkerId, CollectionId, Vec<LeaseId>);

/// Answers a worker that is about to send a vector, once it may.
pub(crate) type VectorReply = oneshot::Sender<Result<VectorUpload, UploadRefusal>>;

/// A vector that a worker may send.
pub(crate) struct VectorUpload {
    /// The gate for its chunks.
    pub(crate) gate: Gate,
    /// The first chunk that is sent.
    pub(crate) first_chunk: u64,
    /// Which chunks of it are sent.
    pub(crate) shard: Shard,
    /// Takes its chunks.
    pub(crate) work: std::sync::mpsc::Sender<Work>,
    /// When its chunks may be read.
    pub(crate) paced: Paced,
    /// Measures the link of its worker.
    pub(crate) meter: WorkerMeter,
    /// The presence of its session.
    pub(crate) presence: Presence,
}

/// A vector that was announced before the report on its last lease was handled.
pub(super) struct ParkedVector {
    pub(super) worker: WorkerId,
    id: VectorId,
    header: GradientHeader,
    pub(super) units: Units,
    reply: VectorReply,
}

impl ParkedVector {
    pub(super) fn id(&self) -> VectorId {
        self.id
    }
}

impl Driver {
    /// Asks workers for the sums of the gradients of some leases.
    pub(super) fn collect(&mut self, asked: Vec<Asked>) {
        let asked = self.collect_in_shards(asked);
        for (worker, collection, leases) in asked {
            if self.collections.shares(collection) {
                self.end_exchange();
            }
            let leases = self.with_tasks(worker, &leases);
            let requests = self.collections.ask(worker, collection, self.engine.iteration(), &leases);
            self.request(worker, requests);
        }
        // While vectors are on their way, workers have time to find out whom they reach.
        self.probe();
    }

    /// Some leases of a worker with their tasks.
    pub(super) fn with_tasks(&self, worker: WorkerId, leases: &[LeaseId]) -> Vec<(LeaseId, TaskRange)> {
        let tasks = |lease: &LeaseId| {
            let held = self.engine.lease(worker, *lease).map(|held| held.tasks);
            Some((*lease, held.or_else(|| self.results.tasks(*lease))?))
        };
        leases.iter().filter_map(tasks).collect()
    }

    /// Withdraws vectors from a worker, and asks it for others.
    pub(super) fn request(&mut self, worker: WorkerId, Requests { withdrawn, collections }: Requests) {
        self.refuse_parked(&withdrawn);
        for message in ToWorker::collect(&withdrawn, collections) {
            self.sessions.send(worker, message);
        }
    }

    /// Answers vectors that were announced and are no longer asked for.
    fn refuse_parked(&mut self, withdrawn: &[VectorId]) {
        for parked in self.parked.extract_if(.., |parked| withdrawn.contains(&parked.id)) {
            let reason = "it was withdrawn".into();
            answer(parked.reply, Err(UploadRefusal::NotHeld { reason }));
        }
    }

    /// Answers a worker that is about to send a vector, once all of its leases are known to be computed.
    pub(super) fn announce_vector(&mut self, header: GradientHeader, peer: &Peer, reply: VectorReply) {
        let token = header.session;
        self.hear(token);
        let worker = match self.sessions.of_token(token) {
            Ok(session) => {
                session.admit(peer);
                session.worker()
            }
            Err(status) => return answer(reply, Err(UploadRefusal::NoSession(status))),
        };
        if let Err((kind, reason)) = self.check_vector(worker, &header) {
            self.refuse(worker, kind, &reason);
            return answer(reply, Err(UploadRefusal::NotHeld { reason }));
        }
        let id = header.vector.unwrap_or(VectorId(0));
        let units = match self.units(&header, self.engine.iteration()) {
            Ok(units) => units,
            Err(reason) => {
                self.fail_vector(worker, id, RefusalKind::WrongSize, &reason);
                return answer(reply, Err(UploadRefusal::NotHeld { reason }));
            }
        };
        self.parked.push(ParkedVector { worker, id, header, units, reply });
        self.accept_parked();
    }

    fn check_vector(&self, worker: WorkerId, header: &GradientHeader) -> Result<(), (RefusalKind, String)> {
        self.collections.check(worker, header)?;
        if let Some(parked) = self.parked.iter().find(|parked| Some(parked.id) == header.vector) {
            return Err((RefusalKind::Replayed, format!("vector {} was announced already", parked.id)));
        }
        Ok(())
    }

    /// Lets in the vectors all of whose leases are computed, once the units are known.
    pub(super) fn accept_parked(&mut self) {
        if !self.agree_on_units() {
            return;
        }
        let has_other_units = |parked: &mut ParkedVector| self.steps.units() != Some(&parked.units);
        for ParkedVector { worker, id, reply, .. } in self.parked.extract_if(.., has_other_units).collect::<Vec<_>>() {
            let refused = self.repeat_vector(worker, id);
            answer(reply, Err(refused));
        }
        let is_computed = |parked: &&ParkedVector| {
            self.collections.leases(parked.id).all(|lease| self.results.tasks(lease).is_some())
        };
        let ready: Vec<VectorId> = self.parked.iter().filter(is_computed).map(|parked| parked.id).collect();
        // Those that are exchanged in shards arrive together, since each is in the chunks of all.
        let is_let_in =
            |parked: &mut ParkedVector| self.collections.mates(parked.id).iter().all(|id| ready.contains(id));
        for ParkedVector { id, header, reply, .. } in self.parked.extract_if(.., is_let_in).collect::<Vec<_>>() {
            let upload = self.accept_vector(id, header);
            answer(reply, upload);
        }
    }

    /// Fails the vectors that were due long ago, and whose workers do not begin to send them, and those whose tasks others compute
    /// again sooner than they arrive.
    pub(super) fn check_vectors(&mut self) {
        let waits = |id: VectorId, next: Option<u64>| {
            self.parked.iter().any(|parked| parked.id == id)
                || next.is_some_and(|chunk| !self.paced.may_pass(chunk, Shard::ALL))
        };
        let is_computed = |lease| self.results.tasks(lease).is_some();
        let late = self.collections.late(self.now_s, waits, is_computed);
        let late = late.into_iter().map(|vector| (vector, "its vector comes later than others compute its tasks"));
        let overdue = self.overdue_vectors(self.info.timeouts().download.as_secs_f64());
        let overdue = overdue.into_iter().map(|vector| (vector, "it does not send the vector that it is asked for"));
        for ((worker, id), reason) in late.chain(overdue) {
            self.fail_vector(worker, id, RefusalKind::NotReceived, reason);
            self.request(worker, Requests::withdrawal(id));
        }
    }

    fn accept_vector(&mut self, id: VectorId, header: GradientHeader) -> Result<VectorUpload, UploadRefusal> {
        let session = self.sessions.of_token(header.session).map_err(UploadRefusal::NoSession)?;
        let (presence, meter) = (session.presence(), self.meter.of(session.worker()));
        let GradientHeader { maxima, saturated, vanished, .. } = header;
        let magnitudes = Magnitudes { maxima, saturated, vanished };
        let AcceptedVector { gate, first_chunk, shard } = self.collections.accept(id, magnitudes)?;
        let (work, paced) = (self.steps.work(), self.paced.clone());
        Ok(VectorUpload { gate, first_chunk, shard, work, paced, meter, presence })
    }

    /// All chunks of a vector were passed on.
    pub(super) fn vector_arrived(&mut self, id: VectorId, reply: oneshot::Sender<Receipt>) {
        let ended = self.collections.arrived(id);
        self.deliver(ended);
        answer(reply, Receipt::Accepted);
    }

    /// Tells the engine that a collection has arrived, if it has.
    fn deliver(&mut self, ended: impl IntoIterator<Item = EndedVector>) {
        for EndedVector { worker, collection } in ended {
            self.notify(Event::Delivered { worker, collection });
        }
    }

    /// A vector did not arrive whole, failed a check, or could not be computed again: its worker failed.
    pub(super) fn vector_failed(&mut self, token: SessionToken, id: VectorId, kind: RefusalKind, reason: &str) {
        let Ok(session) = self.sessions.of_token(token) else { return };
        let worker = session.worker();
        self.fail_vector(worker, id, kind, reason);
    }

    pub(super) fn fail_vector(&mut self, worker: WorkerId, id: VectorId, kind: RefusalKind, reason: &str) {
        // It was withdrawn, and so its worker broke off.
        if !self.collections.is_asked(worker, id) {
            return;
        }
        // Any member may be at fault. A star finds out which one is.
        if self.collections.is_shared(id) {
            return self.break_current_exchange(reason);
        }
        self.refuse(worker, kind, reason);
        self.last_failure = format!("worker {worker}: {reason}");
        if let Some(EndedVector { worker, collection }) = self.collections.failed(worker, id) {
            self.notify(Event::CollectionFailed { worker, collection });
        }
        self.forget_units_of(worker);
        // Others of the collection may have been announced.
        self.accept_parked();
    }

    /// The session of a worker has ended. What has arrived of its vectors counts.
    pub(super) fn leave_collections(&mut self, worker: WorkerId) {
        let ended = self.collections.left(worker);
        self.deliver(ended);
        self.forget_parked(worker);
        self.leave_exchange(worker);
    }

    /// The engine has lost a worker. What has arrived of its vectors counts, but its tasks are computed again.
    pub(super) fn lose_collections(&mut self, worker: WorkerId) {
        self.collections.lost(worker);
        self.forget_parked(worker);
        self.leave_exchange(worker);
    }

    /// Answers the vectors of a worker that were announced.
    fn forget_parked(&mut self, worker: WorkerId) {
        for parked in self.parked.extract_if(.., |parked| parked.worker == worker) {
            let reason = "the session is over".into();
            answer(parked.reply, Err(UploadRefusal::NotHeld { reason }));
        }
        self.forget_units_of(worker);
        // Others may have waited for what it announces.
        self.accept_parked();
    }
}
