//! The unit of each tensor's integers, and how it follows the gradients.

use std::ops::{Range, RangeInclusive};
use std::sync::Arc;

use ata_types::WireFormat;

use super::TensorSizes;
use super::kernels::{dequantize, power_of_two};
use super::shifts::{BlockMaxima, Shifts, block_values};
use crate::spread::{PARALLEL_FROM, RANGE, spread};

/// The exponents for which both the power of two and its reciprocal are normal f32.
const EXPONENTS: RangeInclusive<i16> = LEAST_EXPONENT..=126;

pub(super) const LEAST_EXPONENT: i16 = -126;

/// The factor between the last step's largest value and the end of the range of a task's integers. When the loss is
/// close to zero, the largest value occasionally grows more than tenfold in a step. A factor of 16 clamps values in the
/// 200 iterations of a default run; 64 clamps none.
const HEADROOM: f64 = 64.0;

/// The headroom of compact sums, which are not clamped: a block that needs more bits is sent with more.
const COMPACT_HEADROOM: f64 = 2.0;

/// The largest integer of 15 bits, so that most blocks of compact sums take 16 with the sign.
const COMPACT_LIMIT: f64 = 32_767.0;

/// The unit 2^e of each tensor's integers, fixed for an iteration, and the number of bits by which blocks of small
/// values have finer units. Clones are cheap.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Units {
    exponents: Arc<[i16]>,
    shifts: Shifts,
}

/// The error for exponents or shifts from outside that are not units of the model.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct UnitsError(pub(super) String);

/// The factor by which the values of other tasks of the first iteration may exceed those of the first task, in addition
/// to the headroom of later iterations. It costs two bits, which the next two iterations give back.
const FIRST_HEADROOM: f64 = 4.0;

impl Units {
    /// Returns the units of the first iteration, from `maxima`, the largest magnitudes in each tensor of one task's gradient. A tensor of
    /// zeros gets the unit of the largest value overall. The units are the same for each format: nothing is known about blocks yet, so the
    /// first sums of the compact format are as exact, and as large, as the others.
    pub fn first(maxima: &[f32], budget: u64) -> Self {
        let largest = maxima.iter().copied().fold(0.0, f32::max);
        // A zero gradient says nothing about the next one.
        let fallback = if largest > 0.0 { largest } else { 1.0 };
        let exponent = |&most: &f32| {
            let most = if most > 0.0 { most } else { fallback };
            exponent_for(f64::from(most) * FIRST_HEADROOM, budget, WireFormat::F32Exact)
        };
        Self::of_tensors(maxima.iter().map(exponent).collect())
    }

    /// Returns the units of the next iteration, from the largest magnitudes of the last step in each tensor: of its
    /// tasks' gradients, or of their sum if the format is compact. A unit rises at once, and falls by one bit at most.
    #[must_use]
    pub fn next(&self, maxima: &[f32], budget: u64, format: WireFormat) -> Self {
        let exponent = |(&last, &most): (&i16, &f32)| {
            exponent_for(f64::from(most), budget, format).max(last - 1).max(LEAST_EXPONENT)
        };
        Self::of_tensors(self.exponents.iter().zip(maxima).map(exponent).collect())
    }

    /// Returns the units of the next iteration of the compact format. Those of trained tensors and blocks follow the last sum, scaled to a
    /// whole budget. Averaged tensors are as exact as in the other format: their units follow `maxima`, those of the tasks.
    #[must_use]
    pub(crate) fn next_of_blocks(&self, sum: &BlockMaxima, maxima: &[f32], budget: u64) -> Self {
        let trained = self.next(&sum.of_tensors(), budget, WireFormat::Compact);
        let exact = self.next(maxima, budget, WireFormat::F32Exact);
        let units = trained.exponents.iter().zip(&*exact.exponents).enumerate();
        let exponents = units.map(|(tensor, (own, exact))| if sum.sizes().is_trained(tensor) { *own } else { *exact });
        let next = Self::of_tensors(exponents.collect());
        Self { shifts: sum.shifts(&next.exponents, budget), ..next }
    }

    /// Creates units without shifts: all blocks of a tensor have its unit.
    fn of_tensors(exponents: Arc<[i16]>) -> Self {
        Self { exponents, shifts: Shifts::none() }
    }

