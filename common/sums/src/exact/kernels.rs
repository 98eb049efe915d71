//! The loops over values, compiled for each register width. No result depends on its neighbours, so the bits are the same for every width.

use ata_nn::vectorized;

/// The mask that clears the sign bit of an f32.
const MAGNITUDE: u32 = 0x7fff_ffff;

/// The number 1.5 · 2⁵²: an f64 of this magnitude has no fraction, so that adding it rounds to an integer, ties to
/// even, in the low bits of the sum. The conversion `as i32` checks for NaN and is not vectorised.
const TO_INTEGER: f64 = 6_755_399_441_055_744.0;

/// Returns 2^`exponent`, for exponents from −126 to 127.
pub(crate) fn power_of_two(exponent: i16) -> f32 {
    debug_assert!((-126..=127).contains(&exponent));
    f32::from_bits(((i32::from(exponent) + 127) as u32) << 23)
}

/// Returns the bits of the largest magnitude; at least those of infinity if a value is infinite or NaN.
pub(crate) fn max_bits(values: &[f32]) -> u32 {
    vectorized(
        #[inline(always)]
        || values.iter().fold(0, |most, value| most.max(value.to_bits() & MAGNITUDE)),
    )
}

/// Clamps a number to ±`limit`, and rounds it to the nearest integer, ties to even.
#[inline(always)]
fn nearest(value: f32, limit: f32) -> i32 {
    let value = if value < limit { value } else { limit };
    let value = if value > -limit { value } else { -limit };
    (f64::from(value) + TO_INTEGER).to_bits() as i32
}

/// Adds the values, times `factor` and clamped to ±`limit`, as integers. Returns the largest magnitude of the values, as
/// [`max_bits`] does.
pub(crate) fn quantize_add(sums: &mut [i32], values: &[f32], factor: f32, limit: f32) -> u32 {
    vectorized(
        #[inline(always)]
        || {
            let mut most = 0;
            for (sum, value) in sums.iter_mut().zip(values) {
                most = most.max(value.to_bits() & MAGNITUDE);
                *sum = sum.wrapping_add(nearest(value * factor, limit));
            }
            most
        },
    )
}

/// Subtracts what [`quantize_add`] added, even of values that are not finite.
pub(crate) fn quantize_subtract(sums: &mut [i32], values: &[f32], factor: f32, limit: f32) {
    vectorized(
        #[inline(always)]
        || {
            for (sum, value) in sums.iter_mut().zip(values) {
                *sum = sum.wrapping_sub(nearest(value * factor, limit));
            }
        },
    );
}

/// Returns the number of values that [`quantize_add`] clamps.
pub(crate) fn count_clamped(values: &[f32], factor: f32, limit: f32) -> u64 {
    values.iter().filter(|value| (*value * factor).abs() > limit).count() as u64
}

/// Returns the number of nonzero values that [`quantize_add`] turns into 0.
pub(crate) fn count_vanished(values: &[f32], factor: f32) -> u64 {
    vectorized(
        #[inline(always)]
        || values.iter().map(|value| u32::from(*value != 0.0 && (*value * factor).abs() <= 0.5)).sum::<u32>().into(),
    )
}

/// Adds integers element by element. Sums of at most a budget of tasks do not overflow.
pub fn add_sums(sums: &mut [i32], others: &[i32]) {
    vectorized(
        #[inline(always)]
        || {
            for (sum, other) in sums.iter_mut().zip(others) {
                *sum = sum.wrapping_add(*other);
            }
        },
    );
}

/// Writes the integers, times `unit`, as floats.
pub(crate) fn dequantize(sums: &[i32], unit: f32, values: &mut [f32]) {
    vectorized(
        #[inline(always)]
        || {
            for (value, sum) in values.iter_mut().zip(sums) {
                *value = *sum as f32 * unit;
            }
        },
    );
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn integers_are_the_nearest_ties_to_even_and_clamped() {
        let values = [0.0, -0.0, 0.5, 1.5, -0.5, -2.5, 0.499_999_97, 6.6, -6.6, 99.0, -99.0, 1e38, -1e38, 1e-40];
        let expected = [0, 0, 0, 2, 0, -2, 0, 7, -7, 50, -50, 50, -50, 0];
        for (name, sums) in ata_nn::with_each_instruction_set(|| {
            let mut sums = [3; 14];
            assert_eq!(quantize_add(&mut sums, &values, 1.0, 50.0), 1e38_f32.to_bits());
            let added = sums.map(|sum| sum - 3);
            quantize_subtract(&mut sums, &values, 1.0, 50.0);
            assert_eq!(sums, [3; 14]);
            added
        }) {
            assert_eq!(sums, expected, "{name}");
        }
        assert_eq!(count_clamped(&values, 1.0, 50.0), 4);
        assert_eq!(count_vanished(&values, 1.0), 4);
    }
}
