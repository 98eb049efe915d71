//! Results in flight: accepted by the engine, which has not decided yet how their leases end.

use std::collections::HashMap;

use ata_types::{LeaseId, TaskRange};

use crate::training::{Comparison, ReceivedGradient};

/// The accepted results by lease. The engine accepts at most one per lease, so the budget bounds their number.
#[derive(Default)]
pub(super) struct ReceivedGradients {
    by_lease: HashMap<LeaseId, ReceivedGradient>,
}

impl ReceivedGradients {
    /// Keeps a result until its lease ends.
    pub(super) fn insert(&mut self, lease: LeaseId, result: ReceivedGradient) {
        self.by_lease.insert(lease, result);
    }

    /// Takes the result of a lease that ended.
    pub(super) fn remove(&mut self, lease: LeaseId) -> Option<ReceivedGradient> {
        self.by_lease.remove(&lease)
    }

    /// Takes two results out for a comparison. Their leases end later.
    pub(super) fn begin_comparison(&mut self, tasks: TaskRange, first: LeaseId, second: LeaseId) -> Option<Comparison> {
        let (one, other) = (self.remove(first), self.remove(second));
        Some(Comparison { tasks, results: [(first, one?), (second, other?)] })
    }

    /// Puts two results back after their comparison.
    pub(super) fn end_comparison(&mut self, results: [(LeaseId, ReceivedGradient); 2]) {
        self.by_lease.extend(results);
    }
}
