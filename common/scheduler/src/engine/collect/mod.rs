//! Modes decide which results make a step. Each has a file.
//!
//! A mode says what is handed out as the iteration begins, whether a result is wanted, what a worker gets when it has
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

use super::pool::Pool;
use crate::policy::{Collect, Decision};
use ata_types::{TaskRange, TaskRanges};

/// Decides which results make the step of an iteration.
pub(super) trait Mode: Send {
    /// The tasks to hand out as the iteration begins: positions among the decision's workers, and tasks.
    fn shares(&mut self, _decision: &Decision) -> Vec<(usize, TaskRange)> {
        Vec::new()
    }

    /// Whether the first results make the step, so that it is not known before which tasks are in it, and from whom.
    fn races(&self) -> bool {
        false
    }

    /// Whether the step can use a result for these tasks.
    fn wants(&self, tasks: TaskRange) -> bool;

    /// A wanted result has arrived.
    fn take(&mut self, tasks: TaskRange);

    /// A result that was taken is lost before it was collected.
    fn lose(&mut self, _tasks: TaskRange) {}

    /// Whether the step has all its tasks.
    fn is_complete(&self) -> bool;

    /// The next task of a worker with nothing to do; `None` if it waits for the next iteration.
    fn next(&mut self) -> Option<TaskRange> {
        None
    }

    /// The tasks that no worker has been given yet, if the policy is asked for more of them at each result.
    fn pool(&mut self) -> Option<&mut Pool> {
        None
    }

    /// Whether workers never wait: [`Self::next`] always has a task.
    fn keeps_busy(&self) -> bool {
        false
    }

    /// Whether wanted tasks whose lease ended without a result must be computed by another worker. `failed` says
    /// whether the tasks failed, rather than being lost with their worker.
    fn must_redo(&self, _failed: bool) -> bool {
        true
    }

    /// The tasks of a complete step, if they are known without looking at the results taken.
    fn step_tasks(&self) -> Option<TaskRanges> {
        None
    }

    /// Which of its seconds an iteration costs a worker.
    fn worker_time(&self) -> WorkerTime;

    /// If each result makes its own step: which results are too late.
    fn lateness(&self) -> Option<Lateness> {
        None
    }
}

/// Which of an iteration's seconds count as a worker's time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum WorkerTime {
    /// Those that it computed: waiting at a barrier costs nothing.
    Busy,
    /// All of them: workers are busy all the time.
    Occupied,
}

/// Which results of an asynchronous iteration are too late.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Lateness {
    /// The delay from which a result is ignored, R.
    pub(super) max_delay: u64,
    /// Whether a computation is cancelled as soon as its delay reaches R.
    pub(super) cancel: bool,
}

/// The mode that a decision asks for.
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

/// Each task of an allocation on its own, worker by worker: any result may be among those that make the step.
fn single_tasks(allocation: &[u64]) -> Vec<(usize, TaskRange)> {
    let workers = allocation.iter().enumerate().flat_map(|(i, &tasks)| (0..tasks).map(move |_| i));
    workers.zip((0..).map(TaskRange::single)).collect()
}
