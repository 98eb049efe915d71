//! The protocol between the coordinator and its workers, on the connections of `ata-net`.
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
//! - `connection`: [`Connection`], the calls of a worker, and the measurement of its link to a coordinator

mod bulk;
mod connection;
pub mod limits;
mod message;
mod transfer;

/// Code generated from `proto/ata/v1/coordinator.proto`, where it is documented.
#[expect(missing_docs, clippy::pedantic, clippy::large_enum_variant, reason = "generated")]
pub mod proto {
    tonic::include_proto!("ata.v1");
}

pub use bulk::{Reader, TransferRouter, Transfers};
pub use connection::{Connection, ProbeResult, connect, padding};
pub use limits::duration;
pub use message::{
    Assignment, BatchFigures, ComputedLease, DataSpec, ExchangeReport, FarewellReason, FromWorker, GradientHeader,
    Hello, LeaseTimes, MeasuredBatch, MemberReport, PairFault, PeerAddress, ProbeIntake, ProbeSummary, ProcessUsage,
    Receipt, RunSpec, SessionToken, SetHeader, ShardMember, Shards, Stripe, ToWorker, VectorRequest, Welcome,
    WireError, WorkerName, truncated, units_crc32c,
};
pub use transfer::{
    FileReceiver, FramedSet, GradientUpload, ParameterPart, ParameterStream, ReceiveError, SetProducer, TransferError,
    chunk, gradient_parts,
};

/// The protocol version, which the contract names. A worker with another version is refused.
pub const PROTOCOL: u32 = proto::Protocol::Current as u32;
