//! The protocol between coordinator and workers.
//!
//! The contract is `proto/ata/v1/coordinator.proto`; this crate turns it into code, checks every incoming message, and
//! moves tensors in chunks.
//!
//! # Layout
//! - [`proto`]: generated code
//! - `message`: domain types, valid by construction, and their conversions
//! - `transfer`: tensors and files as checked chunks
//! - [`limits`]: every limit, with the reason for its value
//! - `net`: both ends of a connection, with those limits set

pub mod limits;
mod message;
mod net;
mod transfer;

/// Code generated from `proto/ata/v1/coordinator.proto`, where it is documented.
#[expect(missing_docs, clippy::pedantic, reason = "generated")]
pub mod proto {
    tonic::include_proto!("ata.v1");
}

pub use message::{
    Assignment, DataSpec, FarewellReason, FromWorker, GradientHeader, Hello, Receipt, RunSpec, SessionToken, ToWorker,
    Welcome, WireError, WorkerName, truncated,
};
pub use net::{ConnectError, Connection, Endpoint, Guarded, connect, incoming, raise_file_limit, server_builder};
pub use transfer::{
    Assembler, ReceiveError, TransferError, chunk, chunks, f32_bytes, gradient_parts, receive_chunk, receive_gradient,
    receive_gradient_header, receive_header, receive_tensor, transfer_parts,
};

/// The protocol version; a worker that speaks another one is refused.
pub const PROTOCOL: u32 = 3;
