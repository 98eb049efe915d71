//! Development only: whole clusters in one process, over real gRPC on loopback, with faults.
//!
//! # Layout
//! - `cluster`: [`Cluster`], a coordinator and the workers started for it; `settings`: what it runs
//! - `toy`: models whose gradients cost nothing, correct and faulty ones
//! - [`FaultProxy`] of `ata_fault_proxy`: a connection that can be slow, silent or cut
//! - `memory`: what this process uses
//! - `raw`: [`RawConnection`], HTTP/2 by hand
//! - `rate`: how fast a run goes
//! - `peer`: [`Peer`], a scripted client that may violate the contract
//! - `broken`: machines that break whatever they are given
//! - `tamper`: [`Tamper`], which passes on what a worker's peers send and get, and spoils it
//! - `frames`: [`Frames`] of every RPC as valid examples, and a [`Reader`] of what arrives
//! - `flood`: [`Flood`], mutated calls to a live coordinator

mod broken;
mod cluster;
mod flood;
mod folder;
mod frames;
mod memory;
mod peer;
mod rate;
mod raw;
mod settings;
mod tamper;
mod toy;

pub use ata_fault_proxy::{Condition, FaultProxy};
pub use broken::{Breaks, come_back_again, fail_all};
pub use cluster::{Cluster, Ended};
pub use flood::{Answers, Flood};
pub use frames::{Frames, Reader};
pub use memory::{address_space_kb, cpu_time, resident_kb};
pub use peer::{Peer, Session, UNIT, chunks, computed, next_set};
pub use rate::Rate;
pub use raw::{PREFACE, RawConnection};
pub use settings::{Settings, WorkerSettings};
pub use tamper::Tamper;
pub use toy::{poisoned_toy, toy, wrong_toy};

use std::time::Duration;

/// How long a test waits for what must happen soon.
const PATIENCE: Duration = Duration::from_mins(1);

/// Waits for something that must happen soon.
///
/// # Panics
/// If it does not happen within a minute.
pub async fn soon<T>(what: &str, happens: impl Future<Output = T>) -> T {
    tokio::time::timeout(PATIENCE, happens).await.unwrap_or_else(|_| panic!("{what} did not happen"))
}
