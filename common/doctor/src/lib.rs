//! Checks of a machine that find what would stop a run, or keep a worker from its coordinator, and suggest a fix.
//!
//! # Layout
//! - `finding`: [`Finding`], the outcome of a check
//! - [`machine`]: the files that describe a machine
//! - [`devices`]: adapters and drivers; [`gradient`]: compares a device with the CPU
//! - [`capacity`]: open files and memory; [`disk`]; [`ports`]; [`certificates`]
//! - [`coordinator`]: the connection to a coordinator, and its answer; `link`: the speed of the connection

pub mod capacity;
pub mod certificates;
pub mod coordinator;
pub mod devices;
pub mod disk;
mod finding;
pub mod gradient;
mod link;
pub mod machine;
pub mod ports;

pub use finding::{Finding, Status};