    /// Checks units from outside that are the same in all of a tensor.
    pub fn from_exponents(exponents: &[i16], sizes: &TensorSizes) -> Result<Self, UnitsError> {
        Self::new(exponents, &[], sizes)
    }

    /// Checks units from outside, in the form of [`Units::exponents`] and [`Units::shifts`].
    pub fn new(exponents: &[i16], shifts: &[u8], sizes: &TensorSizes) -> Result<Self, UnitsError> {
        if exponents.len() != sizes.tensors() {
            let (found, expected) = (exponents.len(), sizes.tensors());
            return Err(UnitsError(format!("{found} exponents of units: expected {expected}, one per tensor")));
        }
        let units = Self { exponents: exponents.into(), shifts: Shifts::read(shifts, sizes.values())? };
        let finest = units.pieces(sizes, 0..sizes.values()).map(|(exponent, _)| exponent);
        let wrong = exponents.iter().copied().chain(finest).find(|exponent| !EXPONENTS.contains(exponent));
        match wrong {
            Some(wrong) => Err(UnitsError(format!("the exponent of a unit is {wrong}: expected one from -126 to 126"))),
            None => Ok(units),
        }
    }

    /// Returns the exponent e of each tensor.
    pub fn exponents(&self) -> &[i16] {
        &self.exponents
    }

    /// Returns the number of bits by which the units of blocks are finer than their tensors': four bits for each block,
    /// the first of two blocks in the low ones; empty if no unit is finer.
    pub fn shifts(&self) -> &[u8] {
        &self.shifts.0
    }

    /// Splits a range of the flat vector into parts with one unit each. Returns each part with its exponent.
    pub(crate) fn pieces<'a>(
        &'a self,
        sizes: &'a TensorSizes,
        range: Range<usize>,
    ) -> impl Iterator<Item = (i16, Range<usize>)> + 'a {
        let block = if self.shifts.0.is_empty() { usize::MAX } else { block_values(sizes.values()) };
        let blocks = sizes.blocks(range, block);
        blocks.map(|(tensor, block, piece)| (self.exponents[tensor] - self.shifts.of(block), piece))
    }

    /// Writes the part of a sum that begins at value `at` of the flat vector as floats.
    pub(crate) fn write_values(&self, sizes: &TensorSizes, at: usize, sums: &[i32], values: &mut [f32]) {
        for (exponent, piece) in self.pieces(sizes, at..at + sums.len()) {
            let piece = piece.start - at..piece.end - at;
            dequantize(&sums[piece.clone()], power_of_two(exponent), &mut values[piece]);
        }
    }

    /// Converts a whole sum to floats.
    pub fn values(&self, sizes: &TensorSizes, sums: &[i32]) -> Vec<f32> {
        let mut values = vec![0.0; sums.len()];
        if sums.len() < PARALLEL_FROM {
            self.write_values(sizes, 0, sums, &mut values);
        } else {
            let ranges = values.chunks_mut(RANGE).zip(sums.chunks(RANGE)).enumerate();
            spread(ranges.collect(), |(at, (values, sums))| self.write_values(sizes, at * RANGE, sums, values));
        }
        values
    }
}

/// Returns the largest integer of one task's gradient for which no sum of `budget` tasks overflows.
pub(super) fn limit(budget: u64) -> u64 {
    (i32::MAX as u64 / budget.max(1)).max(1)
}

/// Returns the exponent of the smallest unit in which a largest magnitude fits, with headroom.
fn exponent_for(most: f64, budget: u64, format: WireFormat) -> i16 {
    let ratio = match format {
        WireFormat::F32Exact => HEADROOM * most / limit(budget) as f64,
        WireFormat::Compact => COMPACT_HEADROOM * most / COMPACT_LIMIT,
    };
    ceil_log2(ratio).clamp(*EXPONENTS.start(), *EXPONENTS.end())
}

