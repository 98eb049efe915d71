//! The mode in which the step waits for every allocated task or, with overcommitment, for the first B of them. There may also be
//! probes, which it does not wait for.

use super::{Mode, WorkerTime, single_tasks};
use crate::engine::layout::lay_out;
use crate::policy::Decision;
use ata_types::{TaskRange, TaskRanges};

/// A barrier on the tasks 0..`allocated`; later tasks are probes.
#[derive(Debug)]
pub(in crate::engine) struct Barrier {
    allocated: u64,
    /// The number of tasks that make the step, if it is less than the number allocated.
    first: Option<u64>,
    taken: u64,
}

impl Barrier {
    pub(super) fn new(allocated: u64, first: Option<u64>) -> Self {
        Self { allocated, first, taken: 0 }
    }
}

impl Mode for Barrier {
    fn shares(&mut self, decision: &Decision) -> Vec<(usize, TaskRange)> {
        let allocation = &decision.allocation;
        // If the first results make the step, each task may be among them on its own.
        let mut shares = if self.races() { single_tasks(allocation) } else { lay_out(allocation) };
        let probes = decision.probes.iter().zip((self.allocated..).map(TaskRange::single));
        shares.extend(probes.map(|(&i, task)| (i, task)));
        shares
    }

    fn races(&self) -> bool {
        self.first.is_some()
    }

    fn wants(&self, tasks: TaskRange) -> bool {
        tasks.first < self.allocated
    }

    fn take(&mut self, tasks: TaskRange) {
        self.taken += tasks.count;
    }

    fn lose(&mut self, tasks: TaskRange) {
        self.taken -= tasks.count;
    }

    fn is_complete(&self) -> bool {
        self.taken >= self.first.unwrap_or(self.allocated)
    }

    fn step_tasks(&self) -> Option<TaskRanges> {
        self.first.is_none().then(|| TaskRange { first: 0, count: self.allocated }.into())
    }

    fn worker_time(&self) -> WorkerTime {
        WorkerTime::Busy
    }
}
