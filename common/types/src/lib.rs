//! The vocabulary that the scheduler, the wire contract, the records of a run, the coordinator and the worker share.
//!
//! Gradients, allocations and events keep these types throughout the program. They become plain
//! numbers only where they leave the process: in protobuf messages and in JSON.
//!
//! # Layout
//! - `ids`: [`WorkerId`], [`MachineId`], [`Iteration`], [`LeaseId`], [`CollectionId`], [`VectorId`]
//! - `tasks`: [`TaskRange`], [`TaskRanges`], [`TaskOutcome`]
//! - `lease`: [`Lease`]
//! - `format`: [`WireFormat`], the representation of vectors on the wire, and the size of their chunks
//! - `metrics`: limits of a problem's own metrics
//! - `exchange`: [`ExchangeChoice`], the way in which workers exchange vectors
//! - `text`: values formatted as text

mod exchange;
mod format;
mod ids;
mod lease;
mod metrics;
mod tasks;
mod text;

pub use exchange::{ExchangeChoice, ExchangeChoiceError, MAX_SHARDS};
pub use format::{CHUNK_VALUES, MAX_SHIFTED_BLOCKS, WireFormat, WireFormatError};
pub use ids::{CollectionId, Iteration, LeaseId, MachineId, VectorId, WorkerId};
pub use lease::{Lease, MAX_LEASE_TASKS};
pub use metrics::{MAX_METRIC_NAME_BYTES, MAX_METRICS};
pub use tasks::{TaskOutcome, TaskRange, TaskRanges};
pub use text::seconds;
