//! Views of a run for its users: dashboard, report, explanations, metrics.
//!
//! Everything here is derived from a run's state ([`ata_record::RunState`]) and events; nothing calls the coordinator.
//!
//! # Layout
//! - `snapshot`: [`Snapshot`], the view of a run that all outputs use
//! - `efficiency`: what a run achieves, compared with its fastest worker alone, and what it would cost without some workers
//! - `explain`: the reasons for each worker's tasks
//! - `task_time`: the mean time of a worker's tasks
//! - `follow`: reads the state of a run from its journal
//! - `page`: the HTML page, assembled from `assets`
//! - `server`: the HTTP server, and the changes that viewers receive; `access`: access control; `client`: a client of the server
//! - `metrics`: [`Metrics`], for Prometheus
//! - `tensorboard`: [`TensorBoard`], which writes event files

mod access;
mod client;
mod efficiency;
mod explain;
mod follow;
mod metrics;
mod page;
mod server;
mod snapshot;
mod task_time;
mod tensorboard;
#[cfg(test)]
mod tests;

pub use access::Access;
pub use client::{Client, ClientError};
pub use efficiency::{Efficiency, ReleasedWorkers, contributions, releases};
pub use explain::{Explanation, WorkerExplanation, explain};
pub use follow::{follow, read_state, read_state_at};
pub use metrics::Metrics;
pub use page::report;
pub use server::{App, DashboardSource, serve};
pub use snapshot::{PolicyCost, Snapshot, SnapshotPhase, WorkerActivity, WorkerSnapshot};
pub use tensorboard::TensorBoard;
