//! Requests vectors, and handles their announcement, arrival and failure.

use ata_net::Peer;
use ata_record::RefusalKind;
use ata_scheduler::{Collection, Event};
use ata_types::{CollectionId, Iteration, VectorId, WorkerId};
use ata_wire::{GradientHeader, Receipt, SessionToken, Stripe, ToWorker, VectorRequest};
use tokio::sync::oneshot;

use super::Driver;
use super::commands::answer;
use super::sessions::Presence;
use crate::links::LinkMeter;
use crate::reduction::{AdmittedVector, Announcement, VectorReply};
use crate::training::{Paced, Work};

/// The reason for a failure in which the worker stops sending its vector.
pub(crate) const GAVE_UP: &str = "the worker gave up sending its vector";

/// The reason for a failure in which a slow vector gives way to others.
const GAVE_WAY: &str = "its vector arrived too slowly while those of others waited for room";

/// An admitted vector, as the service receives it.
#[derive(Debug)]
pub(crate) struct VectorUpload {
    pub(crate) vector: AdmittedVector,
    /// The queue for chunks that pass a gate.
    pub(crate) work: std::sync::mpsc::Sender<Work>,
    /// Tells when the vector's chunks may be read.
    pub(crate) paced: Paced,
    pub(crate) meter: LinkMeter,
    pub(crate) presence: Presence,
}

impl Driver {
    /// The iteration in progress, or the next one.
    pub(super) fn iteration(&self) -> Iteration {
        self.steps.parameters.iteration
    }

    /// Asks workers for the sums of the gradients of some leases.
    pub(super) fn collect(&mut self, iteration: Iteration, asked: Vec<Collection>) {
        let asked = self.collect_in_shards(iteration, asked);
        for collection in asked {
            if self.reduction.shares(collection.id) {
                self.end_exchange();
            }
            let (withdrawn, requests) = self.reduction.ask(iteration, &collection);
            self.request(collection.worker, &withdrawn, requests);
        }
        // While vectors are being sent, workers have time to find out which peers they reach.
        self.probe();
    }

    pub(super) fn request(&mut self, worker: WorkerId, withdrawn: &[VectorId], requests: Vec<VectorRequest>) {
        for message in ToWorker::collect(withdrawn, requests) {
            self.sessions.send(worker, message);
        }
    }

    /// Handles the announcement of a vector. The reply is sent once the worker may send it.
    pub(super) fn announce_vector(&mut self, header: GradientHeader, peer: &Peer, reply: VectorReply) {
        let (session, id) = (header.session, header.vector);
        let worker = match self.sessions.of_token(session) {
            Ok(session) => {
                session.heard_s = self.now_s;
                session.admit(peer);
                session.worker
            }
            Err(status) => return answer(reply, Err(Err(status))),
        };
        let iteration = match self.reduction.check(worker, &header) {
            Ok(iteration) => iteration,
            Err((kind, reason)) => {
                self.refuse(worker, kind, &reason);
                return answer(reply, Err(Ok(Receipt::NotHeld { reason })));
            }
        };
        let units = match self.units(&header, iteration) {
            Ok(units) => units,
            Err(reason) => {
                self.fail_vector(worker, id, RefusalKind::WrongSize, &reason);
                return answer(reply, Err(Ok(Receipt::NotHeld { reason })));
            }
        };
        self.reduction.announce(id, Announcement { header, units, reply });
        self.admit_vectors();
    }

    /// Admits the vectors that may be sent now, once the units are known.
    pub(super) fn admit_vectors(&mut self) {
        if !self.agree_on_units() {
            return;
        }
        let units = self.steps.units.as_ref();
        let others = units.map(|units| self.reduction.with_other_units(self.iteration(), units));
        for (worker, id) in others.into_iter().flatten() {
            self.repeat_vector(worker, id);
        }
        while let Some((session, reply, vector)) = self.reduction.admit() {
            let presence = self.sessions.of_token(session).map(|session| session.presence.clone());
            let (work, paced, meter) = (self.steps.work.clone(), self.paced.clone(), self.meter.clone());
            let upload = |presence| VectorUpload { vector, work, paced, meter, presence };
            answer(reply, presence.map(upload).map_err(Err));
        }
    }

