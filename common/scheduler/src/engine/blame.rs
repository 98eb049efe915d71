//! Whose fault it may be.

use smallvec::SmallVec;

use crate::ids::WorkerId;

/// Who failed the same tasks before.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Blame {
    /// Each of them once.
    pub(super) workers: SmallVec<[WorkerId; 4]>,
    /// Attempts that failed.
    pub(super) attempts: u32,
}

impl Blame {
    pub(super) fn add(&mut self, worker: WorkerId) {
        self.attempts += 1;
        if !self.workers.contains(&worker) {
            self.workers.push(worker);
        }
    }
}
