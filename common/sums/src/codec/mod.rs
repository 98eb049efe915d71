//! Encodes vectors as bytes, little-endian, chunk by chunk.
//!
//! # Layout
//! - here: whole parameters, and the errors of decoding; `sums`: integers, optionally in few bits; `differences`:
//!   parameters as 8-bit differences from those that the receiver holds

mod differences;
mod sums;

pub use differences::{apply_differences, encode_differences};
pub use sums::{decode_sums, encode_sums};

use crate::exact::BLOCK;

/// The reason why bytes are refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum CodecError {
    /// The number of bytes is wrong.
    #[error("{found} bytes: expected {expected} for {values} values")]
    Length {
        /// The number of bytes.
        found: usize,
        /// The expected number of bytes.
        expected: usize,
        /// The number of values.
        values: usize,
    },
    /// The bytes end in the middle of a block.
    #[error("the bytes end in block {block}: expected {blocks} blocks")]
    Truncated {
        /// The block in which the bytes end.
        block: usize,
        /// The number of blocks.
        blocks: usize,
    },
    /// There are bytes after the last block.
    #[error("{bytes} bytes follow the last block: expected none")]
    Trailing {
        /// The number of these bytes.
        bytes: usize,
    },
    /// A block of integers has a width that is never written.
    #[error("block {block} has integers of {width} bits: expected 0, 8, 12, 16, 20 or 32")]
    Width {
        /// The block.
        block: usize,
        /// The width of the block.
        width: u8,
    },
    /// A block of differences has a scale that is never written.
    #[error("block {block} has the scale {scale}: expected one from -128 to 121")]
    Scale {
        /// The block.
        block: usize,
        /// The scale of the block.
        scale: i8,
    },
}

/// Encodes values as f32.
pub fn encode_parameters(values: &[f32]) -> Vec<u8> {
    encode_words(values, f32::to_le_bytes)
}

/// Decodes as many values as `values` has. If the bytes hold another number of values, none is decoded.
pub fn decode_parameters(bytes: &[u8], values: &mut [f32]) -> Result<(), CodecError> {
    let words = words(bytes, values.len())?;
    for (value, word) in values.iter_mut().zip(words) {
        *value = f32::from_le_bytes(*word);
    }
    Ok(())
}

fn encode_words<T: Copy>(values: &[T], encode: impl Fn(T) -> [u8; 4]) -> Vec<u8> {
    let words: Vec<[u8; 4]> = values.iter().map(|value| encode(*value)).collect();
    words.into_flattened()
}

/// Splits the bytes of `count` values into groups of four.
fn words(bytes: &[u8], count: usize) -> Result<&[[u8; 4]], CodecError> {
    match bytes.as_chunks() {
        (words, []) if words.len() == count => Ok(words),
        _ => Err(CodecError::Length { found: bytes.len(), expected: count.saturating_mul(4), values: count }),
    }
}

/// Removes the bytes of a block from the front of `rest`, and returns them.
fn take<'a>(rest: &mut &'a [u8], bytes: usize, block: usize, blocks: usize) -> Result<&'a [u8], CodecError> {
    rest.split_off(..bytes).ok_or(CodecError::Truncated { block, blocks })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parameters_keep_their_bits() {
        let values = [0.0, -0.0, 1.5, f32::MIN_POSITIVE / 2.0, f32::INFINITY, -f32::NAN];
        let bytes = encode_parameters(&values);
        let mut read = [7.0; 6];
        decode_parameters(&bytes, &mut read).unwrap();
        assert_eq!(read.map(f32::to_bits), values.map(f32::to_bits));
        for (bytes, count) in [(&bytes[..23], 6), (&bytes, 5), (&bytes, 7), (&[], 1)] {
            let mut read = vec![7.0; count];
            let error = decode_parameters(bytes, &mut read).unwrap_err();
            assert!(matches!(error, CodecError::Length { values, .. } if values == count), "{error}");
            assert_eq!(read, vec![7.0; count]);
        }
    }
}
