//! A lease that the worker holds.

use ata_types::{Iteration, Lease, LeaseId, TaskRange};

/// A lease, and the round in which it was assigned.
#[derive(Clone, Copy, Debug)]
pub(crate) struct HeldLease {
    pub(crate) lease: Lease,
    /// The number of vectors that the session had requested when the lease was assigned. Leases of the same round are requested together.
    pub(crate) round: u64,
}

impl HeldLease {
    pub(crate) fn id(&self) -> LeaseId {
        self.lease.id
    }

    pub(crate) fn iteration(&self) -> Iteration {
        self.lease.iteration
    }

    pub(crate) fn tasks(&self) -> TaskRange {
        self.lease.tasks
    }
}
