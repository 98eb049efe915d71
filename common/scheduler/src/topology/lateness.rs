//! Vectors that are not waited for, since other workers compute their tasks again sooner.

/// A worker or a link that pauses for less is waited for: on a busy machine that is usual.
const PAUSE_S: f64 = 2.0;

/// How far a vector has come, whose leases are computed. Times are in seconds of the run's clock.
#[derive(Clone, Copy, Debug)]
pub struct VectorProgress {
    /// When it was first known that its leases are computed, so that only its worker and its link are waited for.
    pub due_s: f64,
    /// The next chunk of it, once its header was accepted.
    next: Option<u64>,
    /// How much of it had come, in chunks or in bytes, and when that was first seen.
    come: (u64, f64),
    /// Since when it waits for others, or is here whole.
    waits_since_s: Option<f64>,
}

impl VectorProgress {
    /// That of a vector whose leases are first known to be computed.
    pub fn new(now_s: f64) -> Self {
        Self { due_s: now_s, next: None, come: (0, now_s), waits_since_s: None }
    }

    /// Notes the next chunk, how much has come, in the same unit each time, and whether the vector is here whole or waits for others.
    pub fn see(&mut self, now_s: f64, next: Option<u64>, come: u64, waits: bool) {
        if self.next != next || self.come.0 != come {
            (self.next, self.come) = (next, (come, now_s));
        }
        self.waits_since_s = waits.then(|| self.waits_since_s.unwrap_or(now_s));
    }

    /// Whether others compute the vector's tasks again sooner than it arrives: all vectors of other workers are here or stall as well,
    /// more time has passed since than the others took from `began_s`, when the iteration began, and what is left will take as long,
    /// if it goes on as until now. `others` are those of other workers, `None` as long as their leases are computed. The vector is
    /// sent from chunk `first_chunk` on, and has `chunks`.
    pub fn is_late(
        &self,
        now_s: f64,
        began_s: f64,
        others: impl Iterator<Item = Option<Self>>,
        first_chunk: u64,
        chunks: u64,
    ) -> bool {
        if self.waits_since_s.is_some() {
            return false;
        }
        let (mut is_one_here, mut moved_s, mut last_s) = (false, f64::NEG_INFINITY, began_s);
        for other in others {
            let Some(Self { come: (_, come_s), waits_since_s, .. }) = other else { return false };
            match waits_since_s {
                Some(since_s) => (is_one_here, last_s) = (true, last_s.max(since_s)),
                None => moved_s = moved_s.max(come_s),
            }
        }
        let others_s = last_s - began_s;
        let patience_s = others_s.max(PAUSE_S);
        is_one_here
            && now_s - moved_s > patience_s
            && now_s - self.due_s.max(last_s) > patience_s
            && self.remaining_s(now_s, first_chunk, chunks) > others_s
    }

    /// For how long the rest will still come, if it goes on as until now.
    fn remaining_s(&self, now_s: f64, first_chunk: u64, chunks: u64) -> f64 {
        let next = self.next.unwrap_or(first_chunk);
        (now_s - self.due_s) * (chunks - next) as f64 / (next - first_chunk) as f64
    }
}
