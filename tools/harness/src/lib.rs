//! Runs whole clusters in one process, over real gRPC on loopback, with faults. The crate is for development only.
//!
//! # Layout
//! - `cluster`: [`Cluster`], a coordinator and the workers started for it; `settings`: its settings
//! - `toy`: models whose gradients cost nothing, correct and faulty ones
//! - [`FaultProxy`] of `ata_fault_proxy`: a connection that can be slow, silent or cut
//! - `raw`: [`RawConnection`], handwritten HTTP/2
//! - `rate`: measures the speed of a run, and the memory of this process
//! - `peer`: [`Peer`], a scripted client that may violate the contract
//! - `tamper`: [`Tamper`], a proxy in front of a worker that corrupts the data for its peers
//! - `frames`: [`Frames`] of every RPC as valid examples, and their [`Reader`]
//! - `flood`: [`Flood`], mutated calls to a live coordinator

mod cluster;
mod flood;
mod frames;
mod peer;
mod rate;
mod raw;
mod settings;
mod tamper;
mod toy;

pub use ata_fault_proxy::{Condition, FaultProxy};
pub use cluster::{Cluster, Ended};
pub use flood::{Flood, paths};
pub use frames::{Frames, Reader};
pub use peer::{Peer, Session, UNIT, chunks, computed, hello, next_set};
pub use rate::{Rate, address_space_kb, resident_kb};
pub use raw::{PREFACE, RawConnection};
pub use settings::{Settings, WorkerSettings};
pub use tamper::Tamper;
pub use toy::{poisoned_toy, toy, wrong_toy};

use std::time::Duration;

/// The time that a test waits for an event that must happen soon.
const PATIENCE: Duration = Duration::from_mins(1);

/// Waits for something that must happen soon.
/// Panics if it does not happen within a minute.
pub async fn soon<T>(what: &str, happens: impl Future<Output = T>) -> T {
    tokio::time::timeout(PATIENCE, happens).await.unwrap_or_else(|_| panic!("{what} did not happen"))
}
