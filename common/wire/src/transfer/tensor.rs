//! Assembles a tensor as its bytes arrive.

use super::{Assembler, Pool, TransferError};

/// Bytes that are checked and copied at a time: they stay in a core's first cache in between.
const BLOCK_BYTES: usize = 1 << 14;

/// Assembles a tensor from chunks whose data comes in pieces of any size.
#[derive(Debug)]
pub(super) struct TensorReceiver {
    checked: Assembler,
    values: Vec<f32>,
    /// The first bytes of a value whose others have not arrived.
    split: [u8; 4],
    split_bytes: usize,
}

impl TensorReceiver {
    /// Starts a tensor of `expected` values, announced as `announced` bytes.
    pub(super) fn new(announced: u64, expected: u64) -> Result<Self, TransferError> {
        let checked = Assembler::new(announced, expected * 4)?;
        Ok(Self { checked, values: Vec::new(), split: [0; 4], split_bytes: 0 })
    }

    /// Begins a chunk. With the first one the tensor gets a vector from `pool`, since an announcement alone must not reserve
    /// memory, and the vector given back last is still in a cache.
    pub(super) fn begin(&mut self, crc32c: u32, bytes: usize, pool: &Pool) -> Result<(), TransferError> {
        self.checked.begin(crc32c, bytes)?;
        if self.values.capacity() == 0 {
            self.values = pool.take();
            self.values.reserve_exact((self.checked.expected / 4) as usize);
        }
        Ok(())
    }

    /// Takes data of the chunk. `must_be_finite` tells whether infinities and NaN are errors.
    pub(super) fn push(&mut self, mut data: &[u8], must_be_finite: bool) -> Result<(), TransferError> {
        while !data.is_empty() {
            let (block, rest) = data.split_at(data.len().min(BLOCK_BYTES - self.split_bytes));
            self.checked.update(block);
            let first = self.values.len();
            self.copy(block);
            if must_be_finite {
                check_finite(&self.values[first..], first)?;
            }
            data = rest;
        }
        self.checked.end()
    }

    /// Whether everything has arrived.
    pub(super) fn is_complete(&self) -> bool {
        self.checked.is_complete()
    }

    /// The tensor, once everything has arrived.
    pub(super) fn finish(self) -> Result<Vec<f32>, TransferError> {
        self.checked.finish()?;
        Ok(self.values)
    }

    fn copy(&mut self, mut bytes: &[u8]) {
        if self.split_bytes > 0 {
            let more = bytes.len().min(4 - self.split_bytes);
            self.split[self.split_bytes..][..more].copy_from_slice(&bytes[..more]);
            self.split_bytes += more;
            bytes = &bytes[more..];
            if self.split_bytes < 4 {
                return;
            }
            self.values.push(f32::from_le_bytes(self.split));
        }
        let (whole, rest) = bytes.as_chunks::<4>();
        self.values.extend(whole.iter().map(|bytes| f32::from_le_bytes(*bytes)));
        self.split[..rest.len()].copy_from_slice(rest);
        self.split_bytes = rest.len();
    }
}

fn check_finite(values: &[f32], first: usize) -> Result<(), TransferError> {
    const EXPONENT: u32 = 0x7f80_0000;
    // Without a branch per value, the check costs next to nothing.
    if values.iter().fold(true, |finite, value| finite & (value.to_bits() & EXPONENT != EXPONENT)) {
        return Ok(());
    }
    let poison = values.iter().enumerate().find(|(_, value)| !value.is_finite());
    poison.map_or(Ok(()), |(at, value)| Err(TransferError::NotFinite { index: first + at, value: *value }))
}

#[cfg(test)]
mod tests {
    use super::super::{chunks, f32_bytes};
    use super::*;
    use crate::limits::CHUNK_BYTES;
    use crate::proto::Chunk;
    use proptest::prelude::*;

    fn values(count: usize) -> Vec<f32> {
        (0..count).map(|i| i as f32 * 0.5 - 7.0).collect()
    }

    /// Puts chunks together whose data arrive in pieces of `piece` bytes.
    fn assemble(chunks: &[Chunk], announced: u64, expected: u64, piece: usize) -> Result<Vec<f32>, TransferError> {
        let mut tensor = TensorReceiver::new(announced, expected)?;
        for chunk in chunks {
            tensor.begin(chunk.crc32c, chunk.data.len(), &Pool::default())?;
            for piece in chunk.data.chunks(piece) {
                tensor.push(piece, true)?;
            }
        }
        assert!(tensor.values.capacity() <= expected as usize);
        tensor.finish()
    }

    proptest! {
        #[test]
        fn tensors_of_all_sizes_arrive_in_all_pieces(
            count in prop_oneof![0..9usize, CHUNK_BYTES / 4 - 1..CHUNK_BYTES / 4 + 2, Just(CHUNK_BYTES * 3 / 4 + 5)],
            piece in prop_oneof![Just(1usize), 2..20usize, BLOCK_BYTES - 1..3 * BLOCK_BYTES],
        ) {
            let sent: Vec<_> = chunks(f32_bytes(values(count))).collect();
            prop_assert_eq!(sent.len(), count.div_ceil(CHUNK_BYTES / 4));
            prop_assert!(assemble(&sent, 4 * count as u64, count as u64, piece).unwrap() == values(count));
        }
    }

    #[test]
    fn damage_is_found() {
        let count = (CHUNK_BYTES / 4 + 5) as u64;
        let sent: Vec<_> = chunks(f32_bytes(values(count as usize))).collect();
        let announced = 4 * count;
        let assemble = |chunks: &[Chunk], announced| assemble(chunks, announced, count, 1000).unwrap_err();
        let size = |found| TransferError::Size { found, expected: announced };
        assert_eq!(assemble(&sent, announced - 4), size(announced - 4));
        assert_eq!(assemble(&sent[..1], announced), size(CHUNK_BYTES as u64));
        assert_eq!(assemble(&[sent[1].clone()], announced), TransferError::Chunk(20), "out of order");
        assert_eq!(assemble(&[sent[0].clone(), sent[0].clone()], announced), size(2 * CHUNK_BYTES as u64));
        let empty = Chunk { crc32c: 0, data: Vec::new().into() };
        assert_eq!(assemble(&[sent[0].clone(), sent[1].clone(), empty], announced), TransferError::Chunk(0));

        for (damaged, first) in [(0, 0), (1, CHUNK_BYTES as u64)] {
            let mut flipped = sent.clone();
            let mut data = flipped[damaged].data.to_vec();
            data[3] ^= 1;
            flipped[damaged].data = data.into();
            assert_eq!(assemble(&flipped, announced), TransferError::Checksum(first));
        }
    }

    #[test]
    fn poison_is_found() {
        for value in [f32::NAN, f32::INFINITY, f32::NEG_INFINITY] {
            for piece in [3, 1000] {
                let mut poisoned = values(10);
                poisoned[4] = value;
                let sent: Vec<_> = chunks(f32_bytes(poisoned)).collect();
                match assemble(&sent, 40, 10, piece) {
                    Err(TransferError::NotFinite { index: 4, value: found }) => {
                        assert_eq!(found.to_bits(), value.to_bits());
                    }
                    other => panic!("{other:?}"),
                }
            }
        }
    }
}
