//! Leases.

use crate::{Iteration, LeaseId, TaskRange};

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
    /// Whether its gradient is sent alone, as soon as it is computed. Otherwise the worker only reports that it is done, and
    /// keeps the gradient until it is collected, in one vector with those of other leases.
    pub is_alone: bool,
}
