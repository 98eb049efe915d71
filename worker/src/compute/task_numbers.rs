//! The numbers of tasks.

use ata_types::{Iteration, TaskRange};

/// How a learner numbers the tasks of an iteration.
#[derive(Clone, Copy)]
pub(super) struct TaskNumbers {
    /// Whether tasks are counted through the whole run, all of which is one iteration to a learner then.
    pub(super) counts: bool,
    /// The number of tasks before the iteration.
    pub(super) position: u64,
}

impl TaskNumbers {
    /// Returns tasks of an iteration as a learner knows them.
    pub(super) fn of(self, iteration: Iteration, tasks: TaskRange) -> (Iteration, TaskRange) {
        if !self.counts {
            return (iteration, tasks);
        }
        (Iteration::FIRST, TaskRange { first: self.position.saturating_add(tasks.first), ..tasks })
    }
}
