//! The coordinator: a thin tokio driver of `ata_scheduler::Engine` that works with real workers over gRPC.
//!
//! One task owns the engine and all mutable state; the others send it commands. No state is shared behind a lock.
//!
//! ```text
//! worker ⇄ service ─ Command ─▶ Driver ⇄ Engine
//!                                │ ▲ └─ RunEvent ─▶ journal thread, watchers
//!                          Work  ▼ │ TrainingEvent
//!                               training thread ─ copies of the state ─▶ saver thread ─▶ checkpoints, models
//!                               (sums, optimizer)                     evaluation threads, batches for workers
//! ```
//!
//! # Layout
//! - `config`: [`CoordinatorConfig`], the validated configuration of a run
//! - `driver`: the task that owns the engine, with its parts
//! - `service`: the gRPC service, which checks requests and passes them to the driver
//! - `forgiveness`: requests of the operator to lift what counts against workers
//! - `links`: measures the workers' links from the vectors that arrive
//! - `probe`: answers the probes of clients that measure their connection
//! - `parameters`, `send_file`: the parameters and the data that are sent to workers
//! - `training`: the thread that sums gradients and takes optimizer steps
//! - `checkpoint`: the content of checkpoints, their store, and the thread that writes them
//! - `report`: [`RunReport`], the result of a run

mod checkpoint;
mod config;
mod driver;
mod forgiveness;
mod links;
mod parameters;
mod probe;
mod reduction;
mod report;
mod send_file;
mod service;
mod training;

pub use checkpoint::{
    Cadence, Checkpoint, Damage, FolderStore, FoundCheckpoint, Progress, Retention, Store, go_on_from, newest,
    newest_settings, open_store,
};
pub use config::{
    CheckpointConfig, CoordinatorConfig, EvaluationConfig, OwnEvaluation, PolicyConfig, ProblemConfig, RunConfig,
    SplitData, Start, TrainingSetup, TransferLimits, WorkersConfig,
};
pub use report::{RunError, RunReport, StopReason};

use std::future::Future;
use std::time::Duration;

use ata_net::{SendAhead, serve};
use ata_record::RunState;
use ata_wire::TransferRouter;
use ata_wire::limits::REQUEST_BYTES;
use ata_wire::proto::coordinator_server::CoordinatorServer;
use tokio::net::TcpListener;
use tokio::sync::{mpsc, oneshot, watch};

/// The number of commands that may wait for the driver. It handles each in microseconds, and a full queue slows the senders down.
const QUEUED_COMMANDS: usize = 1024;

/// The time within which connections must close once the run is over.
const GOODBYE_TIMEOUT: Duration = Duration::from_secs(2);

/// Runs a coordinator on `listener` until the last iteration, or until `stop` resolves.
///
/// `state` is kept up to date for watchers. `stop` is first polled when workers are served. An error means that the run could not begin.
pub async fn run(
    config: CoordinatorConfig,
    listener: TcpListener,
    state: watch::Sender<RunState>,
    stop: impl Future<Output = ()>,
) -> Result<RunReport, RunError> {
    let (commands, received) = mpsc::channel(QUEUED_COMMANDS);
    let service = service::Service::new(commands.clone(), &config);
    let (security, memory_bytes) = (config.security.clone(), config.workers.transfers.memory_bytes);
    let requests = forgiveness::watch(config.run.folder.clone(), commands.clone(), state.subscribe());
    let driver = driver::Driver::new(config, &commands, state)?;
    tokio::spawn(requests);
    let others = CoordinatorServer::new(service.clone()).max_decoding_message_size(REQUEST_BYTES);
    let (goodbye, over) = oneshot::channel::<()>();
    let served = TransferRouter::new(service, others);
    // An error means that the sender was dropped. Either way, the run is over.
    let over = async { over.await.unwrap_or(()) };
    let server = tokio::spawn(serve(listener, security, SendAhead::up_to(memory_bytes), served, over));

    let report = driver.run(received, stop).await;

    drop(goodbye);
    let abort = server.abort_handle();
    if tokio::time::timeout(GOODBYE_TIMEOUT, server).await.is_err() {
        abort.abort();
    }
    Ok(report)
}
