//! Encodes sums of gradients as bytes: as i32, or in blocks of as few bits as their values need. Both are lossless.
//!
//! A block of the compact format begins with its width in bits, the smallest of 0, 4, 8, 12, 16, 20 and 32 that holds its
//! values in two's complement. The low 8, 16 or 32 bits of all values follow. For 4, 12 and 20 bits the high four bits
//! come next: those of values i and i + 128 share a byte. The last block is padded with zeros. If the values are multiples of a power of two
//! that takes them to a smaller width, the width has 128 added, the exponent of that power follows, and then the quotients.

use ata_nn::vectorized;
use ata_types::WireFormat;

use super::{BLOCK, CodecError, expect_end, take, words};

type BlockSums = [i32; BLOCK];

/// Encodes sums.
pub fn encode_sums(format: WireFormat, sums: &[i32]) -> Vec<u8> {
    match format {
        WireFormat::F32Exact => bytemuck::cast_slice(sums).to_vec(),
        WireFormat::Compact => vectorized(
            #[inline(always)]
            || encode_blocks(sums),
        ),
    }
}

/// Decodes `count` sums, which replace the content of `sums`.
pub fn decode_sums(format: WireFormat, bytes: &[u8], count: usize, sums: &mut Vec<i32>) -> Result<(), CodecError> {
    match format {
        WireFormat::F32Exact => {
            let words = words(bytes, count)?;
            sums.clear();
            sums.extend(words.iter().map(|word| i32::from_le_bytes(*word)));
            Ok(())
        }
        WireFormat::Compact => vectorized(
            #[inline(always)]
            || decode_blocks(bytes, count, sums),
        ),
    }
}

#[inline(always)]
fn encode_blocks(sums: &[i32]) -> Vec<u8> {
    let (blocks, rest) = sums.as_chunks::<BLOCK>();
    // Most blocks take 16 bits.
    let mut bytes = Vec::with_capacity(sums.len().div_ceil(BLOCK) * (1 + 2 * BLOCK));
    for block in blocks {
        encode_block(block, &mut bytes);
    }
    if !rest.is_empty() {
        let mut block = [0; BLOCK];
        block[..rest.len()].copy_from_slice(rest);
        encode_block(&block, &mut bytes);
    }
    bytes
}

#[inline(always)]
fn encode_block(block: &BlockSums, bytes: &mut Vec<u8>) {
    let (width, shift) = width_of(block);
    let shifted;
    let block = if shift == 0 {
        bytes.push(width);
        block
    } else {
        bytes.extend([width | SHIFTED, shift]);
        shifted = block.map(|value| value >> shift);
        &shifted
    };
    match width {
        0 | 4 => {}
        8 | 12 => bytes.extend_from_slice(&block.map(|value| value as u8)),
        16 | 20 => bytes.extend_from_slice(block.map(|value| (value as i16).to_le_bytes()).as_flattened()),
        _ => bytes.extend_from_slice(block.map(i32::to_le_bytes).as_flattened()),
    }
    if matches!(width, 4 | 12 | 20) {
        bytes.extend_from_slice(&nibbles(block, u32::from(width) - 4));
    }
}

/// What is added to the width of a block whose values are shifted.
const SHIFTED: u8 = 128;

/// Returns the smallest width that holds every value of a block, and by how many bits the values are shifted for it.
#[inline(always)]
fn width_of(block: &BlockSums) -> (u8, u8) {
    let (mut any, mut magnitude) = (0, 0);
    for value in block {
        any |= value;
        magnitude |= value ^ (value >> 31);
    }
    if any == 0 {
        return (0, 0);
    }
    let (bits, zeros) = (33 - magnitude.leading_zeros(), any.trailing_zeros());
    let (whole, shifted) = (width_for(bits), width_for(bits - zeros));
    if shifted < whole { (shifted, zeros as u8) } else { (whole, 0) }
}

#[inline(always)]
fn width_for(bits: u32) -> u8 {
    match bits {
        ..=4 => 4,
        5..=8 => 8,
        9..=12 => 12,
        13..=16 => 16,
        17..=20 => 20,
        _ => 32,
    }
}

