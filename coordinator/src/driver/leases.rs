//! The leases that workers hold, and the results that workers reported.

use std::collections::HashMap;

use ata_types::{Lease, LeaseId, TaskRange, WorkerId};
use ata_wire::LeaseTimes;

/// The leases that have not ended. Their number is bounded by the budget.
#[derive(Default)]
pub(super) struct OpenLeases {
    held: HashMap<LeaseId, OpenLease>,
}

struct OpenLease {
    worker: WorkerId,
    lease: Lease,
    result: Option<LeaseResult>,
}

/// The reported result of a computed lease.
pub(super) struct LeaseResult {
    pub(super) times: LeaseTimes,
    /// The loss of each task, or their sum if they were computed as one batch.
    pub(super) losses: Vec<f64>,
    /// Whether the worker computes the same bits as other exact workers.
    pub(super) is_exact: bool,
}

/// The reason why a worker cannot report on a lease.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum NotComputing {
    Foreign,
    Reported,
    /// The lease has ended, or never existed.
    Ended,
}

impl OpenLeases {
    pub(super) fn assigned(&mut self, worker: WorkerId, lease: Lease) {
        self.held.insert(lease.id, OpenLease { worker, lease, result: None });
    }

    /// Checks that a worker holds a lease on which it has not reported.
    pub(super) fn check(&self, worker: WorkerId, lease: LeaseId) -> Result<(), NotComputing> {
        match self.held.get(&lease) {
            None => Err(NotComputing::Ended),
            Some(held) if held.worker != worker => Err(NotComputing::Foreign),
            Some(held) if held.result.is_some() => Err(NotComputing::Reported),
            Some(_) => Ok(()),
        }
    }

    /// Keeps the result of a lease until the lease ends.
    pub(super) fn reported(&mut self, lease: LeaseId, result: LeaseResult) {
        if let Some(held) = self.held.get_mut(&lease) {
            held.result = Some(result);
        }
    }

    /// Returns a lease and its result, if it was reported.
    pub(super) fn result(&self, lease: LeaseId) -> Option<(&Lease, &LeaseResult)> {
        let held = self.held.get(&lease)?;
        Some((&held.lease, held.result.as_ref()?))
    }

    /// Removes a lease that ended. Returns its result.
    pub(super) fn ended(&mut self, lease: LeaseId) -> Option<LeaseResult> {
        self.held.remove(&lease)?.result
    }

    /// Returns the mean loss of the tasks of a step's leases, summed in the order of the tasks.
    pub(super) fn mean_loss(&self, leases: impl Iterator<Item = LeaseId>) -> f64 {
        let mut all: Vec<(TaskRange, &[f64])> = leases
            .filter_map(|lease| self.result(lease))
            .map(|(lease, result)| (lease.tasks, &result.losses[..]))
            .collect();
        all.sort_unstable_by_key(|(tasks, _)| *tasks);
        let count: u64 = all.iter().map(|(tasks, _)| tasks.count).sum();
        all.iter().flat_map(|(_, losses)| *losses).sum::<f64>() / count as f64
    }
}
