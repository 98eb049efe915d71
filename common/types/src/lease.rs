//! Leases.

use crate::{CollectionId, Iteration, LeaseId, TaskRange};

/// The most tasks a lease may have: a worker reports one time per task in one message, and a lost lease is recomputed
/// whole.
pub const MAX_LEASE_TASKS: u64 = 1 << 16;

/// One worker's right to compute some tasks, once. A result without its lease is refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Lease {
    /// Identifies this attempt.
    pub id: LeaseId,
    /// The iteration the tasks belong to, and the version of the parameters to compute them at.
    pub iteration: Iteration,
    /// The tasks.
    pub tasks: TaskRange,
    /// The collection of its own, if its gradient is asked for together with it, and used whole: to make a step of its own, or to
    /// be compared with another worker's. Otherwise its worker is asked later for one sum over several leases.
    pub own: Option<CollectionId>,
}
