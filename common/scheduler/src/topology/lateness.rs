//! Decides which vectors are no longer waited for, because other workers compute their tasks again sooner.

/// The pause in seconds up to which a worker or a link is waited for: on a busy machine, such pauses are usual.
const PAUSE_S: f64 = 2.0;

/// The progress of a vector whose leases are computed. Times are in seconds of the run's clock.
#[derive(Clone, Copy, Debug)]
pub struct VectorProgress {
    /// The time at which its leases were first known to be computed, so that only its worker and its link are waited for.
    pub due_s: f64,
    /// The next chunk of the vector, once its header was accepted.
    next: Option<u64>,
    /// The amount that had arrived, in chunks or in bytes, and the time at which this was first observed.
    come: (u64, f64),
    /// The time since which it waits for others, or has arrived completely.
    waits_since_s: Option<f64>,
}

impl VectorProgress {
    /// Creates the progress of a vector whose leases are first known to be computed.
    pub fn new(now_s: f64) -> Self {
        Self { due_s: now_s, next: None, come: (0, now_s), waits_since_s: None }
    }

    /// Records the next chunk, the amount that has arrived (always in the same unit), and whether the vector is complete or waits for
    /// others.
    pub fn see(&mut self, now_s: f64, next: Option<u64>, come: u64, waits: bool) {
        if self.next != next || self.come.0 != come {
            (self.next, self.come) = (next, (come, now_s));
        }
        self.waits_since_s = waits.then(|| self.waits_since_s.unwrap_or(now_s));
    }

    /// Returns whether others compute the vector's tasks again sooner than it arrives. This requires that all vectors of other
    /// workers have arrived or stall as well, that more time has passed since than the others took from `began_s`, when the
    /// iteration began, and that the rest would take as long at the present rate. `others` are the vectors of other workers, `None`
    /// as long as their leases are computed. The vector is sent from chunk `first_chunk` on, and has `chunks` chunks.
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

    fn remaining_s(&self, now_s: f64, first_chunk: u64, chunks: u64) -> f64 {
        let next = self.next.unwrap_or(first_chunk);
        (now_s - self.due_s) * (chunks - next) as f64 / (next - first_chunk) as f64
    }
}
