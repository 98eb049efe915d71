//! The true task times of workers, for policies that serve as a reference. Only a simulation knows them.

use std::fmt;

use ata_types::WorkerId;

/// The true speeds of the workers at the moment when an iteration is about to begin.
pub trait Truth: fmt::Debug + Send + Sync {
    /// Returns the current mean time of the worker's tasks, in seconds; positive and finite.
    fn mean_s(&self, worker: WorkerId) -> f64;

    /// Returns the seconds that the worker's next `tasks` tasks will take, including their assignment, if it is idle now. The value does
    /// not decrease with `tasks`, and is positive and finite for at least one task.
    fn coming_s(&self, worker: WorkerId, tasks: u64) -> f64;
}

/// Constant task times, by [`WorkerId::slot`]; a worker beyond the end counts as the slowest.
impl Truth for Vec<f64> {
    fn mean_s(&self, worker: WorkerId) -> f64 {
        let slowest = || self.iter().copied().fold(f64::MIN_POSITIVE, f64::max);
        self.get(worker.slot()).copied().unwrap_or_else(slowest)
    }

    fn coming_s(&self, worker: WorkerId, tasks: u64) -> f64 {
        self.mean_s(worker) * tasks as f64
    }
}
