//! The workers that wait for the parameters of an iteration.

use ata_types::Iteration;

/// The workers that receive the parameters of the newest iteration. They share the coordinator's link.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Downloads {
    iteration: Iteration,
    /// The number of workers: those that contributed to the last step, and those that got a lease since.
    workers: usize,
    /// The number of the latter that have begun to compute.
    begun: usize,
    /// The longest that one of them waited, in seconds.
    longest_s: f64,
}

impl Downloads {
    pub(super) fn add(&mut self, iteration: Iteration) {
        if self.iteration != iteration {
            *self = Self { iteration, ..Self::default() };
        }
        self.workers += 1;
    }

    /// Records that a worker has begun to compute after it waited for the parameters of an iteration.
    pub(super) fn end(&mut self, iteration: Iteration, waited_s: f64) {
        if self.iteration == iteration {
            self.begun += 1;
            self.longest_s = self.longest_s.max(waited_s);
        }
    }

    /// Returns the number of workers that receive the parameters of an iteration; 1 for an earlier one, whose sets are no longer counted.
    pub(super) fn workers(&self, iteration: Iteration) -> usize {
        if self.iteration == iteration { self.workers } else { 1 }
    }

    /// Returns the seconds after which all workers have them, at the rate at which the first ones got theirs; 0 if none has begun.
    pub(super) fn all_s(&self, iteration: Iteration) -> f64 {
        if self.iteration != iteration || self.begun == 0 {
            return 0.0;
        }
        self.longest_s * self.workers as f64 / self.begun as f64
    }
}
