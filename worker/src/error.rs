//! Why a worker ends, or a session.

use std::time::Duration;

use ata_learn::{DataError, ModelError};
use ata_wire::{ConnectError, Endpoint, ReceiveError, WireError, WorkerName};
use tonic::{Code, Status};

/// Why a worker cannot go on.
#[derive(Debug, thiserror::Error)]
pub enum WorkerError {
    /// No coordinator for too long.
    #[error("{cause}; gave up on {endpoint} after {} s (--retry-for). Is `ata coordinator` running there?", tried.as_secs())]
    Unreachable {
        /// Its address.
        endpoint: Endpoint,
        /// What the last attempt said.
        cause: String,
        /// For how long.
        tried: Duration,
    },
    /// The coordinator does not want this worker, and trying again would not help.
    #[error("the coordinator refused this worker: {0}")]
    Refused(String),
    /// The name is another worker's.
    #[error("another worker named '{0}' is connected: choose another --name")]
    NameTaken(WorkerName),
    /// What came from the coordinator makes no sense.
    #[error("the coordinator sent something unexpected: {0}. Use the same release of ata on all machines")]
    Protocol(String),
    /// The model is not known here.
    #[error(transparent)]
    Model(#[from] ModelError),
    /// The model is another one here.
    #[error(
        "model '{model}' has {here} parameters here, {there} at the coordinator: use the same build on all machines"
    )]
    OtherModel {
        /// The specification.
        model: String,
        /// Here.
        here: u64,
        /// There.
        there: u64,
    },
    /// The data cannot be used.
    #[error(transparent)]
    Data(#[from] DataError),
    /// The data is not the coordinator's.
    #[error(
        "{path} is not the coordinator's training data: SHA-256 {found}, expected {expected}. Leave out --data to \
         have it sent"
    )]
    OtherData {
        /// The file.
        path: std::path::PathBuf,
        /// Its digest.
        found: String,
        /// The coordinator's.
        expected: String,
    },
    /// The emulated slowness has no meaning for this worker.
    #[error("{0}")]
    TaskTime(String),
    /// The computing thread failed.
    #[error("the device failed: {0}")]
    Device(String),
}

/// Why a session ended.
#[derive(Debug)]
pub(crate) enum SessionError {
    /// The connection is gone, or was never made: try again.
    Broken(String),
    /// The name is taken: try another one.
    NameTaken,
    /// Trying again would not help.
    Fatal(WorkerError),
}

impl<E: Into<WorkerError>> From<E> for SessionError {
    fn from(error: E) -> Self {
        Self::Fatal(error.into())
    }
}

impl From<WireError> for WorkerError {
    fn from(error: WireError) -> Self {
        Self::Protocol(error.to_string())
    }
}

impl SessionError {
    pub(crate) fn unreachable(error: &ConnectError) -> Self {
        Self::Broken(error.to_string())
    }

    /// A call that failed.
    pub(crate) fn call(status: &Status) -> Self {
        let text = status.message().to_owned();
        match status.code() {
            Code::AlreadyExists => Self::NameTaken,
            Code::FailedPrecondition | Code::InvalidArgument | Code::Unimplemented | Code::PermissionDenied => {
                Self::Fatal(WorkerError::Refused(text))
            }
            _ => Self::Broken(format!("lost the coordinator: {text}")),
        }
    }

    /// A transfer from the coordinator that was not received.
    pub(crate) fn receive(error: ReceiveError) -> Self {
        match error {
            ReceiveError::Call(status) => Self::call(&status),
            ReceiveError::Order(_) => Self::protocol(error.to_string()),
            // The connection cannot be trusted.
            ReceiveError::Stalled | ReceiveError::Content(_) => {
                Self::Broken(format!("a transfer from the coordinator failed: {error}"))
            }
        }
    }

    pub(crate) fn protocol(text: impl Into<String>) -> Self {
        Self::Fatal(WorkerError::Protocol(text.into()))
    }
}
