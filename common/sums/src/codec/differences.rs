//! Encodes parameters as 8-bit differences from the parameters that the receivers hold.
//!
//! A block begins with its scale, the smallest e for which its differences, as integer multiples of 2^e, have
//! magnitudes of at most 127; the integers follow as i8. A rounding error becomes part of the next difference, since
//! the sender keeps the parameters that the receivers hold, computed by the same expression.

use ata_nn::vectorized;

use super::{BLOCK, CodecError, expect_end, take};
use crate::exact::{ceil_log2, max_bits, power_of_two};

/// The scale of a block without differences, which has no integers.
const UNCHANGED: i8 = -128;

/// The scale of a block that is sent as f32, because differences are too large, infinite or NaN.
const WHOLE: i8 = -127;

/// The smallest scale that is a normal f32.
const SMALLEST: i16 = -126;

/// The largest scale for which 127 times its power of two is a finite f32.
const LARGEST: i16 = 121;

/// The number 1.5 · 2²³: an f32 of this magnitude has no fraction, so that adding it rounds to an integer, ties to even.
const TO_INTEGER: f32 = 12_582_912.0;

/// Encodes the differences that turn the receivers' parameters `held` into `new`, up to rounding. `held` becomes what
/// the receivers hold afterwards. Blocks with values from the index `exact` on are not rounded.
///
/// # Panics
/// Panics if `held` and `new` have different lengths.
pub fn encode_differences(held: &mut [f32], new: &[f32], exact: usize) -> Vec<u8> {
    assert_eq!(held.len(), new.len());
    let mut bytes = Vec::with_capacity(held.len() + held.len().div_ceil(BLOCK));
    for (at, (held, new)) in held.chunks_mut(BLOCK).zip(new.chunks(BLOCK)).enumerate() {
        let mut differences = [0.0; BLOCK];
        let differences = &mut differences[..held.len()];
        for ((difference, new), held) in differences.iter_mut().zip(new).zip(&*held) {
            *difference = new - held;
        }
        let scale = match scale_of(differences) {
            UNCHANGED => UNCHANGED,
            _ if at * BLOCK + held.len() > exact => WHOLE,
            scale => scale,
        };
        bytes.push(scale.cast_unsigned());
        let start = bytes.len();
        match scale {
            UNCHANGED => {}
            WHOLE => bytes.extend(new.iter().flat_map(|value| value.to_le_bytes())),
            scale => bytes.extend_from_slice(&quantize(differences, scale)[..held.len()]),
        }
        apply(held, scale, &bytes[start..]);
    }
    bytes
}

/// Adds differences to the parameters that the receiver holds. Bytes that are refused leave them unchanged.
pub fn apply_differences(held: &mut [f32], bytes: &[u8]) -> Result<(), CodecError> {
    read(bytes, held.len(), |_, _, _| {})?;
    read(bytes, held.len(), |at, scale, content| {
        let end = held.len().min(at + BLOCK);
        apply(&mut held[at..end], scale, content);
    })
}

/// Calls `block` with each block's first index, scale and content.
fn read(bytes: &[u8], count: usize, mut block: impl FnMut(usize, i8, &[u8])) -> Result<(), CodecError> {
    let (mut rest, blocks) = (bytes, count.div_ceil(BLOCK));
    for at in 0..blocks {
        let scale = take(&mut rest, 1, at, blocks)?[0].cast_signed();
        let first = at * BLOCK;
        let values = BLOCK.min(count - first);
        let length = match scale {
            UNCHANGED => 0,
            WHOLE => 4 * values,
            scale if i16::from(scale) <= LARGEST => values,
            _ => return Err(CodecError(format!("block {at} has the scale {scale}: expected one from -128 to 121"))),
        };
        block(first, scale, take(&mut rest, length, at, blocks)?);
    }
    expect_end(rest)
}

fn scale_of(differences: &[f32]) -> i8 {
    let most = f32::from_bits(max_bits(differences));
    if most == 0.0 {
        return UNCHANGED;
    }
    let exponent = ceil_log2(f64::from(most) / 127.0).max(SMALLEST);
    if exponent > LARGEST { WHOLE } else { exponent as i8 }
}

/// Converts differences to integer multiples of 2^`scale`.
fn quantize(differences: &[f32], scale: i8) -> [u8; BLOCK] {
    let factor = power_of_two(-i16::from(scale));
    let mut integers = [0; BLOCK];
    vectorized(
        #[inline(always)]
        || {
            for (integer, difference) in integers.iter_mut().zip(differences) {
                // The low bits are the integer in two's complement.
                *integer = (difference * factor + TO_INTEGER).to_bits() as u8;
            }
        },
    );
    integers
}

