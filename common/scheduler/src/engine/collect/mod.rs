//! Modes, which decide on the results that make a step. Each has a file.
//!
//! A mode determines what is handed out as the iteration begins, whether a result is wanted, what a worker gets when it has
//! nothing left to do, whether tasks whose lease ended without a result must be computed by another worker, and what
//! the iteration cost. It knows only tasks; the lease table knows which worker holds them.

mod barrier;
mod each;
mod first;
mod parts;
mod race;
mod settled;

pub(super) use barrier::Barrier;
pub(super) use each::Each;
pub(super) use first::First;
pub(super) use parts::Parts;
pub(super) use race::Race;
pub(super) use settled::Settled;

use super::pool::TaskPool;
use crate::policy::{Collect, Decision};
use ata_types::{TaskRange, TaskRanges};

/// Decides which results make the step of an iteration.
pub(super) trait Mode: Send {
    /// Returns the tasks to hand out as the iteration begins, as positions among the decision's workers, with tasks.
    fn shares(&mut self, _decision: &Decision) -> Vec<(usize, TaskRange)> {
        Vec::new()
    }

    /// Returns whether the first results make the step, so that its tasks and their workers are not known in advance.
    fn races(&self) -> bool {
        false
    }

    /// Returns whether the step can use a result for these tasks.
    fn wants(&self, tasks: TaskRange) -> bool;

    /// Takes a wanted result that has arrived.
    fn take(&mut self, tasks: TaskRange);

    /// Takes back a result that was lost before it was collected.
    fn lose(&mut self, _tasks: TaskRange) {}

    /// Returns whether the step has all its tasks.
    fn is_complete(&self) -> bool;

    /// Returns the next task of a worker with nothing to do; `None` if it waits for the next iteration.
    fn next(&mut self) -> Option<TaskRange> {
        None
    }

    /// Returns the tasks that no worker has been given yet, if the policy is asked for more of them at each result.
    fn pool(&mut self) -> Option<&mut TaskPool> {
        None
    }

    /// Returns whether workers never wait: [`Self::next`] always has a task.
    fn keeps_busy(&self) -> bool {
        false
    }

    /// Returns whether wanted tasks whose lease ended without a result must be computed by another worker. `failed` is
    /// `true` if the tasks failed, and `false` if they were lost with their worker.
    fn must_redo(&self, _failed: bool) -> bool {
        true
    }

    /// Returns the tasks of a complete step, if they are known regardless of the results taken.
    fn step_tasks(&self) -> Option<TaskRanges> {
        None
    }

    /// Returns which of its seconds an iteration costs a worker.
    fn worker_time(&self) -> WorkerTime;

    /// Returns which results are too late, if each result makes its own step.
    fn lateness(&self) -> Option<Lateness> {
        None
    }
}

/// The seconds of an iteration that count as a worker's time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum WorkerTime {
    /// Only the seconds of computation count: waiting at a barrier costs nothing.
    Busy,
    /// All seconds count, because workers are busy all the time.
    Occupied,
}

/// The limit beyond which results of an asynchronous iteration are too late.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Lateness {
    /// The delay at which a result is ignored, R.
    pub(super) max_delay: u64,
    /// Whether a computation is cancelled as soon as its delay reaches R.
    pub(super) cancel: bool,
}

/// Returns the mode that a decision asks for.
pub(super) fn mode(decision: &Decision) -> Box<dyn Mode> {
    let allocated = decision.allocation.some().map(|(_, tasks)| tasks).sum();
    match decision.collect {
        Collect::All => Box::new(Barrier::new(allocated, None)),
        Collect::Soonest { take } => Box::new(Barrier::new(allocated, Some(take))),
        Collect::First { take, refill } => Box::new(First::new(take, refill)),
        Collect::InParts { tasks } => Box::new(Parts::new(tasks)),
        Collect::Race { tasks } => Box::new(Race::new(tasks)),
        Collect::Each { max_delay, cancel } => Box::new(Each::new(Lateness { max_delay, cancel })),
    }
}

/// Splits an allocation into single tasks, worker by worker, because any result may be among those that make the step.
fn single_tasks(allocation: &[u64]) -> Vec<(usize, TaskRange)> {
    let workers = allocation.iter().enumerate().flat_map(|(i, &tasks)| (0..tasks).map(move |_| i));
    workers.zip((0..).map(TaskRange::single)).collect()
}
