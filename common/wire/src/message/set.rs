//! The header that precedes the chunks of a set of parameters.

use ata_types::Iteration;

use super::{WireError, in_range, invalid};
use crate::limits::{MAX_CHUNKS, MAX_SHARDS};
use crate::proto;

/// The header that precedes the chunks of a set of parameters.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SetHeader {
    /// The iteration whose tasks are computed at these parameters.
    pub iteration: Iteration,
    /// The iteration whose parameters the receiver must hold if the chunks are differences from them; `None` if they are whole values.
    pub base: Option<Iteration>,
    /// The number of chunks in the set.
    pub chunks: u64,
    /// The chunks that follow; `None` if all do.
    pub stripe: Option<Stripe>,
}

/// The chunks of a vector that belong to one of several workers: every `stride`-th.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stripe {
    /// The first chunk, which is also the worker's place.
    pub first: u64,
    /// The number of workers.
    pub stride: u64,
}

impl Stripe {
    /// The stripe of all chunks.
    pub const ALL: Self = Self { first: 0, stride: 1 };

    /// Returns the stripe's chunks from `first_chunk` on, in a vector of `chunks` chunks.
    pub fn chunks(self, first_chunk: u64, chunks: u64) -> impl Iterator<Item = u64> + Send + use<> {
        let Self { first, stride } = self;
        let before = first_chunk.saturating_sub(first).div_ceil(stride);
        (first + before * stride..chunks).step_by(stride as usize)
    }
}

impl From<SetHeader> for proto::SetHeader {
    fn from(header: SetHeader) -> Self {
        Self {
            iteration: header.iteration.number(),
            base: header.base.map_or(0, Iteration::number),
            chunks: header.chunks,
            stride: header.stripe.map_or(0, |stripe| stripe.stride as u32),
            first_chunk: header.stripe.map_or(0, |stripe| stripe.first as u32),
        }
    }
}

impl TryFrom<proto::SetHeader> for SetHeader {
    type Error = WireError;

    fn try_from(header: proto::SetHeader) -> Result<Self, WireError> {
        let proto::SetHeader { iteration, base, chunks, stride, first_chunk } = header;
        let stripe = Stripe { first: first_chunk.into(), stride: stride.into() };
        let is_stripe = (2..=MAX_SHARDS as u64).contains(&stripe.stride) && stripe.first < stripe.stride;
        if !is_stripe && (stripe.first, stripe.stride) != (0, 0) {
            let found = format!("{first_chunk} of {stride}");
            return Err(invalid("stripe", found, format!("a place of 2 to {MAX_SHARDS}")));
        }
        Ok(Self {
            iteration: Iteration(in_range("iteration", iteration, u64::MAX)?),
            base: (base > 0).then_some(Iteration(base)),
            chunks: in_range("number of chunks", chunks, MAX_CHUNKS)?,
            stripe: is_stripe.then_some(stripe),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_chunk_belongs_to_one_worker() {
        let of =
            |first, first_chunk, chunks| Stripe { first, stride: 3 }.chunks(first_chunk, chunks).collect::<Vec<_>>();
        assert_eq!([of(0, 0, 8), of(1, 0, 8), of(2, 0, 8)], [vec![0, 3, 6], vec![1, 4, 7], vec![2, 5]]);
        assert_eq!([of(0, 4, 8), of(1, 4, 8), of(2, 4, 8)], [vec![6], vec![4, 7], vec![5]]);
        assert_eq!((of(2, 0, 2), of(1, 8, 8)), (vec![], vec![]));
        assert_eq!(Stripe::ALL.chunks(2, 5).collect::<Vec<_>>(), [2, 3, 4]);
    }

    #[test]
    fn a_stripe_is_one_of_several() {
        let read = |stride, first_chunk| {
            let header = proto::SetHeader { iteration: 1, base: 0, chunks: 9, stride, first_chunk };
            SetHeader::try_from(header).map(|header| header.stripe)
        };
        assert_eq!(read(0, 0), Ok(None));
        assert_eq!(read(3, 2), Ok(Some(Stripe { first: 2, stride: 3 })));
        for (stride, first_chunk) in [(0, 1), (1, 0), (3, 3), (MAX_SHARDS as u32 + 1, 0)] {
            assert!(read(stride, first_chunk).is_err(), "{first_chunk} of {stride}");
        }
    }
}
