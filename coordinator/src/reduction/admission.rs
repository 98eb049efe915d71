//! Headers of vectors, and which vectors may be sent.

use ata_record::RefusalKind;
use ata_sums::Units;
use ata_types::{Iteration, VectorId, WorkerId};
use ata_wire::{GradientHeader, SessionToken, Stripe, VectorRequest};

use super::vector::{Announcement, State, UploadRefusal, Vector, VectorReply};
use super::{Gate, Reduction, Sink};

/// A vector that is let in.
pub(crate) struct AdmittedVector {
    pub(crate) worker: WorkerId,
    pub(crate) session: SessionToken,
    pub(crate) reply: VectorReply,
    pub(crate) sink: Sink,
    /// The first of its chunks that is sent.
    pub(crate) first_chunk: u64,
    /// Which of its chunks are sent.
    pub(crate) stripe: Stripe,
}

impl Reduction {
    /// Checks the header of a vector that a worker is about to send. Returns the iteration of its tasks.
    pub(crate) fn check(&self, worker: WorkerId, header: &GradientHeader) -> Result<Iteration, (RefusalKind, String)> {
        let id = header.vector;
        let Some(vector) = self.vectors.get(&id).filter(|vector| vector.worker == worker) else {
            let kind = if id.0 <= self.asked { RefusalKind::Stale } else { RefusalKind::Foreign };
            return Err((kind, format!("vector {id} is not asked of worker {worker}")));
        };
        match vector.state {
            State::Asked => Ok(vector.request.iteration),
            _ => Err((RefusalKind::Replayed, format!("vector {id} was announced already"))),
        }
    }

    /// The header of a vector came.
    pub(crate) fn announce(&mut self, id: VectorId, announcement: Announcement) {
        if let Some(vector) = self.vectors.get_mut(&id) {
            vector.state = State::Announced(announcement);
        }
    }

    /// The workers that have announced a vector, and its units.
    pub(crate) fn announced_units(&self) -> impl Iterator<Item = (WorkerId, &Units)> {
        self.vectors.values().filter_map(|vector| Some((vector.worker, &vector.announcement()?.units)))
    }

    /// The workers that have to announce a vector, or have, and were not let in.
    pub(crate) fn awaited_workers(&self) -> impl Iterator<Item = WorkerId> {
        let awaited = self.vectors.values().filter(|vector| vector.is_outside() && !vector.is_own());
        awaited.map(|vector| vector.worker)
    }

    /// Whether no vector was let in, except those that failed before any of their chunks passed.
    pub(crate) fn are_untouched(&self) -> bool {
        self.vectors.values().all(Vector::is_outside) && self.prefixes.iter().all(|(_, next)| *next == 0)
    }

    /// The vectors of an iteration that are announced in other units than its own.
    pub(crate) fn with_other_units(&self, iteration: Iteration, units: &Units) -> Vec<(WorkerId, VectorId)> {
        let of_iteration = self.vectors.iter().filter(|(_, vector)| vector.request.iteration == iteration);
        let other = |vector: &Vector| vector.announcement().is_some_and(|announced| announced.units != *units);
        of_iteration.filter(|(_, vector)| other(vector)).map(|(id, vector)| (vector.worker, *id)).collect()
    }

    /// Refuses a vector that was announced in other units than those of its iteration. Returns the request to repeat, once.
    pub(crate) fn repeat(&mut self, id: VectorId, reason: &str) -> Option<VectorRequest> {
        let vector = self.vectors.get_mut(&id)?;
        vector.withdraw_announcement(reason);
        // The units of later iterations are sent with the leases.
        if std::mem::replace(&mut vector.is_repeated, true) || vector.request.iteration != Iteration::FIRST {
            return None;
        }
        vector.progress = None;
        Some(vector.request.clone())
    }

    /// Lets the next vector in that may be sent, if there is one: its leases are computed, and those that are exchanged with it are
    /// announced, or there is room for it if it is used whole. The units of its iteration are known.
    pub(crate) fn admit(&mut self) -> Option<AdmittedVector> {
        let streamed = self.vectors.iter().find(|(id, vector)| !vector.is_own() && self.may_stream(**id, vector));
        let id = streamed.map(|(id, _)| *id).or_else(|| self.next_whole())?;
        let gate = self.shared.as_ref().filter(|shared| shared.members.contains(&id)).map(|shared| shared.gate.clone());
        let vector = self.vectors.get_mut(&id)?;
        let Announcement { session, magnitudes, units, reply } = vector.take_announcement()?;
        let first_chunk = vector.request.first_chunk;
        let sink = if vector.is_own() {
            let (filling, whole) = self.room.fill(magnitudes, units)?;
            vector.state = State::Filling(filling);
            Sink::Whole(whole)
        } else {
            let gate = gate.unwrap_or_else(|| Gate::new(id, first_chunk, self.chunks));
            gate.announce(magnitudes);
            vector.state = State::Open(gate.clone());
            Sink::Gate(gate)
        };
        let stripe = vector.stripe().unwrap_or(Stripe::ALL);
        Some(AdmittedVector { worker: vector.worker, session, reply, sink, first_chunk, stripe })
    }

    fn may_stream(&self, id: VectorId, vector: &Vector) -> bool {
        let is_ready = |mate: &Vector| !mate.is_outside() || mate.announcement().is_some() && self.is_computed(mate);
        // Those that are exchanged in shards arrive together, since each is in the chunks of all.
        let mates = self.mates(id);
        let mut mates = mates.iter().filter_map(|mate| self.vectors.get(mate));
        vector.announcement().is_some() && mates.all(is_ready)
    }

    /// Whether all leases of a vector are computed.
    pub(super) fn is_computed(&self, vector: &Vector) -> bool {
        vector.leases.iter().all(|lease| self.computed.contains(&lease.id))
    }
}

impl Vector {
    /// Takes the announcement, if it was announced.
    pub(super) fn take_announcement(&mut self) -> Option<Announcement> {
        match std::mem::replace(&mut self.state, State::Asked) {
            State::Announced(announcement) => Some(announcement),
            state => {
                self.state = state;
                None
            }
        }
    }

    /// Answers that the vector must not be sent, if it was announced.
    pub(super) fn withdraw_announcement(&mut self, reason: &str) {
        if let Some(announcement) = self.take_announcement() {
            let refusal = UploadRefusal::NotHeld { reason: reason.to_owned() };
            // A caller that is gone does not wait for an answer.
            drop(announcement.reply.send(Err(refusal)));
        }
    }
}
