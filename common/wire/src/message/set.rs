//! The header that precedes the chunks of a set of parameters.

use ata_types::Iteration;

use super::{WireError, in_range};
use crate::limits::MAX_CHUNKS;
use crate::proto;

/// The header that precedes the chunks of a set of parameters.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SetHeader {
    /// The iteration whose tasks are computed at these parameters.
    pub iteration: Iteration,
    /// The iteration whose parameters the receiver must hold, if the chunks are differences from them; `None` if they are whole values.
    pub base: Option<Iteration>,
    /// How many chunks follow.
    pub chunks: u64,
}

impl From<SetHeader> for proto::SetHeader {
    fn from(header: SetHeader) -> Self {
        Self {
            iteration: header.iteration.number(),
            base: header.base.map_or(0, Iteration::number),
            chunks: header.chunks,
        }
    }
}

impl TryFrom<proto::SetHeader> for SetHeader {
    type Error = WireError;

    fn try_from(header: proto::SetHeader) -> Result<Self, WireError> {
        let proto::SetHeader { iteration, base, chunks } = header;
        Ok(Self {
            iteration: Iteration(in_range("iteration", iteration, u64::MAX)?),
            base: (base > 0).then_some(Iteration(base)),
            chunks: in_range("number of chunks", chunks, MAX_CHUNKS)?,
        })
    }
}
