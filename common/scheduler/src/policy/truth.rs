//! The true task times of workers, for policies that others are measured against. Only a simulation knows them.

use std::fmt;

use ata_types::WorkerId;

/// The true speeds of the workers, as they are when an iteration is about to begin.
pub trait Truth: fmt::Debug + Send + Sync {
    /// The current mean time of the worker's tasks, in seconds; positive and finite.
    fn mean_s(&self, worker: WorkerId) -> f64;

    /// The seconds that the worker's next `tasks` tasks will take, and being assigned them, if it is idle now. Does not
    /// decrease with `tasks`; positive and finite for at least one task.
    fn coming_s(&self, worker: WorkerId, tasks: u64) -> f64;
}

/// Constant task times, by [`WorkerId::slot`]; a worker beyond them counts as the slowest.
impl Truth for Vec<f64> {
    fn mean_s(&self, worker: WorkerId) -> f64 {
        let slowest = || self.iter().copied().fold(f64::MIN_POSITIVE, f64::max);
        self.get(worker.slot()).copied().unwrap_or_else(slowest)
    }

    fn coming_s(&self, worker: WorkerId, tasks: u64) -> f64 {
        self.mean_s(worker) * tasks as f64
    }
}
