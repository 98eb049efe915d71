//! Requests for vectors.

use ata_types::{Iteration, TaskRange, TaskRanges, VectorId};

use super::{Shards, WireError, at_most, in_range, invalid};
use crate::limits::{MAX_CHUNKS, MAX_RANGES};
use crate::proto;

/// A request for the sum of the gradients of some tasks, which is sent as soon as all of them are computed.
#[derive(Clone, Debug, PartialEq, Eq)]
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

impl From<VectorRequest> for proto::VectorRequest {
    fn from(request: VectorRequest) -> Self {
        let VectorRequest { id, iteration, tasks, first_chunk, shards } = request;
        let mut end = 0;
        let packed = |range: TaskRange| {
            let gap = range.first - std::mem::replace(&mut end, range.end());
            [gap, range.count]
        };
        let tasks = tasks.iter().flat_map(packed).collect();
        Self { id: id.0, iteration: iteration.number(), tasks, first_chunk, shards: shards.map(Into::into) }
    }
}

impl TryFrom<proto::VectorRequest> for VectorRequest {
    type Error = WireError;

    fn try_from(request: proto::VectorRequest) -> Result<Self, WireError> {
        let proto::VectorRequest { id, iteration, tasks, first_chunk, shards } = request;
        Ok(Self {
            id: VectorId(in_range("id", id, u64::MAX)?),
            iteration: Iteration(in_range("iteration", iteration, u64::MAX)?),
            tasks: unpacked(&tasks)?,
            first_chunk: at_most("first_chunk", first_chunk, MAX_CHUNKS - 1)?,
            shards: shards.map(Shards::try_from).transpose()?,
        })
    }
}

/// Decodes ranges of tasks. Each set of tasks has one form, whose ranges ascend with gaps between them.
fn unpacked(packed: &[u64]) -> Result<TaskRanges, WireError> {
    in_range("number of ranges", packed.len().div_ceil(2) as u64, MAX_RANGES as u64)?;
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
