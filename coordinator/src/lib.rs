//! The coordinator: a thin tokio driver of `ata_scheduler::Engine`, with real workers over gRPC.
//!
//! One task owns the engine and all mutable state; the others send it commands. No state is shared behind a lock.
//!
//! ```text
//! worker ⇄ service ─ Command ─▶ Owner ⇄ Engine
//!                                │ ▲ └─ RunEvent ─▶ journal thread, watchers
//!                          Work  ▼ │ Stepped
//!                               training thread ─ copies of the state ─▶ saver thread ─▶ checkpoints, models
//!                               (reduction, optimizer)                evaluation thread
//! ```
//!
//! # Layout
//! - `config`: [`CoordinatorConfig`], everything a run needs, already validated
//! - `service`: the gRPC service, which checks requests and passes them on
//! - `owner`: the task that owns the engine: commands in, effects out
//! - `probe`: answers whoever measures the way to the coordinator
//! - `session`, `sessions`: the connected workers; `names`: the number of each worker
//! - `past_leases`: which leases a session had; `uploads`: room for the gradients that arrive
//! - `parameters`: the parameters that are sent; `send_file`: the training data
//! - `training`: the thread that sums gradients and takes optimizer steps; `evaluation`: the one that evaluates
//! - `checkpoint`: what is saved, when, where, and how it is read back; the thread that writes it
//! - `publisher`: sends events to the journal and to watchers
//! - `trace`: the spans of an iteration
//! - `clock`: the run's time, which stops while the process is stopped
//! - `report`: [`RunReport`], the result of a run

mod checkpoint;
mod clock;
mod config;
mod evaluation;
mod names;
mod owner;
mod parameters;
mod past_leases;
mod probe;
mod publisher;
mod refusals;
mod report;
mod send_file;
mod service;
mod session;
mod sessions;
mod trace;
mod training;
mod uploads;

#[cfg(feature = "object-store")]
pub use checkpoint::ObjectStore;
pub use checkpoint::{Cadence, Checkpoint, Damage, FolderStore, Found, PlaceError, Progress, Retention, Store};
pub use checkpoint::{go_on_from, is_url, newest, newest_settings, open_store};
pub use config::{CheckpointConfig, CoordinatorConfig, Start, TrainingData, TransferLimits};
pub use report::{RunError, RunReport, StopReason};

use std::future::Future;
use std::time::Duration;

use ata_record::RunState;
use tokio::net::TcpListener;
use tokio::sync::{mpsc, oneshot, watch};

use ata_wire::limits::REQUEST_BYTES;
use ata_wire::proto::coordinator_server::CoordinatorServer;
use ata_wire::{Pool, Served};

/// Commands that may wait for the owner. It answers each in microseconds; a full queue slows the senders down.
const QUEUED_COMMANDS: usize = 1024;

/// Time that connections have to close once the run is over.
const GOODBYE_TIMEOUT: Duration = Duration::from_secs(2);

/// Runs a coordinator on `listener` until the last iteration, or until `stop` resolves.
///
/// `state` is kept up to date for watchers. An error means that the run could not begin.
pub async fn run(
    config: CoordinatorConfig,
    listener: TcpListener,
    state: watch::Sender<RunState>,
    stop: impl Future<Output = ()>,
) -> Result<RunReport, RunError> {
    let (commands, received) = mpsc::channel(QUEUED_COMMANDS);
    let pool = Pool::default();
    let service = service::Service::new(commands.clone(), pool.clone(), &config);
    let (security, window_bytes) = (config.security.clone(), config.transfers.memory_bytes);
    let owner = owner::Owner::new(config, &commands, pool, state)?;
    let others = CoordinatorServer::new(service.clone()).max_decoding_message_size(REQUEST_BYTES);
    let (goodbye, over) = oneshot::channel::<()>();
    let served = Served::new(service, others);
    // An error means that the sender was dropped; either way the run is over.
    let over = async { over.await.unwrap_or(()) };
    let server = tokio::spawn(ata_wire::serve(listener, security, window_bytes, served, over));

    let report = owner.run(received, stop).await;

    drop(goodbye);
    let abort = server.abort_handle();
    if tokio::time::timeout(GOODBYE_TIMEOUT, server).await.is_err() {
        abort.abort();
    }
    Ok(report)
}
