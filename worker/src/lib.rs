//! The worker: connects to a coordinator, computes the gradients of the tasks it is assigned, and sends them back.
//!
//! It keeps no state that correctness depends on. Model, data and settings come from the coordinator. When the connection breaks, all work
//! in progress is dropped and a new session begins.
//!
//! # Layout
//! - `config`: [`WorkerConfig`]
//! - `session`: one session, from Hello to the end of the control stream
//! - `compute`: the thread that computes gradients, measures times and, on request, emulates slowness
//! - `evaluation`: measures batches of the test data
//! - `data`: obtains the data from the disk, the cache, or the coordinator; `shard_cache`: the shards of the data, if it has any
//! - `download`: fetches a file from the coordinator
//! - `kept`: the gradients that are kept until their sum is collected; `transfer`: sends them
//! - `parameters`: the parameters that arrive from the coordinator
//! - `exchange`: exchanges of vectors in shards among workers
//! - `heartbeats`: the schedule of heartbeats
//! - `backoff`: waits between attempts

mod backoff;
mod compute;
mod config;
mod data;
mod download;
mod error;
mod evaluation;
mod exchange;
mod heartbeats;
mod kept;
mod parameters;
mod session;
mod shard_cache;
mod transfer;

pub use config::{EmulatedTimes, FIRST_CONTACT, PeerConfig, Relocate, TaskTime, WorkerConfig};
pub use error::WorkerError;
pub use shard_cache::ShardCache;

use std::future::Future;
use std::pin::{Pin, pin};
use std::time::{Duration, Instant};

use ata_net::Trust;
use ata_wire::FarewellReason;
use tokio_util::sync::CancellationToken;

use backoff::Backoff;
use error::SessionError;
use exchange::PeerServer;
use session::History;

/// The time to wait for a name that the user chose while it is taken. It may be held by an earlier session of this worker, whose process or
/// machine died silently. This is far longer than the default heartbeat timeout.
const NAME_TIMEOUT: Duration = Duration::from_secs(15);

/// The time between two attempts while waiting for a name.
const NAME_RETRY: Duration = Duration::from_millis(250);

/// The reason why a worker ended without an error of its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WorkerEnd {
    /// The run is finished.
    Finished,
    /// The run failed.
    RunFailed,
    /// A stop was requested.
    Stopped,
}

/// Works for a coordinator until its run is over, or until `stop` resolves and the worker has left. Reconnects whenever the connection breaks.
pub async fn run(mut config: WorkerConfig, stop: impl Future<Output = ()>) -> Result<WorkerEnd, WorkerError> {
    let mut stop = pin!(stop);
    let (mut backoff, mut fetching) = (Backoff::to_connect(), Backoff::to_fetch());
    let peers = PeerServer::start(config.peers.as_ref(), &config.endpoint).await?;
    let mut history = History::new(Instant::now());
    let fetch_for = config.retry_for.unwrap_or(FIRST_CONTACT);
    let mut name_taken_since: Option<Instant> = None;
    // The last logged cause, which is not logged again at every attempt.
    let mut logged: Option<String> = None;
    loop {
        if let Some(endpoint) = config.relocate.as_ref().and_then(|relocate| relocate()) {
            config.endpoint = endpoint;
        }
        let ended = serve(&config, peers.as_ref(), &mut history, stop.as_mut()).await;
        let Some(ended) = ended else { return Ok(WorkerEnd::Stopped) };
        if history.worked {
            backoff.reset();
            fetching.reset();
        }
        if !matches!(ended, Err(SessionError::NameTaken)) {
            name_taken_since = None;
        }
        let limit = config.retry_for.unwrap_or(if history.is_accepted { Duration::MAX } else { FIRST_CONTACT });
        let left = limit.saturating_sub(history.contact.elapsed());
        let (cause, wait) = match ended {
            Ok(FarewellReason::Finished) => return Ok(WorkerEnd::Finished),
            Ok(FarewellReason::Failed) => return Ok(WorkerEnd::RunFailed),
            // An expelled worker fails with an error when it tries to reconnect.
            Ok(FarewellReason::Evicted | FarewellReason::Expelled) => {
                ("the coordinator evicted this worker".into(), backoff.next().min(left))
            }
            Ok(_) => ("the coordinator stopped".into(), backoff.next().min(left)),
            Err(SessionError::Broken(cause)) => (cause, backoff.next().min(left)),
            Err(SessionError::NoData(cause)) => match fetching.next_within(fetch_for) {
                Some(wait) => (cause, wait),
                None => return Err(WorkerError::NoData { cause, tried: fetch_for }),
            },
            Err(SessionError::Fatal(error)) => return Err(error),
            Err(SessionError::NameTaken) if config.name_is_fixed => {
                if name_taken_since.get_or_insert_with(Instant::now).elapsed() >= NAME_TIMEOUT {
                    return Err(WorkerError::NameTaken(config.name));
                }
                (format!("another worker named '{}' is connected; waiting for it to leave", config.name), NAME_RETRY)
            }
            Err(SessionError::NameTaken) => {
                config.next_name()?;
                continue;
            }
        };
        if left.is_zero() && name_taken_since.is_none() {
            return Err(WorkerError::Unreachable { endpoint: config.endpoint, cause, tried: limit });
        }
        if logged.as_ref() != Some(&cause) {
            tracing::warn!("{cause}; trying again");
            logged = Some(cause);
        }
        tokio::select! {
            () = tokio::time::sleep(wait) => {}
            () = &mut stop => return Ok(WorkerEnd::Stopped),
        }
    }
}

/// Runs a session. If it does not even begin, looks for the cause.
async fn attempt(
    config: &WorkerConfig,
    peers: Option<&PeerServer>,
    history: &mut History,
    leave: &CancellationToken,
) -> Result<FarewellReason, SessionError> {
    let contact = history.contact;
    match session::run(config, peers, history, leave).await {
        // A server with TLS was examined when the connection was made. One without is known only by its first answer.
        Err(SessionError::Broken(cause))
            if history.contact == contact && matches!(config.endpoint.trust(), Trust::Open) =>
        {
            let found = config.endpoint.obstacle().await;
            Err(SessionError::Broken(found.map_or(cause, |obstacle| obstacle.to_string())))
        }
        ended => ended,
    }
}

/// Runs a session until it ends. If `stop` resolves first, it has the time of `config.drain` to deliver, and the result is `None`.
async fn serve(
    config: &WorkerConfig,
    peers: Option<&PeerServer>,
    history: &mut History,
    stop: Pin<&mut impl Future<Output = ()>>,
) -> Option<Result<FarewellReason, SessionError>> {
    let leave = CancellationToken::new();
    let mut session = pin!(attempt(config, peers, history, &leave));
    tokio::select! {
        ended = &mut session => return Some(ended),
        () = stop => leave.cancel(),
    }
    match tokio::time::timeout(config.drain, session).await {
        Ok(Ok(_)) => tracing::info!("this worker has left"),
        Ok(Err(error)) => tracing::warn!("{error}; other workers compute what was not delivered"),
        Err(_) => {
            let limit_s = config.drain.as_secs();
            tracing::warn!("not all was delivered within {limit_s} s (--drain-s); other workers compute it");
        }
    }
    None
}
