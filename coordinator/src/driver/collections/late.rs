//! Which vectors are late.

use ata_scheduler::topology::VectorProgress;
use ata_types::{LeaseId, VectorId, WorkerId};

use super::{Collections, Vector};
use crate::training::Gate;

impl Collections {
    /// The vectors that are waited for although others compute their tasks again sooner, at time `now_s`. `waits` says of a vector
    /// and its next chunk whether it waits for others, and `is_computed` whether the leases of one are computed.
    pub(in crate::driver) fn late(
        &mut self,
        now_s: f64,
        waits: impl Fn(VectorId, Option<u64>) -> bool,
        is_computed: impl Fn(LeaseId) -> bool,
    ) -> Vec<(WorkerId, VectorId)> {
        let began_s = *self.began_s.get_or_insert(now_s);
        for (id, vector) in &mut self.vectors {
            if vector.leases.iter().all(|(lease, _)| is_computed(*lease)) {
                let next = vector.gate.as_ref().map(Gate::next);
                let waits = vector.has_arrived || waits(*id, next);
                vector.progress.get_or_insert(VectorProgress::new(now_s)).see(now_s, next, waits);
            }
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
