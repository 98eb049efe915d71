//! Ends vectors that have arrived or failed, or whose worker was lost, and finds those that are not worth waiting for.

use std::sync::Arc;

use ata_scheduler::topology::VectorProgress;
use ata_types::{CollectionId, VectorId, WorkerId};

use super::vector::{Vector, VectorState};
use super::{Gate, Reduction};

impl Reduction {
    pub(crate) fn is_asked(&self, worker: WorkerId, id: VectorId) -> bool {
        self.vectors.get(&id).is_some_and(|vector| vector.worker == worker)
    }

    /// Records that a vector has arrived whole, with its values if it was assembled. Returns the engine's collections that are complete
    /// with it, or `None` if the vector is no longer wanted.
    pub(crate) fn arrived(&mut self, id: VectorId, values: Option<Vec<i32>>) -> Option<Vec<(WorkerId, CollectionId)>> {
        let vector = self.vectors.get_mut(&id)?;
        let (worker, collection) = (vector.worker, vector.part_of);
        match (std::mem::replace(&mut vector.state, VectorState::Whole), values) {
            (VectorState::Filling(filling), Some(values)) => {
                vector.state = VectorState::Held(Arc::new(vector.held(filling, values)));
                return Some(vec![(worker, collection)]);
            }
            (VectorState::Open(_), None) => {}
            (other, _) => {
                vector.state = other;
                return None;
            }
        }
        // A vector that is exchanged in shards is complete only together with those of all members.
        let mates: Vec<&Vector> = self.mates(id).iter().filter_map(|id| self.vectors.get(id)).collect();
        if !mates.iter().all(|mate| mate.has_arrived()) {
            return Some(Vec::new());
        }
        let has_arrived = |collection: CollectionId| {
            let mut parts = self.vectors.values().filter(|vector| vector.part_of == collection);
            parts.all(Vector::has_arrived)
        };
        let ended = mates.into_iter().map(|mate| (mate.worker, mate.part_of));
        Some(ended.filter(|(_, collection)| has_arrived(*collection)).collect())
    }

    /// Removes a vector that will not arrive whole. Returns the engine's collection, which fails.
    pub(crate) fn failed(&mut self, worker: WorkerId, id: VectorId) -> Option<(WorkerId, CollectionId)> {
        let collection = self.vectors.get(&id).filter(|vector| vector.worker == worker)?.part_of;
        self.end(|vector| vector.part_of == collection);
        Some((worker, collection))
    }

    /// Removes the vectors of a worker whose session has ended. Returns the collections that had already arrived whole.
    pub(crate) fn left(&mut self, worker: WorkerId) -> Vec<(WorkerId, CollectionId)> {
        let chunks = self.chunks;
        let is_whole = |vector: &Vector| matches!(&vector.state, VectorState::Open(gate) if gate.close() == chunks);
        let of_worker = self.vectors.iter().filter(|(_, vector)| vector.worker == worker);
        let whole: Vec<VectorId> = of_worker.filter(|(_, vector)| is_whole(vector)).map(|(id, _)| *id).collect();
        // If the gate of an exchange has let all chunks through, the vectors of all members have arrived.
        let whole: Vec<VectorId> = whole.into_iter().flat_map(|id| self.mates(id)).collect();
        let ended = whole.into_iter().filter_map(|id| self.arrived(id, None)).flatten().collect();
        self.lost(worker);
        ended
    }

    /// Removes the unfinished collections of a worker that the engine has lost.
    pub(crate) fn lost(&mut self, worker: WorkerId) {
        let unfinished = self.vectors.values().filter(|vector| vector.worker == worker && !vector.has_arrived());
        let unfinished: Vec<CollectionId> = unfinished.map(|vector| vector.part_of).collect();
        self.end(|vector| vector.worker == worker && unfinished.contains(&vector.part_of));
    }

    /// Removes vectors, and remembers how many of their chunks have passed. Returns the removed vectors.
    pub(super) fn end(&mut self, is_over: impl Fn(&Vector) -> bool) -> Vec<VectorId> {
        let Self { vectors, shared, prefixes, .. } = self;
        let mut ended = Vec::new();
        for (id, mut vector) in vectors.extract_if(.., |_, vector| is_over(vector)) {
            vector.withdraw_announcement("it was withdrawn");
            let gate = shared.as_ref().filter(|shared| shared.members.contains(&id)).map(|shared| &shared.gate);
            let next = match &vector.state {
                VectorState::Open(gate) => gate.close(),
                VectorState::Whole => gate.map_or(self.chunks, Gate::close),
                _ => vector.request.first_chunk,
            };
            if !self.are_separate && !vector.is_own() {
                prefixes.extend(vector.leases.iter().map(|lease| (lease.tasks, next)));
            }
            ended.push(id);
        }
        ended
    }

    /// Returns the vectors whose leases were computed more than `timeout_s` ago, and whose headers have not arrived.
    pub(crate) fn overdue(&mut self, now_s: f64, timeout_s: f64) -> Vec<(WorkerId, VectorId)> {
        let Self { vectors, computed, .. } = self;
        let mut overdue = Vec::new();
        for (id, vector) in vectors.iter_mut() {
            if vector.leases.iter().all(|lease| computed.contains(&lease.id))
                && matches!(vector.state, VectorState::Asked)
                && now_s - vector.progress.get_or_insert(VectorProgress::new(now_s)).due_s > timeout_s
            {
                overdue.push((vector.worker, *id));
            }
        }
        overdue
    }

    /// Returns the vectors whose tasks other workers could compute again before they arrive, at time `now_s`. `may_pass` says whether a
    /// chunk may be read, or must wait for other vectors.
    pub(crate) fn late(&mut self, now_s: f64, may_pass: impl Fn(u64) -> bool) -> Vec<(WorkerId, VectorId)> {
        let began_s = *self.began_s.get_or_insert(now_s);
        for vector in self.vectors.values_mut() {
            if vector.leases.iter().any(|lease| !self.computed.contains(&lease.id)) {
                continue;
            }
            let (next, come, waits) = match &vector.state {
                VectorState::Asked => (None, 0, false),
                VectorState::Announced(_) => (None, 0, true),
                VectorState::Open(gate) => (Some(gate.next()), gate.next(), !may_pass(gate.next())),
                VectorState::Filling(filling) => (Some(filling.chunks()), filling.bytes(), false),
                VectorState::Held(_) | VectorState::Whole => (Some(self.chunks), 0, true),
            };
            vector.progress.get_or_insert(VectorProgress::new(now_s)).see(now_s, next, come, waits);
        }
        let is_late = |(id, vector): &(&VectorId, &Vector)| {
            let others = self.vectors.values().filter(|other| other.worker != vector.worker);
            let first_chunk = vector.request.first_chunk;
            !self.is_shared(**id)
                && vector.progress.is_some_and(|progress| {
                    progress.is_late(now_s, began_s, others.map(|other| other.progress), first_chunk, self.chunks)
                })
        };
        self.vectors.iter().filter(is_late).map(|(id, vector)| (vector.worker, *id)).collect()
    }
}
