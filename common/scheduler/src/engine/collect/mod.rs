//! Which results make a step: one file per mode.
//!
//! A mode says what is handed out as the iteration begins, whether a result is wanted, what a worker gets when it has nothing
//! left to do, whether tasks whose lease came to nothing must be computed by another worker, and what the iteration cost.
//! It knows tasks only: who holds them is the lease table's business.

mod barrier;
mod each;
mod first;
mod race;

pub(super) use barrier::Barrier;
pub(super) use each::Each;
pub(super) use first::First;
pub(super) use race::Race;

use crate::ids::TaskRange;
use crate::policy::{Collect, Decision};

/// The mode of an iteration under way.
pub(super) trait Mode: Send {
    /// What is handed out as the iteration begins: positions among the decision's workers, and tasks.
    fn shares(&mut self, decision: &Decision) -> Vec<(usize, TaskRange)>;

    /// Whether the step can use a result for these tasks.
    fn wants(&self, tasks: TaskRange) -> bool;

    /// A result came in that is wanted.
    fn take(&mut self, tasks: TaskRange);

    /// Whether the step has all its tasks.
    fn is_complete(&self) -> bool;

    /// What a worker without anything to do gets; `None` if it waits for the next iteration. This is where a mode would hand
    /// out what it held back of a share, or a copy of a late task.
    fn next(&mut self) -> Option<TaskRange>;

    /// Whether workers never wait: [`Self::next`] always has a task.
    fn keeps_busy(&self) -> bool;

    /// Whether wanted tasks whose lease came to nothing must be computed by another worker. `failed` tells whether they
    /// themselves failed on a worker, rather than merely going down with it.
    fn must_redo(&self, failed: bool) -> bool;

    /// The tasks of a step that is complete, if they are known without looking at what was taken.
    fn step_tasks(&self) -> Option<TaskRange> {
        None
    }

    /// Total worker time of the finished iteration, in seconds.
    fn total_worker_time_s(&self, spent: &Spent) -> f64;

    /// If each result makes a step of its own: which results are too late.
    fn lateness(&self) -> Option<Lateness> {
        None
    }
}

/// What an iteration took.
#[derive(Clone, Copy, Debug)]
pub(super) struct Spent {
    /// Seconds on tasks that entered the step.
    pub(super) applied_s: f64,
    /// Seconds on others.
    pub(super) wasted_s: f64,
    /// C_k, in seconds.
    pub(super) runtime_s: f64,
    /// Workers that took part.
    pub(super) workers: u64,
}

impl Spent {
    /// Of workers that wait when they have nothing to do, which costs nothing.
    fn busy_s(&self) -> f64 {
        self.applied_s + self.wasted_s
    }

    /// Of workers that are busy all the time.
    fn occupied_s(&self) -> f64 {
        self.workers as f64 * self.runtime_s
    }
}

/// Which results of an asynchronous iteration are too late.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Lateness {
    /// R: a result of this delay or more is ignored.
    pub(super) max_delay: u64,
    /// Whether a computation is cancelled as soon as its delay gets there.
    pub(super) cancel: bool,
}

/// The mode that a decision asks for.
pub(super) fn mode(decision: &Decision) -> Box<dyn Mode> {
    let allocated = decision.allocation.iter().sum();
    match decision.collect {
        Collect::All => Box::new(Barrier::new(allocated, None)),
        Collect::Soonest { take } => Box::new(Barrier::new(allocated, Some(take))),
        Collect::First { take, refill } => Box::new(First::new(take, refill)),
        Collect::Race { tasks } => Box::new(Race::new(tasks)),
        Collect::Each { max_delay, cancel } => Box::new(Each::new(Lateness { max_delay, cancel })),
    }
}

/// Each task of an allocation by itself, worker by worker: any one result may be among those that make the step.
fn single_tasks(allocation: &[u64]) -> Vec<(usize, TaskRange)> {
    let workers = allocation.iter().enumerate().flat_map(|(i, &tasks)| (0..tasks).map(move |_| i));
    workers.zip((0..).map(TaskRange::single)).collect()
}
