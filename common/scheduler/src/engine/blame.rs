//! Failures of the same tasks, and the workers on which they occurred.

use smallvec::SmallVec;

use ata_types::WorkerId;

/// The failures of the same tasks so far.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Blame {
    /// The workers on which they failed, each once; the most recent one is last.
    pub(super) workers: SmallVec<[WorkerId; 4]>,
    /// The number of failed attempts.
    pub(super) attempts: u32,
}

impl Blame {
    pub(super) fn add(&mut self, worker: WorkerId) {
        self.attempts += 1;
        self.workers.retain(|before| *before != worker);
        self.workers.push(worker);
    }
}
