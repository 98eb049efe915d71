//! The mode in which the first results make the step: greedy allocation, where a worker starts another task at once,
//! and k-sync, where it waits.

use super::{Mode, WorkerTime, single_tasks};
use crate::policy::Decision;
use ata_types::TaskRange;

#[derive(Debug)]
pub(in crate::engine) struct First {
    /// The number of results that make the step.
    take: u64,
    taken: u64,
    refill: bool,
    /// The first task index that was never handed out.
    next: u64,
}

impl First {
    pub(super) fn new(take: u64, refill: bool) -> Self {
        Self { take, taken: 0, refill, next: 0 }
    }
}

impl Mode for First {
    fn shares(&mut self, decision: &Decision) -> Vec<(usize, TaskRange)> {
        let shares = single_tasks(&decision.allocation);
        self.next = shares.len() as u64;
        shares
    }

    fn races(&self) -> bool {
        true
    }

    fn wants(&self, _tasks: TaskRange) -> bool {
        true
    }

    fn take(&mut self, tasks: TaskRange) {
        self.taken += tasks.count;
    }

    fn lose(&mut self, tasks: TaskRange) {
        self.taken -= tasks.count;
    }

    fn is_complete(&self) -> bool {
        self.taken >= self.take
    }

    fn next(&mut self) -> Option<TaskRange> {
        self.refill.then(|| {
            self.next += 1;
            TaskRange::single(self.next - 1)
        })
    }

    fn keeps_busy(&self) -> bool {
        self.refill
    }

    /// Since there is always another task, only failed ones are worth retrying: if they fail everywhere, the run must end.
    fn must_redo(&self, failed: bool) -> bool {
        failed || !self.refill
    }

    fn worker_time(&self) -> WorkerTime {
        WorkerTime::Occupied
    }
}
