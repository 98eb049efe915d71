//! The worker: connects to a coordinator, computes the gradients of the tasks it is given, and sends them back.
//!
//! It keeps nothing that correctness needs. Model, data and settings come from the coordinator; when the connection breaks,
//! everything under way is dropped and a new session begins.
//!
//! # Layout
//! - `config`: [`WorkerConfig`]
//! - `session`: one session, from Hello to the end of the control stream
//! - `compute`: the thread that computes, times and, if asked to, emulates slowness
//! - `data`: the training data, from disk, from the cache, or from the coordinator
//! - `transfer`: parameters in, gradients out
//! - `backoff`: how long to wait before the next attempt to connect

mod backoff;
mod compute;
mod config;
mod data;
mod error;
mod session;
mod transfer;

pub use config::{TaskTime, TaskTimes, WorkerConfig};
pub use error::WorkerError;

use std::future::Future;
use std::pin::pin;
use std::time::Instant;

use ata_wire::FarewellReason;

use backoff::Backoff;
use error::SessionError;

/// How a worker's life ended, when it ended well.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// The run is over.
    Finished,
    /// It was told to stop.
    Stopped,
}

/// Works for a coordinator until its run is over, or until `stop` resolves; connects again whenever the connection breaks.
pub async fn run(mut config: WorkerConfig, stop: impl Future<Output = ()>) -> Result<Outcome, WorkerError> {
    let mut stop = pin!(stop);
    let mut backoff = Backoff::new();
    let mut contact = Instant::now();
    // Said once, not at every attempt.
    let mut said: Option<String> = None;
    loop {
        let ended = tokio::select! {
            ended = session::run(&config, &mut contact, &mut backoff) => ended,
            () = &mut stop => return Ok(Outcome::Stopped),
        };
        let cause = match ended {
            Ok(FarewellReason::Finished) => return Ok(Outcome::Finished),
            Ok(FarewellReason::Evicted) => "the coordinator gave up on this worker".into(),
            Ok(FarewellReason::Stopping) => "the coordinator stopped".into(),
            Err(SessionError::Fatal(error)) => return Err(error),
            Err(SessionError::NameTaken) => {
                config.next_name()?;
                continue;
            }
            Err(SessionError::Broken(cause)) => cause,
        };
        let left = config.retry_for.saturating_sub(contact.elapsed());
        if left.is_zero() {
            return Err(WorkerError::Unreachable { endpoint: config.endpoint, cause, tried: config.retry_for });
        }
        if said.as_ref() != Some(&cause) {
            tracing::warn!("{cause}; trying again for {} s", left.as_secs().max(1));
            said = Some(cause);
        }
        tokio::select! {
            () = tokio::time::sleep(backoff.next().min(left)) => {}
            () = &mut stop => return Ok(Outcome::Stopped),
        }
    }
}
