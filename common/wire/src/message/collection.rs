//! The sums that a worker is asked for.

use ata_types::{CollectionId, Iteration, LeaseId};

use super::{Shards, WireError, at_most, in_range};
use crate::limits::{MAX_BATCH, MAX_CHUNKS};
use crate::proto;

/// A request for the sum of the gradients of some leases, which is sent as soon as all of them are computed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Collection {
    /// Identifies it. A later one with the same identifier replaces it.
    pub id: CollectionId,
    /// The iteration of its leases.
    pub iteration: Iteration,
    /// The leases, at most [`MAX_BATCH`]. If there are none, nothing is sent any more.
    pub leases: Vec<LeaseId>,
    /// The first chunk of the sum to send.
    pub first_chunk: u64,
    /// The workers among whom it is added to theirs, if any.
    pub shards: Option<Shards>,
}

impl From<Collection> for proto::Collection {
    fn from(collection: Collection) -> Self {
        let Collection { id, iteration, leases, first_chunk, shards } = collection;
        let leases = leases.into_iter().map(|lease| lease.0).collect();
        Self { id: id.0, iteration: iteration.number(), leases, first_chunk, shards: shards.map(Into::into) }
    }
}

impl TryFrom<proto::Collection> for Collection {
    type Error = WireError;

    fn try_from(collection: proto::Collection) -> Result<Self, WireError> {
        let proto::Collection { id, iteration, leases, first_chunk, shards } = collection;
        at_most("number of leases", leases.len() as u64, MAX_BATCH as u64)?;
        Ok(Self {
            id: CollectionId(in_range("id", id, u64::MAX)?),
            iteration: Iteration(in_range("iteration", iteration, u64::MAX)?),
            leases: leases.into_iter().map(LeaseId).collect(),
            first_chunk: at_most("first_chunk", first_chunk, MAX_CHUNKS - 1)?,
            shards: shards.map(Shards::try_from).transpose()?,
        })
    }
}
