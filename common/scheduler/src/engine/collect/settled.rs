//! The mode for a step whose first results are known. Tasks whose results are lost before they were delivered are computed again.

use super::{Mode, WorkerTime};
use ata_types::{TaskRange, TaskRanges};

/// A barrier on tasks that were all done once.
#[derive(Debug)]
pub(in crate::engine) struct Settled {
    all: TaskRanges,
    missing: TaskRanges,
    worker_time: WorkerTime,
}

impl Settled {
    pub(in crate::engine) fn new(all: TaskRanges, worker_time: WorkerTime) -> Self {
        Self { all, missing: TaskRanges::default(), worker_time }
    }
}

impl Mode for Settled {
    fn wants(&self, tasks: TaskRange) -> bool {
        self.missing.covers(&tasks.into())
    }

    fn take(&mut self, tasks: TaskRange) {
        self.missing = self.missing.minus(&tasks.into());
    }

    fn lose(&mut self, tasks: TaskRange) {
        self.missing.insert(tasks);
    }

    fn is_complete(&self) -> bool {
        self.missing.is_empty()
    }

    fn step_tasks(&self) -> Option<TaskRanges> {
        Some(self.all.clone())
    }

    fn worker_time(&self) -> WorkerTime {
        self.worker_time
    }
}
