//! The view of an iteration that a policy gets, and the actions that it can take.

use super::{Copies, Leases, Roster};
use ata_types::{Iteration, WorkerId};

/// The state of an iteration whose tasks are handed out in parts, for its policy.
pub struct IterationView<'a> {
    /// Seconds since the run began.
    pub now_s: f64,
    /// The number of tasks that no worker has been given yet.
    pub left: u64,
    /// Whether several workers may compute the same tasks.
    pub may_copy: bool,
    pub(super) leases: &'a Leases,
    pub(super) roster: &'a Roster,
    pub(super) copies: &'a Copies,
    pub(super) iteration: Iteration,
    /// The first task index that no step takes.
    pub(super) tasks: u64,
}

/// A worker's activity within an iteration.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Activity {
    /// The worker is absent or leaving, or rests while others do not.
    Away,
    /// The worker has nothing to do, or only a probe, which stops if the worker gets something else.
    Idle,
    /// The worker computes tasks that the step takes or, if local steps are taken ahead, the one before.
    Busy {
        /// The number of tasks that it holds.
        tasks: u64,
        /// Seconds since it began its current lease.
        elapsed_s: f64,
        /// Whether some of the tasks belong to a lease that it has not begun.
        has_more: bool,
        /// Whether another worker has begun the same tasks after it.
        is_copied: bool,
    },
}

impl IterationView<'_> {
    /// Returns a worker's activity.
    #[inline]
    pub fn activity(&self, worker: WorkerId) -> Activity {
        if self.roster.leaving.contains(worker) {
            return Activity::Away;
        }
        let mut leases = self.leases.of(worker).map(|(lease, _)| lease);
        let Some(first) = leases.next() else {
            let may_begin = self.roster.may_begin(worker, self.leases.is_empty());
            return if may_begin { Activity::Idle } else { Activity::Away };
        };
        if first.iteration == self.iteration && first.tasks.first >= self.tasks {
            return Activity::Idle;
        }
        let more: u64 = leases.map(|lease| lease.tasks.count).sum();
        Activity::Busy {
            tasks: first.tasks.count + more,
            elapsed_s: self.leases.elapsed_s(self.now_s, worker),
            has_more: more > 0,
            is_copied: self.copies.is_copied(worker, first.tasks),
        }
    }

    /// Returns the workers that have nothing to do, not even a probe, ascending. If all rest, and none computes, it returns the
    /// resting ones.
    pub fn idle(&self) -> Vec<WorkerId> {
        self.roster.idle(self.leases.is_empty())
    }
}

/// The actions of a policy within an iteration, in the order of the fields. Actions that cannot be carried out are skipped, such as
/// actions for resting or unknown workers, tasks beyond those left, and copies by busy workers or of workers without tasks.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Actions {
    /// Workers, with the number of the remaining tasks that each begins now, or after those that it holds.
    pub begin: Vec<(WorkerId, u64)>,
    /// Workers whose probe is cancelled.
    pub stop: Vec<WorkerId>,
    /// Idle workers, each with the worker whose tasks it computes as well. The first result of a task enters the step; the other
    /// computations of it are cancelled.
    pub copy: Vec<(WorkerId, WorkerId)>,
    /// The time at which to ask again if nothing happens before, in seconds since the run began.
    pub ask_again_s: Option<f64>,
}
