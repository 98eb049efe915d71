//! Development only: whole clusters in one process, over real gRPC on loopback, with faults.
//!
//! # Layout
//! - `cluster`: [`Cluster`], a coordinator and the workers started for it
//! - `toy`: models whose gradients cost nothing, correct and faulty ones
//! - [`Link`] of `ata_link`: a connection that can be slow, silent or cut
//! - `peer`: [`Peer`], a scripted client that may violate the contract

mod cluster;
mod peer;
mod toy;

pub use ata_link::{Condition, Link};
pub use cluster::{Cluster, Ended, Settings, WorkerSettings};
pub use peer::{Peer, Session};
pub use toy::{poisoned_toy, toy};

use std::time::Duration;

/// Waits for something that must happen soon.
///
/// # Panics
/// If it does not happen within a minute.
pub async fn soon<T>(what: &str, happens: impl Future<Output = T>) -> T {
    tokio::time::timeout(Duration::from_mins(1), happens).await.unwrap_or_else(|_| panic!("{what} did not happen"))
}
