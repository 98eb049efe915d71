//! Planning within an iteration: what a policy may look at, and what it may order.

use super::leases::Leases;
use super::roster::Roster;
use crate::ids::WorkerId;

/// An iteration under way whose tasks are handed out in parts.
pub struct Midway<'a> {
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

/// What a worker does.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Doing {
    /// It is gone, or rests.
    Away,
    /// It has nothing to do, or only a probe, which stops if it gets something else.
    Idle,
    /// It computes tasks that the step takes.
    Busy {
        /// How many it holds.
        tasks: u64,
        /// Seconds since it began what it computes now.
        elapsed_s: f64,
        /// Whether another worker has begun the same tasks after it.
        is_copied: bool,
    },
}

impl Midway<'_> {
    /// What a worker does.
    pub fn doing(&self, worker: WorkerId) -> Doing {
        let Some((first, tasks)) = self.leases.held(worker) else {
            let is_idle = self.roster.is_idle(worker);
            return if is_idle { Doing::Idle } else { Doing::Away };
        };
        if first.tasks.first >= self.tasks {
            return Doing::Idle;
        }
        let elapsed_s = self.leases.elapsed_s(self.now_s, worker);
        Doing::Busy { tasks, elapsed_s, is_copied: self.copies.is_copied(worker, first.tasks.first) }
    }

    /// The workers that have nothing to do, ascending.
    pub fn idle(&self) -> Vec<WorkerId> {
        self.roster.idle(self.leases.is_empty())
    }
}

/// What a policy orders within an iteration.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Orders {
    /// Idle workers, and how many of the tasks left each begins now.
    pub begin: Vec<(WorkerId, u64)>,
    /// Idle workers, and whose tasks each computes as well. The first result of a task enters the step; the other
    /// computations of it are cancelled.
    pub copy: Vec<(WorkerId, WorkerId)>,
    /// Workers whose probe is cancelled.
    pub stop: Vec<WorkerId>,
    /// When to be asked again if nothing happens before, in seconds since the run began.
    pub ask_again_s: Option<f64>,
}

impl Orders {
    pub(super) fn clear(&mut self) {
        self.begin.clear();
        self.copy.clear();
        self.stop.clear();
        self.ask_again_s = None;
    }
}

/// Who computes the same tasks as another worker.
#[derive(Debug, Default)]
pub(super) struct Copies {
    /// First task, and who computes it, in the order in which they got it. There are few.
    held: Vec<(u64, WorkerId)>,
}

impl Copies {
    fn is_copied(&self, worker: WorkerId, first: u64) -> bool {
        let last = self.held.iter().rfind(|(task, _)| *task == first);
        last.is_some_and(|(_, holder)| *holder != worker)
    }

    /// `copier` computes what `holder` does as well.
    pub(super) fn add(&mut self, first: u64, holder: WorkerId, copier: WorkerId) {
        if !self.held.contains(&(first, holder)) {
            self.held.push((first, holder));
        }
        self.held.push((first, copier));
    }

    /// A worker no longer computes these tasks; returns whether another one still does.
    pub(super) fn end(&mut self, worker: WorkerId, first: u64) -> bool {
        let Some(at) = self.held.iter().position(|held| *held == (first, worker)) else { return false };
        self.held.remove(at);
        let is_same = |(task, _): &(u64, WorkerId)| *task == first;
        // One that is left alone computes no copy.
        if self.held.iter().filter(|held| is_same(held)).count() == 1 {
            self.held.retain(|held| !is_same(held));
            return true;
        }
        self.held.iter().any(is_same)
    }

    /// Removes and returns the others that compute these tasks.
    pub(super) fn take_others(&mut self, worker: WorkerId, first: u64) -> Vec<WorkerId> {
        if self.held.is_empty() {
            return Vec::new();
        }
        let all = self.held.extract_if(.., |(task, _)| *task == first);
        all.map(|(_, holder)| holder).filter(|holder| *holder != worker).collect()
    }
}
