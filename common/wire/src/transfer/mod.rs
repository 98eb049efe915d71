//! Vectors and files as chunks, each with a checksum: CRC-32C (RFC 3720, appendix B.4).
//!
//! The sending side never copies a vector: the data of a chunk is one buffer that all receivers share. The receiving side checks
//! the data as it arrives, and copies it only if it comes in several pieces.
//!
//! # Layout
//! - here: the errors of a transfer
//! - `file`: files, which go through generated code
//! - `framed`: messages, chunks and gradients as the bytes of a call, and back
//! - `set`: a set of parameters, which is sent while it is produced
//! - `body`: the body of a call, and how its chunks are received
//! - `parameters`, `gradient`: receive parameters and gradients from the body of a call

mod body;
mod file;
mod framed;
mod gradient;
mod parameters;
mod set;

pub(crate) use body::CallBody;
pub use file::{FileReceiver, chunk};
pub use framed::gradient_parts;
pub(crate) use framed::{framed_gradient, prefixed};
pub use gradient::GradientUpload;
pub use parameters::{ParameterPart, ParameterStream};
pub(crate) use set::SetReader;
pub use set::{FramedSet, SetProducer};

use tonic::Status;

use crate::limits::MAX_CHUNK_BYTES;

#[cfg(target_endian = "big")]
compile_error!("vectors go over the wire as little-endian numbers without conversion");

/// An error in the content of a transfer.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum TransferError {
    /// A file does not have the expected size.
    #[error("transfer of {found} bytes: expected {expected}")]
    Size {
        /// Bytes announced or received.
        found: u64,
        /// Bytes expected.
        expected: u64,
    },
    /// A chunk of a file has the wrong size.
    #[error("chunk of {0} bytes: expected 1 MiB, or less if it is the last")]
    FileChunk(usize),
    /// A chunk of a vector has an impossible size.
    #[error("chunk of {0} bytes: expected 1 to {MAX_CHUNK_BYTES}")]
    Chunk(usize),
    /// A chunk does not match its checksum.
    #[error("wrong checksum in chunk {0} of the transfer")]
    Checksum(u64),
}

/// The reason why a transfer was not received.
#[derive(Debug, thiserror::Error)]
pub enum ReceiveError {
    /// The call failed.
    #[error("{}", .0.message())]
    Call(#[from] Status),
    /// A chunk took longer than [`CHUNK_TIMEOUT`](crate::limits::CHUNK_TIMEOUT).
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
    fn from(error: ReceiveError) -> Self {
        match error {
            ReceiveError::Call(status) => status,
            ReceiveError::Stalled => Self::deadline_exceeded(error.to_string()),
            ReceiveError::Order(_) | ReceiveError::Content(_) => Self::invalid_argument(error.to_string()),
        }
    }
}
