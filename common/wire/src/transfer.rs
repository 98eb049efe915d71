//! Tensors and files as chunks, each with a checksum.
//!
//! A tensor is never copied on the sending side: chunks are slices of one buffer that all receivers share. The
//! receiving side copies each chunk once, into its place.

use bytes::Bytes;
use tokio_stream::Stream;
use tonic::{Status, Streaming};

use crate::limits::{CHUNK_BYTES, CHUNK_TIMEOUT};
use crate::proto::{self, Chunk, GradientPart, TransferPart, gradient_part, transfer_part};

#[cfg(target_endian = "big")]
compile_error!("tensors go over the wire as little-endian f32 without conversion");

/// What is wrong with the content of a transfer.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum TransferError {
    /// The size is not the expected one.
    #[error("transfer of {found} bytes: expected {expected}")]
    Size {
        /// Bytes announced or received.
        found: u64,
        /// Bytes expected.
        expected: u64,
    },
    /// A chunk has the wrong size.
    #[error("chunk of {0} bytes: expected 256 KiB, or less if it is the last")]
    Chunk(usize),
    /// A chunk does not match its checksum.
    #[error("wrong checksum in the chunk at byte {0}")]
    Checksum(u64),
    /// A value is infinite or not a number.
    #[error("value {index} is {value}: expected a finite number")]
    NotFinite {
        /// Index of the value.
        index: usize,
        /// The value.
        value: f32,
    },
}

