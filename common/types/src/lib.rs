//! The words that the scheduler, the wire contract, the records of a run, the coordinator and the worker share.
//!
//! A gradient, an allocation or an event keeps these types from one end of the program to the other. They become plain
//! numbers only where they leave the process: in protobuf messages and in JSON.
//!
//! # Layout
//! - `ids`: [`WorkerId`], [`MachineId`], [`Iteration`], [`LeaseId`]
//! - `tasks`: [`TaskRange`], [`TaskOutcome`]
//! - `lease`: [`Lease`]
//! - `text`: values as text

mod ids;
mod lease;
mod tasks;
mod text;

pub use ids::{Iteration, LeaseId, MachineId, WorkerId};
pub use lease::{Lease, MAX_LEASE_TASKS};
pub use tasks::{TaskOutcome, TaskRange};
pub use text::seconds;
