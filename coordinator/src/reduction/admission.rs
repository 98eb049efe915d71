//! Checks the headers of vectors, and decides which vectors may be sent.

use ata_record::RefusalKind;
use ata_sums::Units;
use ata_types::{Iteration, VectorId, WorkerId};
use ata_wire::{GradientHeader, Receipt, SessionToken, Stripe, VectorRequest};

use super::vector::{Announcement, Vector, VectorReply, VectorState};
use super::{Gate, Reduction, Sink};

#[derive(Debug)]
pub(crate) struct AdmittedVector {
    pub(crate) worker: WorkerId,
    pub(crate) sink: Sink,
    pub(crate) first_chunk: u64,
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
            VectorState::Asked => Ok(vector.request.iteration),
            _ => Err((RefusalKind::Replayed, format!("vector {id} was announced already"))),
        }
    }

    pub(crate) fn announce(&mut self, id: VectorId, announcement: Announcement) {
        if let Some(vector) = self.vectors.get_mut(&id) {
            vector.state = VectorState::Announced(announcement);
        }
    }

    /// Returns the workers that have announced a vector, and the vector's units.
    pub(crate) fn announced_units(&self) -> impl Iterator<Item = (WorkerId, &Units)> {
        self.vectors.values().filter_map(|vector| Some((vector.worker, &vector.announcement()?.units)))
    }

    /// Returns the workers with a vector that is not admitted yet, whether or not it is announced.
    pub(crate) fn awaited_workers(&self) -> impl Iterator<Item = WorkerId> {
        let awaited = self.vectors.values().filter(|vector| vector.is_outside() && !vector.is_own());
        awaited.map(|vector| vector.worker)
    }

    /// Returns whether no vector was admitted, except for vectors that failed before any of their chunks passed.
    pub(crate) fn are_untouched(&self) -> bool {
        self.vectors.values().all(Vector::is_outside) && self.prefixes.iter().all(|(_, next)| *next == 0)
    }

    /// Returns the vectors of an iteration that are announced in other units than `units`.
    pub(crate) fn with_other_units(&self, iteration: Iteration, units: &Units) -> Vec<(WorkerId, VectorId)> {
        let of_iteration = self.vectors.iter().filter(|(_, vector)| vector.request.iteration == iteration);
        let other = |vector: &Vector| vector.announcement().is_some_and(|announced| announced.units != *units);
        of_iteration.filter(|(_, vector)| other(vector)).map(|(id, vector)| (vector.worker, *id)).collect()
    }

    /// Refuses a vector that was announced in other units than those of its iteration. The first time, returns the request to repeat.
    pub(crate) fn repeat(&mut self, id: VectorId, reason: &str) -> Option<VectorRequest> {
        let vector = self.vectors.get_mut(&id)?;
        vector.withdraw_announcement(reason);
        // A repetition is justified only in the first iteration: the units of later ones are sent with the leases.
        if std::mem::replace(&mut vector.is_repeated, true) || vector.request.iteration != Iteration::FIRST {
            return None;
        }
        vector.progress = None;
        Some(vector.request.clone())
    }

    /// Admits the next vector that may be sent, once the units are known. Its leases must be computed. If it is exchanged in shards, the
    /// other members' vectors must be announced too; if it is used whole, there must be room for it.
    pub(crate) fn admit(&mut self) -> Option<(SessionToken, VectorReply, AdmittedVector)> {
        let streamed = self.vectors.iter().find(|(id, vector)| !vector.is_own() && self.may_stream(**id, vector));
        let id = streamed.map(|(id, _)| *id).or_else(|| self.next_whole())?;
        let gate = self.exchange_of(id).map(|shared| shared.gate.clone());
        let vector = self.vectors.get_mut(&id)?;
        let Announcement { header, units, reply } = vector.take_announcement()?;
        let (session, first_chunk) = (header.session, vector.request.first_chunk);
        let sink = if vector.is_own() {
            let (filling, whole) = self.room.fill(header, units)?;
            vector.state = VectorState::Filling(filling);
            Sink::Whole(whole)
        } else {
            let gate = gate.unwrap_or_else(|| Gate::new(id, first_chunk, self.chunks));
            gate.announce(header);
            vector.state = VectorState::Open(gate.clone());
            Sink::Gate(gate)
        };
        let stripe = vector.stripe().unwrap_or(Stripe::ALL);
        Some((session, reply, AdmittedVector { worker: vector.worker, sink, first_chunk, stripe }))
    }

    fn may_stream(&self, id: VectorId, vector: &Vector) -> bool {
        let is_ready = |mate: &Vector| !mate.is_outside() || mate.announcement().is_some() && self.is_computed(mate);
        // Vectors that are exchanged in shards arrive together, since each chunk is a sum over all of them.
        let mates = self.mates(id);
        let mut mates = mates.iter().filter_map(|mate| self.vectors.get(mate));
        vector.announcement().is_some() && mates.all(is_ready)
    }

    pub(super) fn is_computed(&self, vector: &Vector) -> bool {
        vector.leases.iter().all(|lease| self.computed.contains(&lease.id))
    }
}

impl Vector {
    pub(super) fn take_announcement(&mut self) -> Option<Announcement> {
        match std::mem::replace(&mut self.state, VectorState::Asked) {
            VectorState::Announced(announcement) => Some(announcement),
            state => {
                self.state = state;
                None
            }
        }
    }

    pub(super) fn withdraw_announcement(&mut self, reason: &str) {
        if let Some(announcement) = self.take_announcement() {
            // The caller may have stopped waiting for the reply.
            drop(announcement.reply.send(Err(Ok(Receipt::NotHeld { reason: reason.to_owned() }))));
        }
    }
}
