//! The mode in which the step waits for all of its tasks, which are handed out in parts. Some of them may be computed twice. There
//! may also be probes, which the step does not wait for.

use super::{Mode, WorkerTime};
use crate::engine::pool::TaskPool;
use crate::policy::Decision;
use ata_types::{TaskRange, TaskRanges};

/// A barrier on the tasks 0..B; later tasks are probes.
#[derive(Debug)]
pub(in crate::engine) struct Parts {
    /// Whether each task is done, by task index.
    done: Vec<bool>,
    left: u64,
    pool: TaskPool,
}

impl Parts {
    pub(super) fn new(tasks: u64) -> Self {
        Self { done: vec![false; tasks as usize], left: tasks, pool: TaskPool::new(tasks) }
    }
}

impl Mode for Parts {
    /// Only probes are handed out here: the policy is asked for the rest.
    fn shares(&mut self, decision: &Decision) -> Vec<(usize, TaskRange)> {
        let indices = (self.done.len() as u64..).map(TaskRange::single);
        decision.probes.iter().copied().zip(indices).collect()
    }

    fn wants(&self, tasks: TaskRange) -> bool {
        self.done.get(tasks.first as usize).is_some_and(|done| !done)
    }

    fn take(&mut self, tasks: TaskRange) {
        self.done[tasks.first as usize..tasks.end() as usize].fill(true);
        self.left -= tasks.count;
    }

    fn lose(&mut self, tasks: TaskRange) {
        self.done[tasks.first as usize..tasks.end() as usize].fill(false);
        self.left += tasks.count;
    }

    fn is_complete(&self) -> bool {
        self.left == 0
    }

    fn pool(&mut self) -> Option<&mut TaskPool> {
        Some(&mut self.pool)
    }

    fn step_tasks(&self) -> Option<TaskRanges> {
        Some(TaskRange { first: 0, count: self.done.len() as u64 }.into())
    }

    fn worker_time(&self) -> WorkerTime {
        WorkerTime::Busy
    }
}