/// Returns four bits of each value, from bit `from` on.
#[inline(always)]
fn nibbles(block: &BlockSums, from: u32) -> [u8; BLOCK / 2] {
    let (low, high) = block.split_at(BLOCK / 2);
    let mut bytes = [0; BLOCK / 2];
    for ((byte, low), high) in bytes.iter_mut().zip(low).zip(high) {
        *byte = ((low >> from) & 15 | ((high >> from) & 15) << 4) as u8;
    }
    bytes
}

#[inline(always)]
fn decode_blocks(bytes: &[u8], count: usize, sums: &mut Vec<i32>) -> Result<(), CodecError> {
    sums.clear();
    let (mut rest, blocks) = (bytes, count.div_ceil(BLOCK));
    for at in 0..blocks {
        let header = take(&mut rest, 1, at, blocks)?[0];
        let (width, shift) = match header & !SHIFTED {
            width if width == header => (width, 0),
            width => (width, take(&mut rest, 1, at, blocks)?[0]),
        };
        let length = match width {
            0 | 4 | 8 | 12 | 16 | 20 | 32 => usize::from(width) * (BLOCK / 8),
            _ => {
                let reason = format!("block {at} has integers of {width} bits: expected 0, 4, 8, 12, 16, 20 or 32");
                return Err(CodecError(reason));
            }
        };
        if u32::from(width) + u32::from(shift) > 32 {
            return Err(CodecError(format!(
                "block {at} has integers of {width} bits, shifted by {shift}: expected 32 at most"
            )));
        }
        let block = decode_block(width, take(&mut rest, length, at, blocks)?).map(|value| value << shift);
        sums.extend_from_slice(&block[..BLOCK.min(count - at * BLOCK)]);
    }
    expect_end(rest)
}

/// Decodes the values of a block. The number of bytes must match the width.
#[inline(always)]
fn decode_block(width: u8, bytes: &[u8]) -> BlockSums {
    let mut block = [0; BLOCK];
    match width {
        4 => read_high(&mut block, bytes, 0),
        8 => read_low(&mut block, bytes.as_chunks().0, |[byte]: [u8; 1]| i32::from(byte.cast_signed())),
        12 => {
            read_low(&mut block, bytes[..BLOCK].as_chunks().0, |[byte]: [u8; 1]| i32::from(byte));
            read_high(&mut block, &bytes[BLOCK..], 8);
        }
        16 => read_low(&mut block, bytes.as_chunks().0, |bytes| i32::from(i16::from_le_bytes(bytes))),
        20 => {
            read_low(&mut block, bytes[..2 * BLOCK].as_chunks().0, |bytes| i32::from(u16::from_le_bytes(bytes)));
            read_high(&mut block, &bytes[2 * BLOCK..], 16);
        }
        32 => read_low(&mut block, bytes.as_chunks().0, i32::from_le_bytes),
        _ => {}
    }
    block
}

/// Decodes the low bits of each value.
#[inline(always)]
fn read_low<const N: usize>(block: &mut BlockSums, bytes: &[[u8; N]], value: impl Fn([u8; N]) -> i32) {
    for (low, bytes) in block.iter_mut().zip(bytes) {
        *low = value(*bytes);
    }
}