fn apply(held: &mut [f32], scale: i8, content: &[u8]) {
    match scale {
        UNCHANGED => {}
        WHOLE => {
            for (held, bytes) in held.iter_mut().zip(content.as_chunks().0) {
                *held = f32::from_le_bytes(*bytes);
            }
        }
        scale => {
            let unit = power_of_two(scale.into());
            vectorized(
                #[inline(always)]
                || {
                    for (held, integer) in held.iter_mut().zip(content) {
                        *held += f32::from(integer.cast_signed()) * unit;
                    }
                },
            );
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use ata_mutator::{Mutator, feed};
    use proptest::prelude::*;

    fn bits(values: &[f32]) -> Vec<u32> {
        values.iter().map(|value| value.to_bits()).collect()
    }

    proptest! {
        /// Both ends hold the same bits, which are within 1/127 of a block's largest difference of the new parameters.
        #[test]
        fn both_ends_hold_the_same(
            steps in prop::collection::vec((0usize..600, -40i32..4), 1..5),
            length in prop_oneof![0usize..4, 250usize..260, 0usize..900],
        ) {
            let mut new: Vec<f32> = (0..length).map(|at| (at as f32 * 0.7).sin()).collect();
            let (mut sender, mut receiver) = (new.clone(), new.clone());
            for (from, exponent) in steps {
                for (at, value) in new.iter_mut().enumerate().skip(from) {
                    *value += (at as f32 * 1.3).cos() * 2_f32.powi(exponent);
                }
                let before = sender.clone();
                let bytes = encode_differences(&mut sender, &new, usize::MAX);
                prop_assert_eq!(apply_differences(&mut receiver, &bytes), Ok(()));
                prop_assert_eq!(bits(&receiver), bits(&sender));
                for ((new, held), before) in new.chunks(BLOCK).zip(sender.chunks(BLOCK)).zip(before.chunks(BLOCK)) {
                    let most = new.iter().zip(before).map(|(a, b)| (a - b).abs()).fold(0.0, f32::max);
                    for (new, held) in new.iter().zip(held) {
                        prop_assert!((new - held).abs() <= most / 127.0 + 1e-6 * new.abs(), "{} is not {}", held, new);
                    }
                }
            }
        }
    }

    /// A difference that is too small next to another one is sent once the other is gone.
    #[test]
    fn what_is_rounded_away_is_sent_later() {
        let mut held = vec![0.0; 2];
        encode_differences(&mut held, &[127.0, 0.25], usize::MAX);
        assert_eq!(held, [127.0, 0.0]);
        encode_differences(&mut held, &[127.0, 0.25], usize::MAX);
        assert_eq!(held, [127.0, 0.25]);
        assert_eq!(encode_differences(&mut held, &[127.0, 0.25], usize::MAX), [UNCHANGED.cast_unsigned()]);
    }

    /// Blocks with a value that must not be rounded are sent as they are, if they change.
    #[test]
    fn exact_values_are_not_rounded() {
        let new: Vec<f32> = (0..2 * BLOCK + 9).map(|at| (at as f32).sin()).collect();
        for (exact, rounded) in [(0, 0), (BLOCK - 1, 0), (BLOCK, 1), (2 * BLOCK + 8, 2), (usize::MAX, 3)] {
            let (mut sender, mut receiver) = (vec![0.0; new.len()], vec![0.0; new.len()]);
            let bytes = encode_differences(&mut sender, &new, exact);
            apply_differences(&mut receiver, &bytes).unwrap();
            let blocks = receiver.chunks(BLOCK).zip(new.chunks(BLOCK)).map(|(held, new)| bits(held) == bits(new));
            assert!(sender == receiver && blocks.eq((0..3).map(|block| block >= rounded)), "{exact}");
            assert_eq!(encode_differences(&mut receiver, &sender, exact), [UNCHANGED.cast_unsigned(); 3]);
        }
    }

    /// Values that no scale fits, and values that are not finite, arrive unchanged.
    #[test]
    fn extremes_arrive() {
        for value in [f32::MAX, -3e38, f32::INFINITY, f32::NAN, 1e38, 127.0 * power_of_two(LARGEST)] {
            let new = [value, 1.0];
            let (mut sender, mut receiver) = ([-1.0; 2], [-1.0; 2]);
            let bytes = encode_differences(&mut sender, &new, usize::MAX);
            apply_differences(&mut receiver, &bytes).unwrap();
            assert_eq!(bits(&receiver), bits(&sender));
            assert!(bits(&receiver) == bits(&new) || bytes.len() == 3, "{value}: {receiver:?}");
        }
        let mut held = [0.0];
        encode_differences(&mut held, &[f32::MIN_POSITIVE], usize::MAX);
        assert_eq!(held, [f32::MIN_POSITIVE]);
    }

    #[test]
    fn mutated_bytes_are_refused_and_change_nothing() {
        let held: Vec<f32> = (0..600).map(|at| at as f32).collect();
        let mut new = held.clone();
        new[3] = 7.5;
        new[400] = f32::MAX;
        let bytes = encode_differences(&mut held.clone(), &new, usize::MAX);
        for (at, reason) in [(0, "block 0 has the scale 122"), (1 + BLOCK, "block 1 has the scale 122")] {
            let mut odd = bytes.clone();
            odd[at] = 122;
            let error = apply_differences(&mut held.clone(), &odd).unwrap_err().to_string();
            assert!(error.contains(reason), "{error}");
        }
        let fed = feed(Mutator::new(1, vec![bytes]), 5000, |bytes| {
            let mut read = held.clone();
            let is_whole = apply_differences(&mut read, bytes).is_ok();
            assert!(is_whole || read == held);
            is_whole
        });
        println!("differences: {fed:?}");
    }
}