/// Returns the exponent of the smallest power of two that is at least the magnitude of `value`. It is below all
/// exponents of f32 for zero, and above them for values that are not finite.
pub(crate) fn ceil_log2(value: f64) -> i16 {
    const FRACTION: u64 = (1 << 52) - 1;
    let bits = value.abs().to_bits();
    (bits >> 52) as i16 - 1023 + i16::from(bits & FRACTION != 0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use WireFormat::{Compact, F32Exact};

    /// The largest magnitude, with its headroom, takes between half of the range and all of it.
    #[test]
    fn the_range_is_filled_but_for_the_headroom() {
        for budget in [1, 2, 23, 1000, 1 << 20] {
            for most in [1e-30_f32, 0.3, 1.0, 1.5, 7e20] {
                for (format, share) in
                    [(F32Exact, HEADROOM / limit(budget) as f64), (Compact, COMPACT_HEADROOM / COMPACT_LIMIT)]
                {
                    let next = Units::of_tensors([-126].into()).next(&[most], budget, format);
                    let filled = f64::from(most) * share / f64::from(power_of_two(next.exponents()[0]));
                    assert!(filled > 0.5 && filled <= 1.0, "{format}, B = {budget}, {most}: {filled}");
                }
            }
        }
    }

    #[test]
    fn a_unit_rises_at_once_and_falls_by_a_bit() {
        for format in [F32Exact, Compact] {
            let start = Units::first(&[1.0], 16);
            let at = |maxima: &[f32]| {
                let last = maxima.iter().fold(start.clone(), |units, most| units.next(&[*most], 16, format));
                last.exponents()[0] - start.exponents()[0]
            };
            let settled = at(&[1.0; 8]);
            if format == F32Exact {
                assert_eq!(settled, -2, "the headroom of the first iteration is gone");
            }
            for (maxima, expected) in [
                (&[1024.0][..], settled + 10),
                (&[1024.0, 1.0, 1.0], settled + 8),
                (&[1024.0, 0.0], settled + 9),
                (&[1024.0, 1e-30, 512.0], settled + 9),
            ] {
                assert_eq!(at(maxima), expected, "{format} {maxima:?}");
            }
            assert_eq!(at(&[0.0; 300]), -126 - start.exponents()[0], "the fall ends");
        }
    }

    #[test]
    fn a_tensor_of_zeros_begins_with_the_largest_unit() {
        let units = Units::first(&[0.25, 0.0, 2.0], 8);
        let [small, zero, large] = units.exponents()[..] else { unreachable!() };
        assert_eq!((large - small, zero), (3, large));
        assert_eq!(Units::first(&[0.0, 0.0], 8), Units::first(&[1.0, 1.0], 8));
    }

    /// Whatever maxima arrive, the resulting units are valid.
    #[test]
    fn units_from_outside_are_checked() {
        let sizes = TensorSizes::new([3, 4]);
        for (exponents, reason) in [
            (&[1_i16][..], "1 exponents of units: expected 2"),
            (&[1, -127], "is -127: expected"),
            (&[127, 0], "is 127: expected"),
        ] {
            let error = Units::from_exponents(exponents, &sizes).unwrap_err().to_string();
            assert!(error.contains(reason), "{error}");
        }
        let sizes_of_blocks = TensorSizes::new([300, 400]);
        for (shifts, reason) in [
            (&[0, 0][..], "all 0"),
            (&[1], "1 bytes of shifts: expected 2"),
            (&[1, 0, 0], "3 bytes of shifts: expected 2"),
            (&[1, 16], "half a byte follows"),
            (&[0, 15], "is -127: expected"),
        ] {
            let error = Units::new(&[0, -112], shifts, &sizes_of_blocks).unwrap_err().to_string();
            assert!(error.contains(reason), "{shifts:?}: {error}");
        }
        let mutated = ata_mutator::Mutator::new(1, vec![vec![0x21, 0x03], vec![0x21]]);
        ata_mutator::feed(mutated, 5000, |shifts| {
            let units = Units::new(&[0, -112], shifts, &sizes_of_blocks);
            assert!(units.as_ref().is_err() || units.as_ref().unwrap().shifts() == shifts);
            units.is_ok()
        });
        for maxima in [[f32::NAN, f32::INFINITY], [-1.0, f32::MAX], [1e-45, -f32::NAN]] {
            for format in [F32Exact, Compact] {
                for budget in [0, 1, u64::MAX] {
                    let first = Units::first(&maxima, budget);
                    for units in [first.next(&maxima, budget, format), first] {
                        assert_eq!(Units::from_exponents(units.exponents(), &sizes), Ok(units));
                    }
                }
            }
        }
    }
}
