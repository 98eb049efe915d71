//! The finer units of blocks of values, as a number of bits below the units of their tensors, so that small values are not lost.
//!
//! The rule, and why it lets no sum overflow, is in docs/explanation/reproducibility.md.

use std::sync::Arc;

use ata_types::MAX_SHIFTED_BLOCKS;

use super::TensorSizes;
use super::kernels::max_bits;
use super::units::{LEAST_EXPONENT, UnitsError, ceil_log2};

/// The number of values that share a unit, and a width or a scale on the wire: the largest one costs the others few
/// bits, and a byte for all of them costs 0.03 bits per value.
pub(crate) const BLOCK: usize = 256;

/// The minimum number of bits of a block's largest sum, if the finest unit allows for it. With the sign and room for
/// twice that sum they are 12, which is a width on the wire.
const KEPT_BITS: i16 = 10;

/// The largest shift, which takes four bits.
const MAX_SHIFT: i16 = 15;

/// Returns the number of values per block in a vector of `values` values.
pub(super) fn block_values(values: usize) -> usize {
    values.div_ceil(MAX_SHIFTED_BLOCKS).next_power_of_two().max(BLOCK)
}

/// A shift for each block of a vector, four bits each, the first of two blocks in the low ones. The bytes are empty if all shifts are 0.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Shifts(pub(super) Arc<[u8]>);

impl Shifts {
    pub(super) fn none() -> Self {
        Self(Arc::default())
    }

    /// Checks shifts from outside for a vector of `values` values. Shifts have one representation, so equal shifts have equal bytes.
    pub(super) fn read(bytes: &[u8], values: usize) -> Result<Self, UnitsError> {
        let blocks = values.div_ceil(block_values(values));
        let (found, expected) = (bytes.len(), blocks.div_ceil(2));
        if found == 0 {
            return Ok(Self::none());
        }
        if found != expected {
            return Err(UnitsError(format!(
                "{found} bytes of shifts: expected {expected}, or none if all are 0; half a byte per block"
            )));
        }
        if bytes.iter().all(|byte| *byte == 0) || blocks % 2 == 1 && bytes[blocks / 2] > 15 {
            let reason =
                "the shifts are all 0, or half a byte follows the last one: expected none, or the bits of it to be 0";
            return Err(UnitsError(reason.into()));
        }
        Ok(Self(bytes.into()))
    }

    fn packed(shifts: &[i16]) -> Self {
        if shifts.iter().all(|shift| *shift == 0) {
            return Self::none();
        }
        let byte = |pair: &[i16]| (pair[0] | pair.get(1).unwrap_or(&0) << 4) as u8;
        Self(shifts.chunks(2).map(byte).collect())
    }

    pub(super) fn of(&self, block: usize) -> i16 {
        let byte = self.0.get(block / 2).copied().unwrap_or(0);
        i16::from(byte >> (block % 2 * 4) & 15)
    }
}

/// The largest magnitudes of a gradient in each tensor's part of each block.
#[derive(Debug)]
pub(crate) struct BlockMaxima {
    sizes: TensorSizes,
    /// The maximum of each part. Its index is that of the block plus that of the tensor, both of which ascend along the vector.
    largest: Vec<f32>,
}

/// Returns the largest magnitudes of `values`, which begin at value `at` of the flat vector, with their indices in [`BlockMaxima`].
pub(crate) fn block_maxima(sizes: &TensorSizes, at: usize, values: &[f32]) -> impl Iterator<Item = (usize, f32)> {
    sizes.blocks(at..at + values.len(), block_values(sizes.values())).map(move |(tensor, block, piece)| {
        (tensor + block, f32::from_bits(max_bits(&values[piece.start - at..piece.end - at])))
    })
}

impl BlockMaxima {
    /// Creates the maxima of a zero gradient.
    pub(crate) fn new(sizes: &TensorSizes) -> Self {
        let blocks = sizes.values().div_ceil(block_values(sizes.values()));
        Self { sizes: sizes.clone(), largest: vec![0.0; blocks + sizes.tensors()] }
    }

    /// Includes the maxima that [`block_maxima`] returned.
    pub(crate) fn count(&mut self, maxima: impl IntoIterator<Item = (usize, f32)>) {
        for (at, most) in maxima {
            self.largest[at] = self.largest[at].max(most);
        }
    }

    /// Scales the maxima to those of the gradient times `factor`.
    pub(crate) fn scale(&mut self, factor: f32) {
        self.largest.iter_mut().for_each(|most| *most *= factor);
    }

    /// Returns the tensor, the block, and the largest magnitude of each part.
    fn parts(&self) -> impl Iterator<Item = (usize, usize, f32)> {
        let values = self.sizes.values();
        let parts = self.sizes.blocks(0..values, block_values(values));
        parts.map(|(tensor, block, _)| (tensor, block, self.largest[tensor + block]))
    }

    pub(crate) fn of_tensors(&self) -> Vec<f32> {
        let mut maxima = vec![0.0_f32; self.sizes.tensors()];
        self.parts().for_each(|(tensor, _, most)| maxima[tensor] = maxima[tensor].max(most));
        maxima
    }

    pub(super) fn sizes(&self) -> &TensorSizes {
        &self.sizes
    }

    /// Returns the shifts of the blocks, for tensors with these units' exponents. A block of several tensors takes the
    /// largest shift that one of them asks for: none of them overflows by any. Averaged tensors have the finest units already.
    pub(super) fn shifts(&self, exponents: &[i16], budget: u64) -> Shifts {
        let finest = finest(budget);
        if finest == 0 {
            return Shifts::none();
        }
        let values = self.sizes.values();
        let mut shifts = vec![(0, finest); values.div_ceil(block_values(values))];
        for (tensor, block, most) in self.parts() {
            if !self.sizes.is_trained(tensor) {
                shifts[block].1 = 0;
                continue;
            }
            let exponent = exponents[tensor];
            let wanted = if most == 0.0 { finest } else { exponent + KEPT_BITS - floor_log2(most) };
            let (shift, limit) = &mut shifts[block];
            (*shift, *limit) = ((*shift).max(wanted), (*limit).min(exponent - LEAST_EXPONENT));
        }
        let shifts: Vec<i16> = shifts.into_iter().map(|(shift, limit)| shift.min(limit)).collect();
        Shifts::packed(&shifts)
    }
}

/// Returns the largest shift with which a value of twice the largest magnitude of a tensor's last sum fits into a
/// task's integers. That value takes 15 bits in the tensor's unit, and a task's integers have 31 − log₂ B bits.
fn finest(budget: u64) -> i16 {
    (16 - ceil_log2(budget as f64)).clamp(0, MAX_SHIFT)
}

/// Returns the exponent of the largest power of two that is at most `value`, a positive f32.
fn floor_log2(value: f32) -> i16 {
    (f64::from(value).to_bits() >> 52) as i16 - 1023
}
