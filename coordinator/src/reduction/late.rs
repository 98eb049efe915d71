//! Finds the vectors that are not worth waiting for.

use ata_scheduler::topology::VectorProgress;
use ata_types::{VectorId, WorkerId};

use super::Reduction;
use super::vector::{Vector, VectorState};

impl Reduction {
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
