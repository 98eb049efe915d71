//! The headers that precede the chunks of vectors and of sets of parameters, and the receipt for a vector.

use ata_types::{Iteration, VectorId};
use bytes::Bytes;

use super::{SessionToken, WireError, array, as_many, at_most, in_range, invalid, truncated, units_of};
use crate::limits::{MAX_CHUNKS, MAX_SHARDS, MAX_TENSORS};
use crate::proto::{self, gradient_receipt::Verdict};

/// The header that precedes the chunks of a vector.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct GradientHeader {
    /// The session that sends it.
    pub session: SessionToken,
    /// The requested vector.
    pub vector: VectorId,
    /// For each tensor, the largest magnitude of a value in the gradient of any task. All are finite.
    pub maxima: Vec<f32>,
    /// For each tensor, the exponent of the unit in which the sum is expressed.
    pub units: Vec<i16>,
    /// The checksum of the units, including those of blocks ([`crate::units_crc32c`]).
    pub units_crc32c: u32,
    /// The number of values in the tasks' gradients that were too large for their unit.
    pub saturated: u64,
    /// The number of nonzero values that became 0, counted in the compact format only.
    pub vanished: u64,
}

impl From<GradientHeader> for proto::GradientHeader {
    fn from(header: GradientHeader) -> Self {
        let GradientHeader { session, vector, maxima, units, units_crc32c, saturated, vanished } = header;
        let (session, vector) = (session.to_wire(), vector.0);
        let maxima = maxima.into_iter().flat_map(f32::to_le_bytes).collect();
        let units = units.into_iter().map(i32::from).collect();
        Self { session, vector, maxima, units, units_crc32c, saturated, vanished }
    }
}

impl TryFrom<proto::GradientHeader> for GradientHeader {
    type Error = WireError;

    fn try_from(header: proto::GradientHeader) -> Result<Self, WireError> {
        let proto::GradientHeader { session, vector, maxima, units, units_crc32c, saturated, vanished } = header;
        let (maxima, units) = (maxima_of(&maxima)?, units_of(units)?);
        as_many("number of units", units.len(), maxima.len(), "one for each maximum")?;
        let session = SessionToken::from_wire(&session)?;
        let vector = VectorId(in_range("vector", vector, u64::MAX)?);
        Ok(Self { session, vector, maxima, units, units_crc32c, saturated, vanished })
    }
}

/// Decodes the largest magnitudes of the tensors. NaN and -0 are not magnitudes.
fn maxima_of(bytes: &Bytes) -> Result<Vec<f32>, WireError> {
    at_most("bytes of maxima", bytes.len(), 4 * MAX_TENSORS)?;
    let maximum = |bytes: &[u8]| {
        let value = f32::from_le_bytes(array("maximum", bytes)?);
        let is_valid = value.is_finite() && value.is_sign_positive();
        if is_valid { Ok(value) } else { Err(invalid("maximum", value, "a finite magnitude")) }
    };
    bytes.chunks(4).map(maximum).collect()
}

/// The coordinator's answer to a vector.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Receipt {
    /// The vector was accepted.
    Accepted,
    /// The session is no longer asked for the vector, or is already sending it.
    NotHeld {
        /// The reason, human-readable.
        reason: String,
    },
    /// The vector failed a check.
    Refused {
        /// The reason, human-readable.
        reason: String,
    },
}

impl From<Receipt> for proto::GradientReceipt {
    fn from(receipt: Receipt) -> Self {
        let (verdict, reason) = match receipt {
            Receipt::Accepted => (Verdict::Accepted, String::new()),
            Receipt::NotHeld { reason } => (Verdict::NotHeld, reason),
            Receipt::Refused { reason } => (Verdict::Refused, reason),
        };
        Self { verdict: verdict.into(), reason: truncated(reason) }
    }
}

impl From<proto::GradientReceipt> for Receipt {
    /// Converts a receipt. A verdict that this release does not know counts as a refusal.
    fn from(receipt: proto::GradientReceipt) -> Self {
        let verdict = receipt.verdict();
        let reason = truncated(receipt.reason);
        match verdict {
            Verdict::Accepted => Self::Accepted,
            Verdict::NotHeld => Self::NotHeld { reason },
            Verdict::Refused | Verdict::Unspecified => Self::Refused { reason },
        }
    }
}

/// The header that precedes the chunks of a set of parameters.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
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
        let SetHeader { iteration, base, chunks, stripe } = header;
        let (iteration, base) = (iteration.number(), base.map_or(0, Iteration::number));
        let (stride, first_chunk) = stripe.map_or((0, 0), |stripe| (stripe.stride as u32, stripe.first as u32));
        Self { iteration, base, chunks, stride, first_chunk }
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
}
