//! The errors that end a worker or a session.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use ata_data::DataError;
use ata_learn::ModelError;
use ata_net::{ConnectError, Endpoint};
use ata_wire::{ReceiveError, WireError, WorkerName};
use tonic::{Code, Status};

/// An error that a worker cannot recover from.
#[derive(Debug, thiserror::Error)]
pub enum WorkerError {
    /// No coordinator could be reached in time.
    #[error("{cause}; gave up on {endpoint} after {} s (--retry-for). `ata doctor`, with the same flags, examines the connection", tried.as_secs())]
    Unreachable {
        /// The coordinator's address.
        endpoint: Endpoint,
        /// The error of the last attempt.
        cause: String,
        /// The time for which the worker tried.
        tried: Duration,
    },
    /// The coordinator refused this worker, and a retry would not help.
    #[error("the coordinator refused this worker: {0}")]
    Refused(String),
    /// The settings of the connection are not valid, or this worker refused the coordinator before it sent anything.
    #[error("{0}")]
    Connect(ConnectError),
    /// Another worker has the name.
    #[error("another worker named '{0}' is connected: choose another --name")]
    NameTaken(WorkerName),
    /// The coordinator violated the protocol.
    #[error("the coordinator sent something unexpected: {0}. Use the same release of ata on all machines")]
    Protocol(String),
    /// The model is unknown to the worker.
    #[error(transparent)]
    Model(#[from] ModelError),
    /// The worker's model differs from the coordinator's.
    #[error("model {0} at the coordinator: use the same build on all machines")]
    OtherModel(String),
    /// The data cannot be read.
    #[error(transparent)]
    Data(#[from] DataError),
    /// The worker's file differs from the coordinator's.
    #[error("{0} is not the coordinator's training data: {1}. Leave out --data to have it sent")]
    OtherData(PathBuf, String),
    /// The coordinator has not sent its training data in time.
    #[error("{cause}; gave up after {} s (--retry-for)", tried.as_secs())]
    NoData {
        /// The error of the last attempt.
        cause: String,
        /// The time for which the worker tried.
        tried: Duration,
    },
    /// The emulated slowness is invalid for this worker's number.
    #[error("{0}")]
    TaskTime(String),
    /// Other workers cannot reach this one.
    #[error("cannot serve other workers at {0} (--peer-listen): {1}")]
    PeerListen(SocketAddr, String),
    /// The compute thread failed.
    #[error("the device failed: {0}")]
    Device(String),
}

/// The error that ended a session.
#[derive(Debug, thiserror::Error)]
pub(crate) enum SessionError {
    /// The connection broke, or could not be made. The worker tries again.
    #[error("{0}")]
    Broken(String),
    /// The coordinator responds but lacks its training data. The worker tries again later.
    #[error("{0}")]
    NoData(String),
    #[error("the worker's name is taken")]
    NameTaken,
    #[error("{0}")]
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
    pub(crate) fn connect(error: ConnectError) -> Self {
        match error {
            ConnectError::Unreachable { .. } => Self::Broken(error.to_string()),
            _ => Self::Fatal(WorkerError::Connect(error)),
        }
    }

    pub(crate) fn call(status: &Status) -> Self {
        // The coordinator checks the worker's certificate at the end of the TLS handshake, in the first call.
        if let Some(reason) = ata_net::why_refused(status) {
            return Self::Fatal(WorkerError::Refused(reason));
        }
        let text = status.message().to_owned();
        match status.code() {
            Code::AlreadyExists => Self::NameTaken,
            Code::FailedPrecondition | Code::InvalidArgument | Code::Unimplemented | Code::PermissionDenied => {
                Self::Fatal(WorkerError::Refused(text))
            }
            _ => Self::Broken(format!("lost the coordinator: {text}")),
        }
    }

    /// Converts the error of a data download. If the coordinator lacks the data, or sends other data, a retry helps only later.
    pub(crate) fn fetch(error: ReceiveError) -> Self {
        match error {
            ReceiveError::Call(status) if matches!(status.code(), Code::DataLoss | Code::Internal) => {
                Self::NoData(status.message().to_owned())
            }
            ReceiveError::Content(cause) => Self::NoData(format!("the data arrived damaged: {cause}")),
            error => Self::receive(error),
        }
    }

    pub(crate) fn receive(error: ReceiveError) -> Self {
        match error {
            ReceiveError::Call(status) => Self::call(&status),
            ReceiveError::Order(_) => Self::protocol(error.to_string()),
            // The connection can no longer be trusted.
            ReceiveError::Stalled | ReceiveError::Content(_) => {
                Self::Broken(format!("a transfer from the coordinator failed: {error}"))
            }
        }
    }

    pub(crate) fn protocol(text: impl Into<String>) -> Self {
        Self::Fatal(WorkerError::Protocol(text.into()))
    }
}
