//! The iteration under way.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::blame::Blame;
use super::checks::Check;
use super::collect::{Mode, Spent, mode};
use super::copies::Copies;
use super::event::{Effect, LeaseTime};
use super::midway::Orders;
use super::worker_set::WorkerSet;
use crate::ledger::{IterationCost, Ledger};
use crate::policy::{Decision, SchedulerRng};
use ata_types::{Iteration, Lease, TaskOutcome, TaskRange, WorkerId};

/// Tasks whose lease ended without a result, to be given to another worker.
#[derive(Clone, Debug)]
pub(super) struct Orphan {
    pub(super) tasks: TaskRange,
    pub(super) blame: Option<Box<Blame>>,
}

/// A result that enters a step.
#[derive(Clone, Copy, Debug)]
pub(super) struct Taken {
    pub(super) worker: WorkerId,
    pub(super) lease: Lease,
    pub(super) busy_s: f64,
    /// Factor on the reported seconds, at most 1.
    pub(super) factor: f64,
    /// For the last lease that its worker held: seconds of its occupation that no report accounts for.
    pub(super) overhead_s: Option<f64>,
}

impl Taken {
    /// The effect that ends its lease.
    pub(super) fn end(&self, outcome: TaskOutcome) -> Effect {
        let Self { worker, lease, factor, overhead_s, .. } = *self;
        Effect::End { worker, lease, outcome, time: LeaseTime::Reported { factor, overhead_s } }
    }
}

/// Work that enters no step.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Waste {
    /// Tasks begun.
    pub(super) tasks: u64,
    /// Seconds spent on them.
    pub(super) busy_s: f64,
}

impl Waste {
    pub(super) fn add(&mut self, tasks: u64, busy_s: f64) {
        self.tasks += tasks;
        self.busy_s += busy_s;
    }
}

/// The workers that got a task in an iteration, each once. Clearing it takes no longer than filling it did.
#[derive(Debug, Default)]
pub(super) struct Employed {
    workers: Vec<WorkerId>,
    set: WorkerSet,
}

impl Employed {
    pub(super) fn add(&mut self, worker: WorkerId) {
        if !self.set.contains(worker) {
            self.set.insert(worker);
            self.workers.push(worker);
        }
    }

    pub(super) fn workers(&self) -> &[WorkerId] {
        &self.workers
    }

    /// Removes all workers, and keeps the memory.
    pub(super) fn cleared(mut self) -> Self {
        for worker in self.workers.drain(..) {
            self.set.remove(worker);
        }
        self
    }
}

/// Everything the engine keeps for one iteration and drops at its end.
pub(super) struct Collecting {
    pub(super) number: Iteration,
    pub(super) decision: Arc<Decision>,
    pub(super) mode: Box<dyn Mode>,
    pub(super) started_s: f64,
    pub(super) finished_s: f64,
    /// Workers that took part: available at the start, or joined since.
    pub(super) workers: u64,
    pub(super) taken: Vec<Taken>,
    pub(super) orphans: Vec<Orphan>,
    /// Tasks whose result is taken only once two workers agree on it, by the first task.
    pub(super) checks: BTreeMap<u64, Check>,
    pub(super) employed: Employed,
    /// What the policy ordered last.
    pub(super) orders: Orders,
    pub(super) copies: Copies,
    /// In an asynchronous iteration, where no worker retries a task: the failures since the last step.
    pub(super) blame: Blame,
    /// Created on first use.
    pub(super) recovery_rng: Option<SchedulerRng>,
}

impl Collecting {
    pub(super) fn new(
        number: Iteration,
        workers: u64,
        decision: Arc<Decision>,
        started_s: f64,
        employed: Employed,
    ) -> Self {
        Self {
            number,
            mode: mode(&decision),
            decision,
            started_s,
            finished_s: started_s,
            workers,
            taken: Vec::new(),
            orphans: Vec::new(),
            checks: BTreeMap::new(),
            employed,
            orders: Orders::default(),
            copies: Copies::default(),
            blame: Blame::default(),
            recovery_rng: None,
        }
    }

    /// Whether each result makes its own step.
    pub(super) fn is_asynchronous(&self) -> bool {
        self.mode.lateness().is_some()
    }

    pub(super) fn take(&mut self, taken: Taken) {
        self.mode.take(taken.lease.tasks);
        self.taken.push(taken);
    }

    /// The tasks of the step, ascending, neighbours joined.
    pub(super) fn step_tasks(&self) -> Vec<TaskRange> {
        if let Some(all) = self.mode.step_tasks() {
            return vec![all];
        }
        let mut ranges: Vec<TaskRange> = self.taken.iter().map(|taken| taken.lease.tasks).collect();
        ranges.sort_unstable();
        ranges.dedup_by(|next, last| {
            let adjacent = last.end() == next.first;
            if adjacent {
                last.count += next.count;
            }
            adjacent
        });
        ranges
    }

    /// Enters the finished iteration into the ledger.
    pub(super) fn commit(&self, waste: Waste, results: u64, ledger: &mut Ledger) -> IterationCost {
        for taken in &self.taken {
            let worker = ledger.worker(taken.worker);
            worker.tasks_applied += taken.lease.tasks.count;
            worker.busy_s += taken.busy_s;
            worker.overhead_s += taken.overhead_s.unwrap_or(0.0);
        }
        for &worker in self.employed.workers() {
            ledger.worker(worker).employments += 1;
        }
        let runtime_s = self.finished_s - self.started_s;
        let applied_s = self.taken.iter().map(|taken| taken.busy_s).sum();
        let spent = Spent { applied_s, wasted_s: waste.busy_s, runtime_s, workers: self.workers };
        let cost = IterationCost {
            iteration: self.number,
            started_s: self.started_s,
            runtime_s,
            total_worker_time_s: self.mode.total_worker_time_s(&spent),
            tasks_applied: self.taken.iter().map(|taken| taken.lease.tasks.count).sum(),
            tasks_wasted: waste.tasks,
            results,
            employments: self.employed.workers().len() as u64,
        };
        ledger.commit(cost);
        cost
    }
}
