//! Vectors that are asked for, announced, arriving and refused.

use ata_learn::Units;
use ata_record::RefusalKind;
use ata_scheduler::Event;
use ata_types::{CollectionId, Iteration, LeaseId, TaskRange, WorkerId};
use ata_wire::{Collection, GradientHeader, Peer, Receipt, SessionToken, Shard, ToWorker};
use tokio::sync::oneshot;

use super::Driver;
use super::collections::{AcceptedVector, EndedVector};
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
    /// The sum that they are part of.
    pub(crate) collection: CollectionId,
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
    worker: WorkerId,
    id: CollectionId,
    header: GradientHeader,
    reply: VectorReply,
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
    }

    /// Some leases of a worker with their tasks.
    pub(super) fn with_tasks(&self, worker: WorkerId, leases: &[LeaseId]) -> Vec<(LeaseId, TaskRange)> {
        let tasks = |lease: &LeaseId| {
            let held = self.engine.lease(worker, *lease).map(|held| held.tasks);
            Some((*lease, held.or_else(|| self.results.tasks(*lease))?))
        };
        leases.iter().filter_map(tasks).collect()
    }

    /// Sends a worker requests for vectors.
    pub(super) fn request(&mut self, worker: WorkerId, requests: Vec<Collection>) {
        self.refuse_parked(&requests);
        for message in ToWorker::collect(requests) {
            self.sessions.send(worker, message);
        }
    }

    /// Answers vectors that were announced and are no longer asked for.
    fn refuse_parked(&mut self, requests: &[Collection]) {
        let is_gone = |parked: &mut ParkedVector| {
            requests.iter().any(|request| request.id == parked.id && request.leases.is_empty())
        };
        for parked in self.parked.extract_if(.., is_gone) {
            let reason = "it is now asked for with other leases".into();
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
        let id = header.collection.unwrap_or(CollectionId(0));
        if let Err((kind, reason)) = self.check_units(&header) {
            self.fail_vector(worker, id, kind, &reason);
            return answer(reply, Err(UploadRefusal::NotHeld { reason }));
        }
        self.parked.push(ParkedVector { worker, id, header, reply });
        self.accept_parked();
    }

    fn check_vector(&self, worker: WorkerId, header: &GradientHeader) -> Result<(), (RefusalKind, String)> {
        self.collections.check(worker, header)?;
        if let Some(parked) = self.parked.iter().find(|parked| Some(parked.id) == header.collection) {
            return Err((RefusalKind::Replayed, format!("collection {} was announced already", parked.id)));
        }
        Ok(())
    }

    /// Checks the units of a gradient. Those of the current iteration's gradients are all the same.
    pub(super) fn check_units(&self, header: &GradientHeader) -> Result<Units, (RefusalKind, String)> {
        let wrong = |reason: String| (RefusalKind::WrongSize, reason);
        let units = Units::from_exponents(&header.units, &self.sizes).map_err(|error| wrong(error.to_string()))?;
        // The lease of an asynchronous run may have begun earlier, with the units of its iteration.
        let is_current = header.iteration == self.steps.parameters().iteration;
        if is_current && self.steps.units().is_some_and(|known| *known != units) {
            return Err(wrong("its units are not those of the iteration".into()));
        }
        Ok(units)
    }

    /// The units of the first gradient that counts are those of its iteration, unless they follow from earlier steps.
    pub(super) fn adopt_units(&mut self, iteration: Iteration, units: &Units) {
        if self.steps.units().is_none() && iteration == self.steps.parameters().iteration {
            self.steps.set_units(units.clone());
        }
    }

    /// Where results are compared or a robust estimate is made of them, no single worker determines the units of the first
    /// iteration: once all vectors are announced, those that most of them have are taken.
    fn vote_on_units(&mut self) {
        let announced: Vec<CollectionId> = self.parked.iter().map(|parked| parked.id).collect();
        if !self.collections.are_all_announced(&announced) {
            return;
        }
        let of_one = |parked: &ParkedVector| self.check_units(&parked.header).ok();
        let units: Vec<Units> = self.parked.iter().filter_map(of_one).collect();
        let votes = |one: &&Units| units.iter().filter(|other| other == one).count();
        if let Some(most) = units.iter().max_by_key(votes) {
            self.steps.set_units(most.clone());
        }
    }

    /// Lets in the vectors all of whose leases are computed.
    pub(super) fn accept_parked(&mut self) {
        if self.steps.units().is_none() && self.collections.are_separate() {
            self.vote_on_units();
            if self.steps.units().is_none() {
                return;
            }
        }
        let is_computed = |parked: &&ParkedVector| {
            let mut leases = self.collections.leases(parked.id).iter();
            leases.all(|lease| self.results.tasks(*lease).is_some())
        };
        let ready: Vec<CollectionId> = self.parked.iter().filter(is_computed).map(|parked| parked.id).collect();
        // Those that are exchanged in shards arrive together, since each is in the chunks of all.
        let is_let_in =
            |parked: &mut ParkedVector| self.collections.mates(parked.id).iter().all(|id| ready.contains(id));
        let computed: Vec<ParkedVector> = self.parked.extract_if(.., is_let_in).collect();
        for ParkedVector { worker, id, header, reply } in computed {
            // Another vector may have determined the units since this one was announced.
            let upload = match self.check_units(&header) {
                Ok(units) => self.accept_vector(id, header, &units),
                Err((kind, reason)) => {
                    self.fail_vector(worker, id, kind, &reason);
                    Err(UploadRefusal::NotHeld { reason })
                }
            };
            answer(reply, upload);
        }
    }

    /// Fails the vectors that were due long ago, and whose workers do not begin to send them.
    pub(super) fn check_vectors(&mut self) {
        let is_announced = |id: &CollectionId| self.parked.iter().any(|parked| parked.id == *id);
        let computed = |id: &CollectionId, lease: &LeaseId| self.results.tasks(*lease).is_some() && !is_announced(id);
        let timeout_s = self.info.timeouts().download.as_secs_f64();
        let overdue = self.collections.overdue(self.now_s, timeout_s, computed);
        for (worker, id) in overdue {
            self.fail_vector(worker, id, RefusalKind::NotReceived, "it does not send the vector that it is asked for");
        }
    }

    fn accept_vector(
        &mut self,
        id: CollectionId,
        header: GradientHeader,
        units: &Units,
    ) -> Result<VectorUpload, UploadRefusal> {
        let session = self.sessions.of_token(header.session).map_err(UploadRefusal::NoSession)?;
        let (presence, meter) = (session.presence(), self.meter.of(session.worker()));
        let AcceptedVector { gate, collection, shard, is_counted } = self.collections.accept(id)?;
        self.adopt_units(header.iteration, units);
        if !is_counted {
            self.steps.count(Magnitudes { maxima: header.maxima, saturated: header.saturated });
        }
        let (work, paced) = (self.steps.work(), self.paced.clone());
        Ok(VectorUpload { gate, collection, shard, work, paced, meter, presence })
    }

    /// All chunks of a vector were passed on.
    pub(super) fn vector_arrived(&mut self, id: CollectionId, reply: oneshot::Sender<Receipt>) {
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

    /// A vector did not arrive whole, or failed a check: its worker failed.
    pub(super) fn vector_failed(&mut self, token: SessionToken, id: CollectionId, kind: RefusalKind, reason: &str) {
        let Ok(session) = self.sessions.of_token(token) else { return };
        let worker = session.worker();
        self.fail_vector(worker, id, kind, reason);
    }

    fn fail_vector(&mut self, worker: WorkerId, id: CollectionId, kind: RefusalKind, reason: &str) {
        // It was taken back, and so its worker broke off.
        if !self.collections.is_asked(id) {
            return;
        }
        // Any member may be at fault. A star finds out which one is.
        if self.collections.is_shared(id) {
            return self.break_exchange(reason);
        }
        self.refuse(worker, kind, reason);
        self.last_failure = format!("worker {worker}: {reason}");
        if let Some(EndedVector { worker, collection }) = self.collections.failed(worker, id) {
            self.notify(Event::CollectionFailed { worker, collection });
        }
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
    }
}
