//! The coordinator: a thin tokio driver of `ata_scheduler::Engine`, with real workers over gRPC.
//!
//! One task owns the engine and everything that changes; the others send it commands. Nothing is shared behind a lock.
//!
//! ```text
//! worker ⇄ service ─ Command ─▶ Owner ⇄ Engine
//!                                 │ ▲
//!                          Work   ▼ │  Command::Stepped
//!                               training thread (reduction, optimizer, evaluation)
//! ```
//!
//! # Layout
//! - `config`: [`CoordinatorConfig`], everything a run needs, already checked
//! - `service`: the gRPC service; it checks what comes in and passes it on
//! - `owner`: the task that owns the engine: commands in, effects out
//! - `membership`: sessions, names, numbers
//! - `training`: the thread that sums gradients, takes optimizer steps and evaluates
//! - `recorder`: `events.jsonl` and `metrics.csv`
//! - `report`: [`RunReport`], what a run came to; [`Progress`], how far it is

mod config;
mod membership;
mod owner;
mod recorder;
mod report;
mod service;
mod training;

pub use config::{CoordinatorConfig, TrainingData};
pub use report::{Progress, ProgressPhase, RunError, RunReport, StopReason};

use std::future::Future;
use std::time::Duration;

use tokio::net::TcpListener;
use tokio::sync::{mpsc, oneshot, watch};

use ata_wire::limits::{MAX_LEASE_TASKS, MESSAGE_BYTES};
use ata_wire::proto::coordinator_server::CoordinatorServer;

const _: () = assert!(ata_scheduler::MAX_LEASE_TASKS <= MAX_LEASE_TASKS, "workers must take every lease");

/// Commands waiting for the owner. It answers each in microseconds; a full queue slows the senders down.
const QUEUED_COMMANDS: usize = 1024;

/// Time that connections have to end once the run is over.
const GOODBYE_TIMEOUT: Duration = Duration::from_secs(2);

/// Runs a coordinator on `listener` until the last iteration, or until `stop` resolves.
///
/// `progress` is kept up to date for whoever displays it.
pub async fn run(
    config: CoordinatorConfig,
    listener: TcpListener,
    progress: watch::Sender<Progress>,
    stop: impl Future<Output = ()>,
) -> Result<RunReport, RunError> {
    let (commands, received) = mpsc::channel(QUEUED_COMMANDS);
    let service = service::Service::new(commands.clone(), config.model.parameter_count() as u64);
    let service = CoordinatorServer::new(service).max_decoding_message_size(MESSAGE_BYTES);
    let (goodbye, over) = oneshot::channel::<()>();
    let server = ata_wire::server_builder().serve_with_incoming_shutdown(
        service,
        ata_wire::incoming(listener),
        // Either way the run is over.
        async { over.await.unwrap_or(()) },
    );
    let server = tokio::spawn(server);

    let report = owner::Owner::new(config, commands, progress)?.run(received, stop).await;

    drop(goodbye);
    let abort = server.abort_handle();
    if tokio::time::timeout(GOODBYE_TIMEOUT, server).await.is_err() {
        abort.abort();
    }
    report
}
