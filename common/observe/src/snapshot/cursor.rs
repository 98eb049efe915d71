//! The position of a reader in a run.

use std::collections::BTreeMap;
use std::hash::{DefaultHasher, Hash, Hasher};

use ata_record::{ReadMark, RunState};
use ata_types::WorkerId;

use super::worker::WorkerSnapshot;

/// The position of a reader in a run: [`crate::Snapshot::since`] returns the rest.
#[derive(Debug, Default)]
pub(crate) struct Cursor {
    /// The identity of the state that was read. A new state is read from its beginning.
    state: u64,
    pub(super) steps: ReadMark,
    pub(super) evaluations: ReadMark,
    pub(super) heat: ReadMark,
    pub(super) lines: usize,
    /// A digest of each worker's row.
    workers: BTreeMap<WorkerId, u64>,
}

impl Cursor {
    /// Starts from the beginning if the reader has read another state.
    pub(super) fn enter(&mut self, run: &RunState) {
        if self.state != run.identity() {
            *self = Self { state: run.identity(), ..Self::default() };
        }
    }

    /// Returns the workers that have changed since the reader's last read.
    pub(super) fn changed_workers(&mut self, run: &RunState) -> Vec<WorkerSnapshot> {
        let mut workers = WorkerSnapshot::all(run);
        workers.retain(|worker| {
            let mut hasher = DefaultHasher::new();
            serde_json::to_vec(worker).unwrap_or_default().hash(&mut hasher);
            let digest = hasher.finish();
            self.workers.insert(worker.share.number, digest) != Some(digest)
        });
        workers
    }
}
