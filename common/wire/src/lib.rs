//! The protocol between coordinator and workers.
//!
//! The contract is `proto/ata/v1/coordinator.proto`; this crate turns it into code, checks every incoming message, and
//! moves vectors in chunks.
//!
//! # Layout
//! - [`proto`]: generated code
//! - `message`: domain types, valid by construction, and their conversions
//! - `transfer`: vectors and files in checked chunks
//! - `bulk`: the calls that carry vectors
//! - [`limits`]: every limit, with the reason for its value
//! - `memory`: the memory that this process may use
//! - `net`: both ends of a connection, with those limits set
//! - `seconds`: converts any number of seconds to a duration
//! - `security`: TLS, join tokens, secrets

mod bulk;
pub mod limits;
mod memory;
mod message;
mod net;
mod seconds;
mod security;
mod transfer;

/// Code generated from `proto/ata/v1/coordinator.proto`, where it is documented.
#[expect(missing_docs, clippy::pedantic, clippy::large_enum_variant, reason = "generated")]
pub mod proto {
    tonic::include_proto!("ata.v1");
}

pub use bulk::{Reader, TransferRouter, Transfers};
pub use memory::memory_bytes;
pub use message::{
    Assignment, BatchFigures, ComputedLease, DataSpec, ExchangeReport, FarewellReason, FromWorker, GradientHeader,
    Hello, LeaseTimes, MeasuredBatch, MemberReport, PairFault, PeerAddress, ProbeIntake, ProbeSummary, Receipt,
    RunSpec, SessionToken, SetHeader, ShardMember, Shards, Stripe, ToWorker, VectorRequest, Welcome, WireError,
    WorkerName, truncated, units_crc32c,
};
pub use net::{
    AcceptedConnection, ConnectError, Connection, Endpoint, Entrance, Peer, ProbeResult, Protocol, Stay, Transport,
    connect, files_for, padding, raise_file_limit, serve,
};
pub use seconds::duration;
pub use security::{
    AuthorizedChannel, Credentials, JoinToken, KeyPin, Role, Secret, Secrets, Security, SecurityError, ServerTls,
    TlsFiles, Trust, Validity, check_key, http_client, validity, why_refused,
};
pub use transfer::{
    Assembler, FramedSet, GradientUpload, ParameterPart, ParameterStream, Pool, ReceiveError, SetProducer,
    TransferError, chunk, f32_bytes, file_parts, gradient_parts, receive_chunk, receive_header,
};

/// The protocol version; a worker that speaks another one is refused.
pub const PROTOCOL: u32 = 11;
