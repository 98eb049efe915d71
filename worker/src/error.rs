//! The errors that end a worker or a session.

use std::net::SocketAddr;
use std::time::Duration;

use ata_data::DataError;
use ata_learn::ModelError;
use ata_net::{ConnectError, Endpoint};
use ata_sums::CodecError;
use ata_wire::{ReceiveError, WireError, WorkerName};
use tonic::{Code, Status};

/// An error that a worker cannot recover from.
#[derive(Debug, thiserror::Error)]
pub enum WorkerError {
    /// No coordinator could be reached in time.
    #[error("{cause}; gave up on {endpoint} after {} s (--retry-for). Is `ata coordinator` running there?", tried.as_secs())]
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
    /// This worker refused the coordinator before it sent anything.
    #[error("{0}")]
    Distrusted(ConnectError),
    /// The settings of the connection are not valid.
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
    #[error(
        "model '{model}' has {here} parameters here, but {there} at the coordinator: use the same build on all machines"
    )]
    OtherModel {
        /// The model's specification.
        model: String,
        /// The number of parameters at the worker.
        here: u64,
        /// The number of parameters at the coordinator.
        there: u64,
    },
    /// The data cannot be read.
    #[error(transparent)]
    Data(#[from] DataError),
    /// The data differs from the coordinator's.
    #[error(
        "{path} is not the coordinator's training data: SHA-256 {found}, expected {expected}. Leave out --data to \
         have it sent"
    )]
    OtherData {
        /// The worker's file.
        path: std::path::PathBuf,
        /// The digest of the worker's file.
        found: String,
        /// The digest of the coordinator's file.
        expected: String,
    },
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
    #[error("cannot listen for other workers at {address} (--peer-listen): {cause}")]
    PeerListen {
        /// The address to listen on.
        address: SocketAddr,
        /// The reason for the failure.
        cause: String,
    },
    /// The compute thread failed.
    #[error("the device failed: {0}")]
    Device(String),
}

/// The error that ended a session.
#[derive(Debug)]
pub(crate) enum SessionError {
    /// The connection broke, or could not be made. The worker tries again.
    Broken(String),
    /// The coordinator responds but lacks its training data. The worker tries again later.
    NoData(String),
    /// The name is taken. The worker waits for it, or tries another one.
    NameTaken,
    /// A retry would not help.
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
            ConnectError::Distrusted { .. } => Self::Fatal(WorkerError::Distrusted(error)),
            ConnectError::Address(_) | ConnectError::Certificates { .. } => Self::Fatal(WorkerError::Connect(error)),
        }
    }

    /// Converts the status of a failed call.
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

    /// Converts the error of a data download. If the coordinator lacks the data, or sends other data, a retry is
    /// worthwhile only later. All other errors are treated as in any call.
    pub(crate) fn fetch(error: ReceiveError) -> Self {
        match error {
            ReceiveError::Call(status) if matches!(status.code(), Code::DataLoss | Code::Internal) => {
                Self::NoData(status.message().to_owned())
            }
            ReceiveError::Content(cause) => Self::NoData(format!("the data arrived damaged: {cause}")),
            error => Self::receive(error),
        }
    }

    /// Converts the error of a failed transfer from the coordinator.
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

    /// Makes the error for a set of parameters that cannot be read.
    pub(crate) fn parameters(error: &CodecError) -> Self {
        Self::protocol(format!("parameters that cannot be read: {error}"))
    }

    /// Returns a description, for a failure that ends only a part of the session.
    pub(crate) fn into_text(self) -> String {
        match self {
            Self::Broken(cause) | Self::NoData(cause) => cause,
            Self::NameTaken => "the worker's name is taken".into(),
            Self::Fatal(error) => error.to_string(),
        }
    }

    pub(crate) fn protocol(text: impl Into<String>) -> Self {
        Self::Fatal(WorkerError::Protocol(text.into()))
    }
}
