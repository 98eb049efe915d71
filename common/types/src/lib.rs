//! The vocabulary that the scheduler, the wire contract, the records of a run, the coordinator and the worker share.
//!
//! Gradients, allocations and events keep these types throughout the program. They become plain
//! numbers only where they leave the process: in protobuf messages and in JSON.
//!
//! # Layout
//! - `ids`: [`WorkerId`], [`MachineId`], [`Iteration`], [`LeaseId`], [`CollectionId`], [`VectorId`]
//! - `tasks`: [`TaskRange`], [`TaskRanges`], [`Lease`], [`TaskOutcome`]
//! - `vectors`: [`WireFormat`], their representation on the wire, and the size of their chunks; [`ExchangeChoice`], the way in which
//!   workers exchange them; [`GradientSquares`], from which follows how noisy gradients are
//! - `time`: [`Time`], which can be sorted
//! - `text`: values as text, suggestions for unknown names, and limits of a problem's own metrics

mod ids;
mod tasks;
mod text;
mod time;
mod vectors;

pub use ids::{CollectionId, Iteration, LeaseId, MachineId, VectorId, WorkerId};
pub use tasks::{Lease, MAX_LEASE_TASKS, TaskOutcome, TaskRange, TaskRanges};
pub use text::{MAX_METRIC_NAME_BYTES, MAX_METRICS, NameError, did_you_mean, nearest, seconds};
pub use time::Time;
pub use vectors::{
    CHUNK_VALUES, DIFFERENCE_BITS, ExchangeChoice, GradientSquares, MAX_SHARDS, MAX_SHIFTED_BLOCKS, WireFormat,
};
