//! Requests for vectors, and the workers of an exchange in shards.

use std::time::Duration;

use ata_types::{Iteration, TaskRange, TaskRanges, VectorId};
use bytes::Bytes;

use super::{PeerAddress, SessionToken, Stripe, WireError, at_most, in_range, invalid};
use crate::limits::{MAX_CHUNK_TIMEOUT_MS, MAX_CHUNKS, MAX_RANGES, MAX_SHARDS};
use crate::proto;

/// A request for the sum of the gradients of some tasks, which is sent as soon as all of them are computed.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct VectorRequest {
    /// Identifies the vector. A request is never replaced, only withdrawn.
    pub id: VectorId,
    /// The iteration of the tasks.
    pub iteration: Iteration,
    /// The tasks, all of the worker's leases: at least one task, and at most [`MAX_RANGES`] ranges.
    pub tasks: TaskRanges,
    /// The first chunk of the sum to send.
    pub first_chunk: u64,
    /// The members of the exchange that adds up the sum, if there is one.
    pub shards: Option<Shards>,
}

impl VectorRequest {
    pub(super) fn into_wire(self) -> proto::VectorRequest {
        let Self { id, iteration, tasks, first_chunk, shards } = self;
        let mut end = 0;
        let packed = |range: TaskRange| {
            let gap = range.first - std::mem::replace(&mut end, range.end());
            [gap, range.count]
        };
        let tasks = tasks.iter().flat_map(packed).collect();
        let shards = shards.map(Shards::into_wire);
        proto::VectorRequest { id: id.0, iteration: iteration.number(), tasks, first_chunk, shards }
    }

    pub(super) fn from_wire(request: proto::VectorRequest) -> Result<Self, WireError> {
        let proto::VectorRequest { id, iteration, tasks, first_chunk, shards } = request;
        Ok(Self {
            id: VectorId(in_range("id", id, u64::MAX)?),
            iteration: Iteration(in_range("iteration", iteration, u64::MAX)?),
            tasks: unpacked(&tasks)?,
            first_chunk: at_most("first_chunk", first_chunk, MAX_CHUNKS - 1)?,
            shards: shards.map(Shards::from_wire).transpose()?,
        })
    }
}

/// Decodes ranges of tasks. Each set of tasks has one form, whose ranges ascend with gaps between them.
fn unpacked(packed: &[u64]) -> Result<TaskRanges, WireError> {
    in_range("number of ranges", packed.len().div_ceil(2), MAX_RANGES)?;
    let mut end = 0_u64;
    let range = |(at, pair): (usize, &[u64])| {
        let &[gap, count] = pair else { return Err(invalid("tasks", "an odd number of values", "pairs")) };
        let first = end.checked_add(gap).filter(|_| at == 0 || gap > 0);
        let range = first.zip(first.and_then(|first| first.checked_add(count)).filter(|_| count > 0));
        let (first, after) =
            range.ok_or_else(|| invalid("tasks", format!("{count} after {gap}"), "tasks after a gap, below 2^64"))?;
        end = after;
        Ok(TaskRange { first, count })
    };
    packed.chunks(2).enumerate().map(range).collect()
}

/// The workers of an exchange, from the view of one of them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Shards {
    /// The worker's own place.
    pub place: usize,
    /// All members, in the order of their places; 2 to [`MAX_SHARDS`].
    pub members: Vec<ShardMember>,
    /// The time in which a chunk from another member must arrive, in whole milliseconds.
    pub chunk_timeout: Duration,
}

/// A member of an exchange, from the view of another one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ShardMember {
    /// The address of the member.
    pub address: PeerAddress,
    /// A key that only these two members know.
    pub key: SessionToken,
}

impl Shards {
    /// Returns the chunks that belong to the member at this place.
    pub fn of(&self, place: usize) -> Stripe {
        Stripe { first: place as u64, stride: self.members.len() as u64 }
    }

    fn into_wire(self) -> proto::Shards {
        let Self { place, members, chunk_timeout } = self;
        proto::Shards {
            place: u32::try_from(place).unwrap_or(u32::MAX),
            keys: members.iter().map(|member| member.key.to_wire()).collect(),
            members: members.iter().map(|member| member.address.to_wire()).collect(),
            chunk_timeout_ms: u32::try_from(chunk_timeout.as_millis()).unwrap_or(u32::MAX),
        }
    }

    fn from_wire(shards: proto::Shards) -> Result<Self, WireError> {
        let proto::Shards { keys, place, members, chunk_timeout_ms } = shards;
        let count = in_range("number of members", members.len(), MAX_SHARDS)?;
        if count < 2 || place as usize >= count {
            return Err(invalid("place", format!("{place} of {count}"), format!("one of 2 to {MAX_SHARDS}")));
        }
        if keys.len() != members.len() {
            return Err(invalid("number of keys", keys.len(), members.len()));
        }
        let member = |(address, key): (&String, &Bytes)| {
            Ok(ShardMember { address: PeerAddress::from_wire(address)?, key: SessionToken::from_wire(key)? })
        };
        let timeout_ms = in_range("chunk_timeout_ms", chunk_timeout_ms, MAX_CHUNK_TIMEOUT_MS)?;
        Ok(Self {
            place: place as usize,
            members: members.iter().zip(&keys).map(member).collect::<Result<_, _>>()?,
            chunk_timeout: Duration::from_millis(timeout_ms.into()),
        })
    }
}
