//! Tensors and files as chunks, each with a checksum.
//!
//! A tensor is never copied on the sending side: chunks are slices of one buffer that all receivers share. The
//! receiving side checks its bytes as they arrive, and copies them once, into their place in a reused buffer.
//!
//! # Layout
//! - here: chunks, their checks, and files, which go through generated code
//! - `checksum`: CRC-32C
//! - `pool`: buffers that are reused
//! - `decoder`: decodes the bytes of a call; `tensor`: assembles a tensor
//! - `framed`: a tensor as the bytes of a call
//! - `incoming`: parameters and gradients from the body of a call

mod checksum;
mod decoder;
mod framed;
mod incoming;
mod pool;
mod tensor;

pub use framed::FramedTensor;
pub(crate) use framed::{framed_gradient, prefixed};
pub(crate) use incoming::CallBody;
pub use incoming::{GradientUpload, ParameterStream};
pub use pool::Pool;

use bytes::Bytes;
use tokio_stream::Stream;
use tonic::{Status, Streaming};

use self::checksum::Crc32c;
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
    #[error("chunk of {0} bytes: expected 1 MiB, or less if it is the last")]
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
    Call(#[from] Status),
    /// A chunk took longer than [`CHUNK_TIMEOUT`].
    #[error("the transfer stalled")]
    Stalled,
    /// The parts are not in the order of the contract.
    #[error("unexpected part in a transfer: {0}")]
    Order(&'static str),
    /// The content is wrong.
    #[error(transparent)]
    Content(#[from] TransferError),
}

impl From<ReceiveError> for Status {
    /// The status that answers a transfer that was not received.
    fn from(error: ReceiveError) -> Self {
        match error {
            ReceiveError::Call(status) => status,
            ReceiveError::Stalled => Self::deadline_exceeded(error.to_string()),
            ReceiveError::Order(_) | ReceiveError::Content(_) => Self::invalid_argument(error.to_string()),
        }
    }
}

/// Turns a vector into bytes without copying it.
pub fn f32_bytes(values: Vec<f32>) -> Bytes {
    Pool::default().lend(values)
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
    let crc32c = checksum::crc32c(&data);
    Chunk { data, crc32c }
}

/// Checks the chunks of a transfer of known size.
#[derive(Debug)]
pub struct Assembler {
    received: u64,
    expected: u64,
    chunk: CurrentChunk,
}

/// The chunk that is being received; of no bytes if there is none.
#[derive(Debug)]
struct CurrentChunk {
    left: usize,
    /// As announced.
    announced: u32,
    /// Of what has arrived.
    crc32c: Crc32c,
}

impl Assembler {
    /// Starts a transfer that should have `expected` bytes and announces `announced`.
    pub fn new(announced: u64, expected: u64) -> Result<Self, TransferError> {
        if announced == expected {
            Ok(Self { received: 0, expected, chunk: CurrentChunk { left: 0, announced: 0, crc32c: Crc32c::new() } })
        } else {
            Err(TransferError::Size { found: announced, expected })
        }
    }

    /// Checks the next chunk.
    pub fn check(&mut self, chunk: &Chunk) -> Result<(), TransferError> {
        self.begin(chunk.crc32c, chunk.data.len())?;
        self.update(&chunk.data);
        self.end()
    }

    /// Checks the size of the next chunk, and whether the last one is complete.
    fn begin(&mut self, crc32c: u32, bytes: usize) -> Result<(), TransferError> {
        let left = self.expected - self.received;
        if bytes as u64 > left {
            return Err(TransferError::Size { found: self.received + bytes as u64, expected: self.expected });
        }
        if bytes == 0 || bytes as u64 != left.min(CHUNK_BYTES as u64) {
            return Err(TransferError::Chunk(bytes));
        }
        self.chunk = CurrentChunk { left: bytes, announced: crc32c, crc32c: Crc32c::new() };
        Ok(())
    }

    /// Takes a part of the chunk's data.
    fn update(&mut self, data: &[u8]) {
        self.chunk.crc32c.add(data);
        self.chunk.left -= data.len();
        self.received += data.len() as u64;
    }

    /// Checks the checksum, if the chunk is complete.
    fn end(&self) -> Result<(), TransferError> {
        if self.chunk.left == 0 && self.chunk.crc32c.value() != self.chunk.announced {
            let bytes = (self.received - 1) % CHUNK_BYTES as u64 + 1;
            return Err(TransferError::Checksum(self.received - bytes));
        }
        Ok(())
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

/// A file to a worker: its header, then `chunks`, which hold `bytes` bytes in all.
pub fn file_parts(bytes: u64, chunks: impl IntoIterator<Item = Chunk>) -> impl Iterator<Item = TransferPart> {
    use transfer_part::Kind;
    let header = Kind::Header(proto::TransferHeader { bytes, iteration: 0 });
    let chunks = chunks.into_iter().map(Kind::Chunk);
    std::iter::once(header).chain(chunks).map(|kind| TransferPart { kind: Some(kind) })
}

/// A gradient to the coordinator as generated code sends it: its header, then its values.
pub fn gradient_parts(
    header: proto::GradientHeader,
    values: Vec<f32>,
) -> impl Stream<Item = GradientPart> + Send + use<> {
    use gradient_part::Kind;
    let chunks = chunks(f32_bytes(values)).map(Kind::Chunk);
    let parts = std::iter::once(Kind::Header(header)).chain(chunks);
    tokio_stream::iter(parts.map(|kind| GradientPart { kind: Some(kind) }))
}

/// Receives the header of a file, and returns its size in bytes. That may take long, as only a few files are sent at a time.
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