/// Adds the four high bits of each value, from bit `from` on.
#[inline(always)]
fn read_high(block: &mut BlockSums, nibbles: &[u8], from: u32) {
    let (low, high) = block.split_at_mut(BLOCK / 2);
    for ((low, high), nibble) in low.iter_mut().zip(high).zip(nibbles) {
        // The upper bit of each nibble is the sign.
        *low |= (i32::from(*nibble) << 28) >> (28 - from);
        *high |= (i32::from(*nibble >> 4) << 28) >> (28 - from);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use ata_mutator::{Mutator, feed};
    use proptest::prelude::*;

    const FORMATS: [WireFormat; 2] = [WireFormat::F32Exact, WireFormat::Compact];

    /// Returns blocks of values that have at most these numbers of bits.
    fn sums(bits: &[u32], length: usize, seed: u32) -> Vec<i32> {
        let value = |at: usize| {
            let bits = bits[at / BLOCK % bits.len()];
            let random = (at as u32 ^ seed).wrapping_mul(2_654_435_761).rotate_left(at as u32).cast_signed();
            if bits == 0 { 0 } else { random >> (32 - bits) }
        };
        (0..length).map(value).collect()
    }

    proptest! {
        #[test]
        fn every_integer_is_read_as_it_was_written(
            bits in prop::collection::vec(0u32..=32, 1..6),
            length in prop_oneof![0usize..4, 250usize..260, 0usize..2000],
            seed in any::<u32>(),
        ) {
            let sums = sums(&bits, length, seed);
            for format in FORMATS {
                let bytes = encode_sums(format, &sums);
                let mut read = vec![1, 2, 3];
                prop_assert_eq!(decode_sums(format, &bytes, length, &mut read), Ok(()));
                prop_assert_eq!(&read, &sums);
            }
        }
    }

    /// The extremes of each width take that width, and their neighbours take the next one.
    #[test]
    fn a_block_takes_the_fewest_bits() {
        let bytes = |value: i32| {
            let mut sums = [0; BLOCK];
            // An odd value, so that none is shifted.
            (sums[100], sums[200]) = (1, value);
            let bytes = encode_sums(WireFormat::Compact, &sums);
            let mut read = Vec::new();
            decode_sums(WireFormat::Compact, &bytes, BLOCK, &mut read).unwrap();
            assert_eq!(read, sums);
            bytes.len() - 1
        };
        assert_eq!(encode_sums(WireFormat::Compact, &[0; BLOCK]), [0]);
        for (bits, next) in [(4, 8), (8, 12), (12, 16), (16, 20), (20, 32)] {
            let end = 1 << (bits - 1);
            assert_eq!(
                [end - 1, -end, end, -end - 1].map(bytes),
                [bits, bits, next, next].map(|bits| bits * BLOCK / 8)
            );
        }
        assert_eq!([-1, i32::MAX, i32::MIN].map(bytes), [4, 32, 32].map(|bits| bits * BLOCK / 8));
    }

    #[test]
    fn multiples_of_a_power_of_two_are_sent_without_it() {
        for (largest, zeros, bits) in [(7, 0, 4), (7, 28, 4), (-8, 20, 4), (100, 3, 8), (-128, 24, 8), (1000, 20, 12)] {
            let mut sums = [0; BLOCK];
            (sums[0], sums[130], sums[255]) = (largest << zeros, 1 << zeros, -(1 << zeros));
            let bytes = encode_sums(WireFormat::Compact, &sums);
            let mut read = Vec::new();
            decode_sums(WireFormat::Compact, &bytes, BLOCK, &mut read).unwrap();
            assert_eq!((&read[..], bytes.len()), (&sums[..], 1 + usize::from(zeros > 0) + bits * BLOCK / 8));
        }
    }

    #[test]
    fn other_bytes_are_refused_with_a_reason() {
        let compact = encode_sums(WireFormat::Compact, &sums(&[3, 12], 300, 1));
        let mut odd = compact.clone();
        odd[1 + BLOCK / 2] = 13;
        let longer = [&compact[..], &[0]].concat();
        for (bytes, count, reason) in [
            (&odd, 300, "block 1 has integers of 13 bits"),
            (&[SHIFTED + 20, 13].repeat(400), 256, "block 0 has integers of 20 bits, shifted by 13: expected 32"),
            (&longer, 300, "1 bytes follow the last block"),
            (&compact, 256, "385 bytes follow the last block"),
            (&compact, 600, "the bytes end in block 2: expected 3 blocks"),
            (&compact, usize::MAX, "the bytes end in block 2"),
            (&compact[..500].to_vec(), 300, "the bytes end in block 1: expected 2 blocks"),
        ] {
            let error = decode_sums(WireFormat::Compact, bytes, count, &mut Vec::new()).unwrap_err().to_string();
            assert!(error.contains(reason), "{error}");
        }
        assert!(decode_sums(WireFormat::F32Exact, &[0; 7], 2, &mut Vec::new()).is_err());
    }

    #[test]
    fn mutated_bytes_are_refused_or_are_as_many_sums() {
        for format in FORMATS {
            let seeds = vec![encode_sums(format, &sums(&[3, 12, 0, 20, 32], 1300, 1))];
            let fed = feed(Mutator::new(1, seeds), 5000, |bytes| {
                let mut read = Vec::new();
                let is_whole = decode_sums(format, bytes, 1300, &mut read).is_ok();
                assert!(if is_whole { read.len() == 1300 } else { read.len() <= 1300 });
                is_whole
            });
            println!("{format}: {fed:?}");
        }
    }
}
