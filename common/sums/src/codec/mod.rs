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
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct CodecError(String);

/// Encodes values as f32.
pub fn encode_parameters(values: &[f32]) -> Vec<u8> {
    // Every machine that ata runs on is little-endian: the wire protocol requires it.
    bytemuck::cast_slice(values).to_vec()
}

/// Decodes as many values as `values` has. If the bytes hold another number of values, none is decoded.
pub fn decode_parameters(bytes: &[u8], values: &mut [f32]) -> Result<(), CodecError> {
    let words = words(bytes, values.len())?;
    for (value, word) in values.iter_mut().zip(words) {
        *value = f32::from_le_bytes(*word);
    }
    Ok(())
}

/// Splits the bytes of `count` values into groups of four.
fn words(bytes: &[u8], count: usize) -> Result<&[[u8; 4]], CodecError> {
    match bytes.as_chunks() {
        (words, []) if words.len() == count => Ok(words),
        _ => {
            let expected = count.saturating_mul(4);
            Err(CodecError(format!("{} bytes: expected {expected} for {count} values", bytes.len())))
        }
    }
}

/// Removes the bytes of a block from the front of `rest`, and returns them.
fn take<'a>(rest: &mut &'a [u8], bytes: usize, block: usize, blocks: usize) -> Result<&'a [u8], CodecError> {
    let ends_early = || CodecError(format!("the bytes end in block {block}: expected {blocks} blocks"));
    rest.split_off(..bytes).ok_or_else(ends_early)
}

/// Refuses bytes after the last block.
fn expect_end(rest: &[u8]) -> Result<(), CodecError> {
    match rest.len() {
        0 => Ok(()),
        bytes => Err(CodecError(format!("{bytes} bytes follow the last block: expected none"))),
    }
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
            assert!(error.to_string().ends_with(&format!("for {count} values")), "{error}");
            assert_eq!(read, vec![7.0; count]);
        }
    }
}
