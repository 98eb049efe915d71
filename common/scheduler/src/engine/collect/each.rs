//! The asynchronous mode: every worker computes all the time, and each result makes its own step.

use super::{Lateness, Mode, WorkerTime};
use ata_types::TaskRange;

#[derive(Debug)]
pub(in crate::engine) struct Each {
    lateness: Lateness,
    is_taken: bool,
    /// The first task index that was never handed out in this iteration.
    next: u64,
}

impl Each {
    pub(super) fn new(lateness: Lateness) -> Self {
        Self { lateness, is_taken: false, next: 0 }
    }
}

impl Mode for Each {
    fn wants(&self, _tasks: TaskRange) -> bool {
        true
    }

    fn take(&mut self, _tasks: TaskRange) {
        self.is_taken = true;
    }

    fn is_complete(&self) -> bool {
        self.is_taken
    }

    fn next(&mut self) -> Option<TaskRange> {
        self.next += 1;
        Some(TaskRange::single(self.next - 1))
    }

    fn keeps_busy(&self) -> bool {
        true
    }

    /// No step needs that particular task.
    fn must_redo(&self, _failed: bool) -> bool {
        false
    }

    fn worker_time(&self) -> WorkerTime {
        WorkerTime::Occupied
    }

    fn lateness(&self) -> Option<Lateness> {
        Some(self.lateness)
    }
}
