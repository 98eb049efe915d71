//! Planning within an iteration: what a policy sees, and what it can do.

use super::copies::Copies;
use super::leases::Leases;
use super::roster::Roster;
use ata_types::WorkerId;

/// What a policy sees of an iteration whose tasks are handed out in parts.
pub struct IterationView<'a> {
    /// Seconds since the run began.
    pub now_s: f64,
    /// Tasks that no worker has been given yet.
    pub left: u64,
    pub(super) leases: &'a Leases,
    pub(super) roster: &'a Roster,
    pub(super) copies: &'a Copies,
    /// The first task index that no step takes.
    pub(super) tasks: u64,
}

/// A worker's activity within an iteration.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Activity {
    /// It is absent, or rests while others do not.
    Away,
    /// It has nothing to do, or only a probe, which stops if it gets something else.
    Idle,
    /// It computes tasks that the step takes.
    Busy {
        /// How many it holds.
        tasks: u64,
        /// Seconds since it began what it computes now.
        elapsed_s: f64,
        /// Whether some of them are a lease that it has not begun.
        has_more: bool,
        /// Whether another worker has begun the same tasks after it.
        is_copied: bool,
    },
}

impl IterationView<'_> {
    /// A worker's activity.
    #[inline]
    pub fn activity(&self, worker: WorkerId) -> Activity {
        let Some((first, tasks)) = self.leases.held(worker) else {
            let may_begin = self.roster.may_begin(worker, self.leases.is_empty());
            return if may_begin { Activity::Idle } else { Activity::Away };
        };
        if first.tasks.first >= self.tasks {
            return Activity::Idle;
        }
        let elapsed_s = self.leases.elapsed_s(self.now_s, worker);
        Activity::Busy {
            tasks,
            elapsed_s,
            has_more: tasks > first.tasks.count,
            is_copied: self.copies.is_copied(worker, first.tasks),
        }
    }

    /// The workers that have nothing to do, not even a probe, ascending. If all rest, and none computes, they are those
    /// that rest.
    pub fn idle(&self) -> Vec<WorkerId> {
        self.roster.idle(self.leases.is_empty())
    }
}

/// What a policy does within an iteration, in the order of the fields. Actions that cannot be carried out are skipped: for
/// workers that are resting or unknown, tasks beyond those left, copies by workers that are busy, and of workers without tasks.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Actions {
    /// Workers, and how many of the tasks left each begins now, or after those that it holds.
    pub begin: Vec<(WorkerId, u64)>,
    /// Workers whose probe is cancelled.
    pub stop: Vec<WorkerId>,
    /// Idle workers, and the worker whose tasks each computes as well. The first result of a task enters the step; the other
    /// computations of it are cancelled.
    pub copy: Vec<(WorkerId, WorkerId)>,
    /// When to be asked again if nothing happens before, in seconds since the run began.
    pub ask_again_s: Option<f64>,
}

impl Actions {
    pub(super) fn clear(&mut self) {
        self.begin.clear();
        self.stop.clear();
        self.copy.clear();
        self.ask_again_s = None;
    }
}
