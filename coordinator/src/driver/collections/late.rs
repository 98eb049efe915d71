//! Vectors that are not waited for, since other workers compute their tasks again sooner.

use std::collections::BTreeSet;

use ata_types::{LeaseId, VectorId, WorkerId};

use super::{Collections, Vector};
use crate::training::Gate;

/// A worker or a link that pauses for less is waited for: on a busy machine that is usual.
const PAUSE_S: f64 = 2.0;

/// How far a vector has come, whose leases are computed.
#[derive(Clone, Copy, Debug)]
pub(super) struct Progress {
    /// When it was first known that its leases are computed, so that only its worker and its link are waited for.
    pub(super) due_s: f64,
    /// The next chunk of it, and when it was first seen to be that.
    next: (Option<u64>, f64),
    /// Since when it waits for others, or is here whole.
    waits_since_s: Option<f64>,
}

impl Progress {
    pub(super) fn new(now_s: f64) -> Self {
        Self { due_s: now_s, next: (None, now_s), waits_since_s: None }
    }

    fn see(&mut self, now_s: f64, next: Option<u64>, waits: bool) {
        if self.next.0 != next {
            self.next = (next, now_s);
        }
        self.waits_since_s = waits.then(|| self.waits_since_s.unwrap_or(now_s));
    }

    /// For how long the rest of its `chunks` will still come, if it goes on as until now.
    fn remaining_s(&self, now_s: f64, first_chunk: u64, chunks: u64) -> f64 {
        let next = self.next.0.unwrap_or(first_chunk);
        (now_s - self.due_s) * (chunks - next) as f64 / (next - first_chunk) as f64
    }
}

impl Collections {
    /// The vectors that are waited for although others compute their tasks again sooner, at time `now_s`: all other workers' vectors
    /// are here or stall as well, more time has passed since than the others took from the beginning of the iteration, and what is
    /// left will take as long, if the vector goes on as until now. `waits` says of a vector whether it waits for others, and
    /// `is_computed` whether the leases of one are computed.
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
                vector.progress.get_or_insert(Progress::new(now_s)).see(now_s, next, waits);
            }
        }
        let is_late =
            |(id, vector): &(&VectorId, &Vector)| !self.is_shared(**id) && self.is_late(vector, now_s, began_s);
        self.vectors.iter().filter(is_late).map(|(id, vector)| (vector.worker, *id)).collect()
    }

    fn is_late(&self, vector: &Vector, now_s: f64, began_s: f64) -> bool {
        let Some(progress) = vector.progress.filter(|progress| progress.waits_since_s.is_none()) else { return false };
        let (mut here, mut moving, mut last_s) = (BTreeSet::new(), Vec::new(), began_s);
        for other in self.vectors.values().filter(|other| other.worker != vector.worker) {
            match other.progress {
                Some(Progress { waits_since_s: Some(since_s), .. }) => {
                    here.insert(other.worker);
                    last_s = last_s.max(since_s);
                }
                Some(Progress { next: (_, moved_s), .. }) => moving.push(moved_s),
                None => return false,
            }
        }
        let others_s = last_s - began_s;
        let patience_s = others_s.max(PAUSE_S);
        let first_chunk = vector.request.first_chunk;
        !here.is_empty()
            && moving.iter().all(|moved_s| now_s - moved_s > patience_s)
            && now_s - progress.due_s.max(last_s) > patience_s
            && progress.remaining_s(now_s, first_chunk, self.chunks) > others_s
    }
}
