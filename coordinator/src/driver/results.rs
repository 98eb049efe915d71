//! Results in flight: accepted by the engine, which has not decided yet how their leases end.

use std::collections::HashMap;

use ata_types::{LeaseId, TaskRange};

use crate::training::{Comparison, LeaseResult};

/// The accepted results by lease. The engine accepts at most one per lease, so the budget bounds their number.
#[derive(Default)]
pub(super) struct Results {
    by_lease: HashMap<LeaseId, LeaseResult>,
    /// The losses of the alone leases of the next step, with their tasks.
    applied: Vec<(TaskRange, Vec<f64>)>,
    has_alone: bool,
}

impl Results {
    /// Keeps a result until its lease ends.
    pub(super) fn insert(&mut self, lease: LeaseId, result: LeaseResult) {
        self.has_alone |= result.alone.is_some();
        self.by_lease.insert(lease, result);
    }

    /// Takes the result of a lease that ended.
    pub(super) fn remove(&mut self, lease: LeaseId) -> Option<LeaseResult> {
        self.by_lease.remove(&lease)
    }

    /// The tasks of a lease whose result was accepted, and that has not ended.
    pub(super) fn tasks(&self, lease: LeaseId) -> Option<TaskRange> {
        self.by_lease.get(&lease).map(|result| result.tasks)
    }

    /// Whether the gradient of an alone lease was accepted for the step.
    pub(super) fn have_alone(&self) -> bool {
        self.has_alone
    }

    /// Records that the result of an alone lease enters the next step.
    pub(super) fn apply(&mut self, result: &LeaseResult) {
        self.applied.push((result.tasks, result.losses.clone()));
    }

    /// The losses of the next step's leases, each with its number of tasks, in the order of the tasks: those that were applied, and
    /// the collected ones.
    pub(super) fn losses(&self, collected: impl Iterator<Item = LeaseId>) -> Vec<(u64, &[f64])> {
        let collected = collected.filter_map(|lease| self.by_lease.get(&lease));
        let collected = collected.map(|result| (result.tasks, &result.losses[..]));
        let applied = self.applied.iter().map(|(tasks, losses)| (*tasks, &losses[..]));
        let mut all: Vec<(TaskRange, &[f64])> = applied.chain(collected).collect();
        all.sort_unstable_by_key(|(tasks, _)| *tasks);
        all.into_iter().map(|(tasks, losses)| (tasks.count, losses)).collect()
    }

    /// The step was taken.
    pub(super) fn stepped(&mut self) {
        self.applied.clear();
        self.has_alone = false;
    }

    /// Takes two results out for a comparison. Their leases end later.
    pub(super) fn begin_comparison(&mut self, tasks: TaskRange, first: LeaseId, second: LeaseId) -> Option<Comparison> {
        let (one, other) = (self.remove(first), self.remove(second));
        Some(Comparison { tasks, results: [(first, one?), (second, other?)] })
    }

    /// Puts two results back after their comparison.
    pub(super) fn end_comparison(&mut self, results: [(LeaseId, LeaseResult); 2]) {
        self.by_lease.extend(results);
    }
}
