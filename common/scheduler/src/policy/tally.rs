//! The tasks and seconds of each worker in a part of a run, such as an iteration.

use serde::{Deserialize, Serialize};

use super::save_trimmed;
use ata_types::WorkerId;

/// The workers' tasks and seconds since the tally was last cleared.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(transparent)]
pub(super) struct Tally {
    /// The number of tasks and their total seconds, by slot; workers beyond the end have none.
    #[serde(serialize_with = "save_trimmed")]
    done: Vec<(u64, f64)>,
}

impl Tally {
    pub(super) fn add(&mut self, worker: WorkerId, tasks: u64, busy_s: f64) {
        let slot = worker.slot();
        self.done.resize(self.done.len().max(slot + 1), (0, 0.0));
        self.done[slot].0 += tasks;
        self.done[slot].1 += busy_s;
    }

    /// Returns a worker's number of tasks and their total seconds; `None` if it did none.
    pub(super) fn of(&self, worker: WorkerId) -> Option<(u64, f64)> {
        self.done.get(worker.slot()).copied().filter(|(tasks, _)| *tasks > 0)
    }

    /// Returns the workers that did tasks, with their number and total seconds, and clears the tally.
    pub(super) fn take(&mut self) -> impl Iterator<Item = (WorkerId, u64, f64)> {
        let done = std::mem::take(&mut self.done).into_iter().enumerate();
        done.filter(|(_, (tasks, _))| *tasks > 0).map(|(slot, (tasks, s))| (WorkerId::from_slot(slot), tasks, s))
    }

    pub(super) fn clear(&mut self) {
        self.done.clear();
    }

    pub(super) fn forget(&mut self, worker: WorkerId) {
        if let Some(done) = self.done.get_mut(worker.slot()) {
            *done = (0, 0.0);
        }
    }

    pub(super) fn is_valid(&self) -> bool {
        self.done.iter().all(|(_, total_s)| total_s.is_finite() && *total_s >= 0.0)
    }
}
