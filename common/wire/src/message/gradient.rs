//! The header that precedes the chunks of a vector, and the receipt that answers it.

use ata_types::VectorId;
use bytes::Bytes;

use super::{SessionToken, WireError, array, at_most, in_range, invalid, truncated, units_crc32c, units_of};
use crate::limits::MAX_TENSORS;
use crate::proto::{self, gradient_receipt::Verdict};

/// The header that precedes the chunks of a vector.
#[derive(Clone, Debug, PartialEq)]
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

impl GradientHeader {
    /// Returns the header of the same sum in other units, as [`crate::ToWorker::Units`] has them.
    #[must_use]
    pub fn in_units(self, exponents: &[i16], shifts: &[u8]) -> Self {
        Self { units: exponents.to_vec(), units_crc32c: units_crc32c(exponents, shifts), ..self }
    }
}

impl From<GradientHeader> for proto::GradientHeader {
    fn from(header: GradientHeader) -> Self {
        Self {
            session: header.session.to_wire(),
            vector: header.vector.0,
            maxima: header.maxima.into_iter().flat_map(f32::to_le_bytes).collect(),
            units: header.units.into_iter().map(i32::from).collect(),
            units_crc32c: header.units_crc32c,
            saturated: header.saturated,
            vanished: header.vanished,
        }
    }
}

impl TryFrom<proto::GradientHeader> for GradientHeader {
    type Error = WireError;

    fn try_from(header: proto::GradientHeader) -> Result<Self, WireError> {
        let (maxima, units) = (maxima_of(&header.maxima)?, units_of(header.units)?);
        if units.len() != maxima.len() {
            return Err(invalid("number of units", units.len(), format!("{}, one for each maximum", maxima.len())));
        }
        Ok(Self {
            session: SessionToken::from_wire(&header.session)?,
            vector: VectorId(in_range("vector", header.vector, u64::MAX)?),
            maxima,
            units,
            units_crc32c: header.units_crc32c,
            saturated: header.saturated,
            vanished: header.vanished,
        })
    }
}

/// Decodes the largest magnitudes of the tensors. NaN and -0 are not magnitudes.
fn maxima_of(bytes: &Bytes) -> Result<Vec<f32>, WireError> {
    at_most("bytes of maxima", bytes.len() as u64, 4 * MAX_TENSORS as u64)?;
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
        let reason = || truncated(receipt.reason.clone());
        match receipt.verdict() {
            Verdict::Accepted => Self::Accepted,
            Verdict::NotHeld => Self::NotHeld { reason: reason() },
            Verdict::Refused | Verdict::Unspecified => Self::Refused { reason: reason() },
        }
    }
}
