//! Checks of a machine: what would stop a run on it, or a worker on the way to its coordinator, and the fix.
//!
//! # Layout
//! - `finding`: [`Finding`], the outcome of a check
//! - [`machine`]: the files that describe a machine
//! - [`devices`]: adapters and drivers; [`gradient`]: whether a device computes what the CPU does
//! - [`capacity`]: open files and memory; [`disk`]; [`ports`]; [`clock`]; [`certificates`]
//! - [`coordinator`]: whether it can be reached, and lets this machine in; [`link`]: how fast the connection is

pub mod capacity;
pub mod certificates;
pub mod clock;
pub mod coordinator;
pub mod devices;
pub mod disk;
mod finding;
pub mod gradient;
pub mod link;
pub mod machine;
pub mod ports;

pub use finding::{Finding, Status};
