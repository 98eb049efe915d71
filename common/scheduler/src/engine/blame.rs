//! Failures of the same tasks, and the workers that they happened on.

use smallvec::SmallVec;

use ata_types::WorkerId;

/// The failures of the same tasks so far.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Blame {
    /// The workers they failed on, each once; the one that failed last is the last.
    pub(super) workers: SmallVec<[WorkerId; 4]>,
    /// Attempts that failed.
    pub(super) attempts: u32,
}

impl Blame {
    pub(super) fn add(&mut self, worker: WorkerId) {
        self.attempts += 1;
        self.workers.retain(|before| *before != worker);
        self.workers.push(worker);
    }
}
