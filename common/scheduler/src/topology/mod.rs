//! Which workers exchange vectors in shards among each other.
//!
//! # Layout
//! - `pairs`: how fast vectors are on the ways between workers, and who is to blame for an exchange that fails
//! - `probing`: which workers reach each other

mod pairs;
mod probing;

pub use pairs::{Evidence, Pairs, Ways};
pub use probing::Probing;
