//! Transfers of files, which go through generated code.

use bytes::Bytes;
use tonic::Streaming;

use super::checksum::crc32c;
use super::{ReceiveError, TransferError};
use crate::limits::{CHUNK_TIMEOUT, FILE_CHUNK_BYTES};
use crate::proto::{self, Chunk, TransferPart, transfer_part};

/// Makes one chunk with its checksum.
pub fn chunk(data: Bytes) -> Chunk {
    Chunk { crc32c: crc32c(&data), data }
}

/// Checks the chunks of a file of known size.
#[derive(Debug)]
pub struct Assembler {
    received: u64,
    expected: u64,
}

impl Assembler {
    /// Starts a transfer of a file that should have `expected` bytes and is announced with `announced` bytes.
    pub fn new(announced: u64, expected: u64) -> Result<Self, TransferError> {
        if announced == expected {
            Ok(Self { received: 0, expected })
        } else {
            Err(TransferError::Size { found: announced, expected })
        }
    }

    /// Checks the next chunk.
    pub fn check(&mut self, chunk: &Chunk) -> Result<(), TransferError> {
        let (bytes, left) = (chunk.data.len(), self.expected - self.received);
        if bytes as u64 > left {
            return Err(TransferError::Size { found: self.received + bytes as u64, expected: self.expected });
        }
        if bytes == 0 || bytes as u64 != left.min(FILE_CHUNK_BYTES as u64) {
            return Err(TransferError::FileChunk(bytes));
        }
        if crc32c(&chunk.data) != chunk.crc32c {
            return Err(TransferError::Checksum(self.received / FILE_CHUNK_BYTES as u64));
        }
        self.received += bytes as u64;
        Ok(())
    }

    /// Ends the transfer, which fails if it is not complete.
    pub fn finish(self) -> Result<(), TransferError> {
        if self.received == self.expected {
            Ok(())
        } else {
            Err(TransferError::Size { found: self.received, expected: self.expected })
        }
    }
}

/// Returns the parts that send a file to a worker: its header, then `chunks`, which hold `bytes` bytes in all.
pub fn file_parts(bytes: u64, chunks: impl IntoIterator<Item = Chunk>) -> impl Iterator<Item = TransferPart> {
    use transfer_part::Kind;
    let header = Kind::Header(proto::TransferHeader { bytes });
    let chunks = chunks.into_iter().map(Kind::Chunk);
    std::iter::once(header).chain(chunks).map(|kind| TransferPart { kind: Some(kind) })
}

/// Receives the header of a file, and returns its size in bytes. This may take long, as only a few files are sent at a time.
pub async fn receive_header(parts: &mut Streaming<TransferPart>) -> Result<u64, ReceiveError> {
    match parts.message().await?.map(|part| part.kind) {
        Some(Some(transfer_part::Kind::Header(header))) => Ok(header.bytes),
        _ => Err(ReceiveError::Order("expected a header")),
    }
}

/// Receives the next chunk of a file; `None` after the last.
pub async fn receive_chunk(parts: &mut Streaming<TransferPart>) -> Result<Option<Chunk>, ReceiveError> {
    let message = tokio::time::timeout(CHUNK_TIMEOUT, parts.message());
    match message.await.map_err(|_| ReceiveError::Stalled)??.map(|part| part.kind) {
        None => Ok(None),
        Some(Some(transfer_part::Kind::Chunk(chunk))) => Ok(Some(chunk)),
        Some(_) => Err(ReceiveError::Order("expected a chunk")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn assemble(chunks: &[Chunk], announced: u64, expected: u64) -> Result<(), TransferError> {
        let mut assembler = Assembler::new(announced, expected)?;
        chunks.iter().try_for_each(|chunk| assembler.check(chunk))?;
        assembler.finish()
    }

    #[test]
    fn damage_is_found() {
        let bytes = FILE_CHUNK_BYTES as u64 + 5;
        let sent = [chunk(vec![1; FILE_CHUNK_BYTES].into()), chunk(vec![2; 5].into())];
        assert_eq!(assemble(&sent, bytes, bytes), Ok(()));
        let check = |chunks: &[Chunk], announced, error| {
            assert_eq!(assemble(chunks, announced, bytes), Err(error));
        };
        let size = |found| TransferError::Size { found, expected: bytes };
        check(&sent, bytes - 4, size(bytes - 4));
        check(&sent[..1], bytes, size(FILE_CHUNK_BYTES as u64));
        check(&sent[1..], bytes, TransferError::FileChunk(5));
        check(&[sent[0].clone(), sent[0].clone()], bytes, size(2 * FILE_CHUNK_BYTES as u64));
        check(&[&sent[..], &[Chunk::default()]].concat(), bytes, TransferError::FileChunk(0));
        for damaged in [0, 1] {
            let mut flipped = sent.clone();
            flipped[damaged].crc32c ^= 1;
            check(&flipped, bytes, TransferError::Checksum(damaged as u64));
        }
    }
}
