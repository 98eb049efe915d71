//! The times and losses that a worker measured while it computed a lease.

use ata_types::{LeaseId, MAX_LEASE_TASKS};

use super::{WireError, at_most, invalid};
use crate::proto;

/// A lease that a worker has computed.
#[derive(Clone, Debug, PartialEq)]
pub struct ComputedLease {
    /// The lease.
    pub lease: LeaseId,
    /// The times of its tasks.
    pub times: LeaseTimes,
    /// The mean loss of each task, in nats, or the sum of these if the lease was computed as one batch; as many as there are times. If one
    /// is not finite, the lease fails.
    pub losses: Vec<f64>,
}

/// The times of the tasks in a lease.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct LeaseTimes {
    /// Seconds that each task took, or that the whole lease took as one batch. The engine fails the lease if they are impossible.
    pub busy_s: Vec<f64>,
    /// The number of tasks whose computation took longer than their emulated time.
    pub outlasted: u64,
}

impl From<ComputedLease> for proto::ComputedLease {
    fn from(computed: ComputedLease) -> Self {
        let ComputedLease { lease, times: LeaseTimes { busy_s, outlasted }, losses } = computed;
        Self { lease: lease.0, busy_s, losses, outlasted }
    }
}

impl TryFrom<proto::ComputedLease> for ComputedLease {
    type Error = WireError;

    fn try_from(computed: proto::ComputedLease) -> Result<Self, WireError> {
        let proto::ComputedLease { lease, busy_s, losses, outlasted } = computed;
        at_most("number of times", busy_s.len() as u64, MAX_LEASE_TASKS)?;
        if losses.len() != busy_s.len() {
            return Err(invalid("number of losses", losses.len(), format!("{}, one for each time", busy_s.len())));
        }
        Ok(Self { lease: LeaseId(lease), times: LeaseTimes { busy_s, outlasted }, losses })
    }
}
