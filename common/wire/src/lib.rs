//! The protocol between coordinator and workers.
//!
//! The contract is `proto/ata/v1/coordinator.proto`; this crate turns it into code, checks every incoming message, and
//! moves tensors in chunks.
//!
//! # Layout
//! - [`proto`]: generated code
//! - `message`: domain types, valid by construction, and their conversions
//! - `transfer`: tensors and files as checked chunks
//! - `bulk`: the calls that carry tensors
//! - [`limits`]: every limit, with the reason for its value
//! - `memory`: how much memory there is
//! - `net`: both ends of a connection, with those limits set
//! - `seconds`: a number of seconds as a time, whatever number it is
//! - `security`: TLS, join tokens, secrets
//! - `spans`: spans of an iteration on several machines, as children of one another

mod bulk;
pub mod limits;
mod memory;
mod message;
mod net;
mod seconds;
mod security;
mod spans;
mod transfer;

/// Code generated from `proto/ata/v1/coordinator.proto`, where it is documented.
#[expect(missing_docs, clippy::pedantic, reason = "generated")]
pub mod proto {
    tonic::include_proto!("ata.v1");
}

pub use bulk::{Reader, Served, Transfers};
pub use memory::memory_bytes;
pub use message::{
    Assignment, DataSpec, FarewellReason, FromWorker, GradientHeader, Hello, LeaseTimes, ProbeIntake, ProbeSummary,
    Receipt, RunSpec, SessionToken, ToWorker, TraceContext, Welcome, WireError, WorkerName, truncated,
};
pub use net::{
    Arrived, ConnectError, Connection, Endpoint, Entrance, Peer, Probed, Protocol, Stay, Transport, connect, files_for,
    padding, raise_file_limit, serve,
};
pub use seconds::duration;
pub use security::{
    Authorized, Credentials, JoinToken, KeyPin, Role, Secret, Secrets, Security, SecurityError, ServerTls, TlsFiles,
    Trust, Validity, check_key, http_client, validity, why_refused,
};
pub use spans::{SpanLinks, TRACE_TARGET};
pub use transfer::{
    Assembler, FramedTensor, GradientUpload, ParameterStream, Pool, ReceiveError, TransferError, chunk, chunks,
    f32_bytes, file_parts, gradient_parts, receive_chunk, receive_header,
};

/// The protocol version; a worker that speaks another one is refused.
pub const PROTOCOL: u32 = 5;