    /// Fails overdue vectors whose workers do not start to send them, vectors whose tasks other workers can compute again before they
    /// arrive, and slow vectors that take the room of others.
    pub(super) fn check_vectors(&mut self) {
        let late = self.reduction.late(self.now_s, |chunk| self.paced.may_pass(chunk, Stripe::ALL));
        let late = late.into_iter().map(|vector| (vector, "its vector comes later than others compute its tasks"));
        let overdue = self.reduction.overdue(self.now_s, self.info.timeouts.download.as_secs_f64());
        let overdue = overdue.into_iter().map(|vector| (vector, "it does not send the vector that it is asked for"));
        let slow = self.reduction.give_way(self.now_s).into_iter().map(|vector| (vector, GAVE_WAY));
        for ((worker, id), reason) in late.chain(overdue).chain(slow) {
            self.fail_vector(worker, id, RefusalKind::NotReceived, reason);
            self.request(worker, &[id], Vec::new());
        }
        // Room may have become free without a command.
        self.admit_vectors();
    }

    /// Handles the arrival of the last chunk of a vector. `values` are set if the vector was assembled.
    pub(super) fn vector_arrived(
        &mut self,
        token: SessionToken,
        id: VectorId,
        values: Option<Vec<i32>>,
        reply: oneshot::Sender<Receipt>,
    ) {
        // Chunks that have passed a gate count, and their step may already be taken.
        let counts = values.is_none();
        match self.reduction.arrived(id, values) {
            Some(ended) => {
                self.deliver(ended);
                answer(reply, Receipt::Accepted);
            }
            None if counts => answer(reply, Receipt::Accepted),
            None => {
                let reason = format!("vector {id} was no longer asked for when it arrived");
                if let Ok(worker) = self.sessions.of_token(token).map(|session| session.worker) {
                    self.refuse(worker, RefusalKind::Stale, &reason);
                }
                answer(reply, Receipt::NotHeld { reason });
            }
        }
        self.admit_vectors();
    }

    fn deliver(&mut self, ended: Vec<(WorkerId, CollectionId)>) {
        for (worker, collection) in ended {
            self.notify(Event::Delivered { worker, collection });
        }
    }

    /// Handles the failure of a vector that is incomplete, failed a check, or could not be computed again.
    pub(super) fn fail_vector(&mut self, worker: WorkerId, id: VectorId, kind: RefusalKind, reason: &str) {
        // A worker stops sending a vector that was withdrawn, which is not a failure.
        if !self.reduction.is_asked(worker, id) {
            return;
        }
        // In an exchange, any member may be at fault; a star shows which one.
        if self.reduction.is_shared(id) {
            return self.break_exchange(self.iteration(), reason);
        }
        self.refuse(worker, kind, reason);
        self.last_failure = format!("worker {worker}: {reason}");
        if let Some((worker, collection)) = self.reduction.failed(worker, id) {
            self.notify(Event::CollectionFailed { worker, collection });
        }
        self.forget_units_of(worker);
        // Other vectors may have waited for this one, or for its room.
        self.admit_vectors();
    }

    /// Ends the vectors of a worker whose session has ended. The chunks that have arrived count.
    pub(super) fn leave_collections(&mut self, worker: WorkerId) {
        let ended = self.reduction.left(worker);
        self.deliver(ended);
        self.forget_vectors(worker);
    }

    /// Ends the vectors of a worker that the engine has lost. The chunks that have arrived count, but the tasks are computed again.
    pub(super) fn lose_collections(&mut self, worker: WorkerId) {
        self.reduction.lost(worker);
        self.forget_vectors(worker);
    }

    fn forget_vectors(&mut self, worker: WorkerId) {
        self.forget_units_of(worker);
        // Other vectors may have waited for this worker's announcement.
        self.admit_vectors();
        self.leave_exchange(worker);
    }
}