/// Why a transfer was not received.
#[derive(Debug, thiserror::Error)]
pub enum ReceiveError {
    /// The call failed.
    #[error("{}", .0.message())]
    Call(Status),
    /// Nothing arrived for [`CHUNK_TIMEOUT`].
    #[error("the transfer stalled")]
    Stalled,
    /// The parts are not in the order of the contract.
    #[error("unexpected part in a transfer: {0}")]
    Order(&'static str),
    /// The content is wrong.
    #[error(transparent)]
    Content(#[from] TransferError),
}

/// Turns a vector into bytes without copying it.
pub fn f32_bytes(values: impl AsRef<[f32]> + Send + 'static) -> Bytes {
    struct Owner<T>(T);
    impl<T: AsRef<[f32]>> AsRef<[u8]> for Owner<T> {
        fn as_ref(&self) -> &[u8] {
            bytemuck::cast_slice(self.0.as_ref())
        }
    }
    Bytes::from_owner(Owner(values))
}

/// Splits a buffer into chunks, computing checksums lazily.
pub fn chunks(bytes: Bytes) -> impl Iterator<Item = Chunk> + Send + use<> {
    (0..bytes.len()).step_by(CHUNK_BYTES).map(move |start| {
        let end = bytes.len().min(start + CHUNK_BYTES);
        chunk(bytes.slice(start..end))
    })
}

/// Makes one chunk with its checksum.
pub fn chunk(data: Bytes) -> Chunk {
    let crc32c = crc32c::crc32c(&data);
    Chunk { data, crc32c }
}

/// Checks the chunks of a transfer of known size.
#[derive(Debug)]
pub struct Assembler {
    received: u64,
    expected: u64,
}

impl Assembler {
    /// Starts a transfer that should have `expected` bytes and announces `announced`.
    pub fn new(announced: u64, expected: u64) -> Result<Self, TransferError> {
        if announced == expected {
            Ok(Self { received: 0, expected })
        } else {
            Err(TransferError::Size { found: announced, expected })
        }
    }

    /// Checks the next chunk, and returns the offset of its data in the transfer.
    pub fn check(&mut self, chunk: &Chunk) -> Result<u64, TransferError> {
        let start = self.received;
        let left = self.expected - start;
        if chunk.data.len() as u64 > left {
            return Err(TransferError::Size { found: start + chunk.data.len() as u64, expected: self.expected });
        }
        if chunk.data.len() as u64 != left.min(CHUNK_BYTES as u64) {
            return Err(TransferError::Chunk(chunk.data.len()));
        }
        if crc32c::crc32c(&chunk.data) != chunk.crc32c {
            return Err(TransferError::Checksum(start));
        }
        self.received += chunk.data.len() as u64;
        Ok(start)
    }

    /// Whether everything has arrived.
    pub fn is_complete(&self) -> bool {
        self.received == self.expected
    }

    /// Ends the transfer, which fails if it is not complete.
    pub fn finish(self) -> Result<(), TransferError> {
        if self.is_complete() {
            Ok(())
        } else {
            Err(TransferError::Size { found: self.received, expected: self.expected })
        }
    }
}

/// Assembles a tensor from chunks.
#[derive(Debug)]
struct F32Assembler {
    checked: Assembler,
    values: Vec<f32>,
}

impl F32Assembler {
    /// Starts a tensor of `expected` values; no memory is reserved before the first chunk.
    fn new(announced_bytes: u64, expected: u64) -> Result<Self, TransferError> {
        Ok(Self { checked: Assembler::new(announced_bytes, expected * 4)?, values: Vec::new() })
    }

    /// Takes the next chunk, and returns the index of its first value.
    fn push(&mut self, chunk: &Chunk) -> Result<usize, TransferError> {
        let start = self.checked.check(chunk)?;
        if start == 0 {
            // An announcement alone must not make us reserve memory; a first good chunk may.
            self.values.reserve_exact((self.checked.expected / 4) as usize);
        }
        // Data in network buffers is not aligned.
        let values =
            chunk.data.chunks_exact(4).map(|bytes| f32::from_le_bytes([bytes[0], bytes[1], bytes[2], bytes[3]]));
        self.values.extend(values);
        Ok(start as usize / 4)
    }

    /// The tensor, once everything has arrived.
    fn finish(self) -> Result<Vec<f32>, TransferError> {
        self.checked.finish()?;
        Ok(self.values)
    }

    /// Takes the next chunk, whose values must all be finite. They are checked while they are in the cache.
    fn push_finite(&mut self, chunk: &Chunk) -> Result<(), TransferError> {
        const EXPONENT: u32 = 0x7f80_0000;
        let first = self.push(chunk)?;
        let values = &self.values[first..];
        // Without a branch per value, the check costs next to nothing.
        if values.iter().fold(true, |finite, value| finite & (value.to_bits() & EXPONENT != EXPONENT)) {
            return Ok(());
        }
        let poison = values.iter().enumerate().find(|(_, value)| !value.is_finite());
        poison.map_or(Ok(()), |(at, value)| Err(TransferError::NotFinite { index: first + at, value: *value }))
    }
}

/// A transfer to a worker: its header, then `chunks`, which hold `bytes` bytes in all.
pub fn transfer_parts(bytes: u64, chunks: impl IntoIterator<Item = Chunk>) -> impl Iterator<Item = TransferPart> {
    use transfer_part::Kind;
    let header = Kind::Header(proto::TransferHeader { bytes });
    let chunks = chunks.into_iter().map(Kind::Chunk);
    std::iter::once(header).chain(chunks).map(|kind| TransferPart { kind: Some(kind) })
}

/// A gradient to the coordinator: its header, then its values.
pub fn gradient_parts(
    header: proto::GradientHeader,
    values: Vec<f32>,
) -> impl Stream<Item = GradientPart> + Send + use<> {
    use gradient_part::Kind;
    let chunks = chunks(f32_bytes(values)).map(Kind::Chunk);
    let parts = std::iter::once(Kind::Header(header)).chain(chunks);
    tokio_stream::iter(parts.map(|kind| GradientPart { kind: Some(kind) }))
}

/// Receives a tensor of `expected` values, including its header.
pub async fn receive_tensor(parts: &mut Streaming<TransferPart>, expected: u64) -> Result<Vec<f32>, ReceiveError> {
    let mut assembler = F32Assembler::new(receive_header(parts).await?, expected)?;
    while let Some(chunk) = receive_chunk(parts).await? {
        assembler.push(&chunk)?;
    }
    Ok(assembler.finish()?)
}

/// Receives the header of a transfer, and returns the size in bytes.
pub async fn receive_header(parts: &mut Streaming<TransferPart>) -> Result<u64, ReceiveError> {
    match next(parts).await?.map(|part| part.kind) {
        Some(Some(transfer_part::Kind::Header(header))) => Ok(header.bytes),
        _ => Err(ReceiveError::Order("expected a header")),
    }
}

/// Receives the next chunk of a transfer; `None` after the last.
pub async fn receive_chunk(parts: &mut Streaming<TransferPart>) -> Result<Option<Chunk>, ReceiveError> {
    match next(parts).await?.map(|part| part.kind) {
        None => Ok(None),
        Some(Some(transfer_part::Kind::Chunk(chunk))) => Ok(Some(chunk)),
        Some(_) => Err(ReceiveError::Order("expected a chunk")),
    }
}

/// Receives the header of a gradient.
pub async fn receive_gradient_header(
    parts: &mut Streaming<GradientPart>,
) -> Result<proto::GradientHeader, ReceiveError> {
    match next(parts).await?.map(|part| part.kind) {
        Some(Some(gradient_part::Kind::Header(header))) => Ok(header),
        _ => Err(ReceiveError::Order("expected a header")),
    }
}

/// Receives a gradient of `expected` finite values after its header. Calls `heard` as each chunk arrives.
pub async fn receive_gradient(
    parts: &mut Streaming<GradientPart>,
    expected: u64,
    heard: impl Fn(),
) -> Result<Vec<f32>, ReceiveError> {
    let mut assembler = F32Assembler::new(expected * 4, expected)?;
    while let Some(part) = next(parts).await? {
        heard();
        match part.kind {
            Some(gradient_part::Kind::Chunk(chunk)) => assembler.push_finite(&chunk)?,
            _ => return Err(ReceiveError::Order("expected a chunk")),
        }
    }
    Ok(assembler.finish()?)
}

async fn next<T>(parts: &mut Streaming<T>) -> Result<Option<T>, ReceiveError> {
    let message = tokio::time::timeout(CHUNK_TIMEOUT, parts.message());
    message.await.map_err(|_| ReceiveError::Stalled)?.map_err(ReceiveError::Call)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn values(count: usize) -> Vec<f32> {
        (0..count).map(|i| i as f32 * 0.5 - 7.0).collect()
    }

    fn assemble(chunks: &[Chunk], announced: u64, expected: u64) -> Result<Vec<f32>, TransferError> {
        let mut assembler = F32Assembler::new(announced, expected)?;
        for chunk in chunks {
            assembler.push_finite(chunk)?;
        }
        assembler.finish()
    }

    #[test]
    fn tensors_of_all_sizes_arrive() {
        let per_chunk = CHUNK_BYTES / 4;
        for count in [0, 1, per_chunk - 1, per_chunk, per_chunk + 1, 3 * per_chunk + 5] {
            let sent: Vec<_> = chunks(f32_bytes(values(count))).collect();
            assert_eq!(sent.len(), count.div_ceil(per_chunk));
            assert_eq!(assemble(&sent, 4 * count as u64, count as u64).unwrap(), values(count));
        }
    }

    #[test]
    fn unaligned_chunks_arrive() {
        let bytes = f32_bytes(values(10));
        let mut shifted = vec![0];
        shifted.extend_from_slice(&bytes);
        let chunk = chunk(Bytes::from(shifted).slice(1..));
        assert_eq!(assemble(&[chunk], 40, 10).unwrap(), values(10));
    }

    #[test]
    fn damage_is_found() {
        let count = (CHUNK_BYTES / 4 + 5) as u64;
        let sent: Vec<_> = chunks(f32_bytes(values(count as usize))).collect();
        let announced = 4 * count;
        assert_eq!(
            assemble(&sent, announced - 4, count),
            Err(TransferError::Size { found: announced - 4, expected: announced })
        );
        assert_eq!(
            assemble(&sent[..1], announced, count),
            Err(TransferError::Size { found: CHUNK_BYTES as u64, expected: announced })
        );
        assert_eq!(assemble(&[sent[1].clone()], announced, count), Err(TransferError::Chunk(20)), "out of order");
        let twice = [sent[0].clone(), sent[0].clone()];
        assert_eq!(
            assemble(&twice, announced, count),
            Err(TransferError::Size { found: 2 * CHUNK_BYTES as u64, expected: announced })
        );

        let mut flipped = sent.clone();
        let mut data = flipped[1].data.to_vec();
        data[3] ^= 1;
        flipped[1].data = data.into();
        assert_eq!(assemble(&flipped, announced, count), Err(TransferError::Checksum(CHUNK_BYTES as u64)));
    }

    #[test]
    fn poison_is_found() {
        for value in [f32::NAN, f32::INFINITY, f32::NEG_INFINITY] {
            let mut poisoned = values(10);
            poisoned[4] = value;
            let sent: Vec<_> = chunks(f32_bytes(poisoned)).collect();
            match assemble(&sent, 40, 10) {
                Err(TransferError::NotFinite { index: 4, value: found }) => {
                    assert_eq!(found.to_bits(), value.to_bits());
                }
                other => panic!("{other:?}"),
            }
        }
    }
}
