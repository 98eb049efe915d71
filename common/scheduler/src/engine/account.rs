//! The parts of an iteration's cost: results, wasted work, and the employed workers.

use super::{Effect, LeaseTime, WorkerSet};
use ata_types::{Lease, TaskOutcome, WorkerId};

/// A result that passed the engine's checks.
#[derive(Clone, Copy, Debug)]
pub(super) struct AcceptedResult {
    pub(super) worker: WorkerId,
    pub(super) lease: Lease,
    pub(super) busy_s: f64,
    /// The factor on the reported seconds, at most 1.
    pub(super) factor: f64,
    /// For the last lease that its worker held: the seconds of its occupation that no report accounts for.
    pub(super) overhead_s: Option<f64>,
}

impl AcceptedResult {
    pub(super) fn end(&self, outcome: TaskOutcome) -> Effect {
        let Self { worker, lease, factor, overhead_s, .. } = *self;
        Effect::End { worker, lease, outcome, time: LeaseTime::Reported { factor, overhead_s } }
    }
}

/// Work that enters no step.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Waste {
    pub(super) tasks: u64,
    pub(super) busy_s: f64,
}

impl Waste {
    pub(super) fn add(&mut self, tasks: u64, busy_s: f64) {
        self.tasks += tasks;
        self.busy_s += busy_s;
    }
}

/// The workers that got a task in an iteration, each once. Clearing the set takes no longer than filling it did.
#[derive(Debug, Default)]
pub(super) struct EmployedWorkers {
    workers: Vec<WorkerId>,
    set: WorkerSet,
}

impl EmployedWorkers {
    pub(super) fn add(&mut self, worker: WorkerId) {
        if !self.set.contains(worker) {
            self.set.insert(worker);
            self.workers.push(worker);
        }
    }

    pub(super) fn workers(&self) -> &[WorkerId] {
        &self.workers
    }

    /// Removes all workers, but keeps the memory.
    pub(super) fn cleared(mut self) -> Self {
        for worker in self.workers.drain(..) {
            self.set.remove(worker);
        }
        self
    }
}
