//! Leases.

use crate::{CollectionId, Iteration, LeaseId, TaskRange};

/// The most tasks that a lease may have: a worker reports one time per task in one message, and a lost lease is computed again as
/// a whole.
pub const MAX_LEASE_TASKS: u64 = 1 << 16;

/// One worker's right to compute some tasks, once. A result without its lease is refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Lease {
    /// Identifies this attempt.
    pub id: LeaseId,
    /// The iteration that the tasks belong to, which is also the version of the parameters to compute them with.
    pub iteration: Iteration,
    /// The tasks.
    pub tasks: TaskRange,
    /// The lease's own collection, if its gradient is requested together with it and used as a whole: to make a step of its own, or to
    /// be compared with another worker's. Otherwise the worker is asked later for one sum over several leases.
    pub own: Option<CollectionId>,
}
