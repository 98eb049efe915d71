//! Why a worker or a session ends.

use std::net::SocketAddr;
use std::time::Duration;

use ata_data::DataError;
use ata_learn::ModelError;
use ata_net::{ConnectError, Endpoint};
use ata_sums::CodecError;
use ata_wire::{ReceiveError, WireError, WorkerName};
use tonic::{Code, Status};

/// Why a worker cannot continue.
#[derive(Debug, thiserror::Error)]
pub enum WorkerError {
    /// No coordinator could be reached in time.
    #[error("{cause}; gave up on {endpoint} after {} s (--retry-for). Is `ata coordinator` running there?", tried.as_secs())]
    Unreachable {
        /// The coordinator's address.
        endpoint: Endpoint,
        /// Why the last attempt failed.
        cause: String,
        /// How long the worker tried.
        tried: Duration,
    },
    /// The coordinator refused this worker, and trying again would not help.
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
    /// The worker does not know the model.
    #[error(transparent)]
    Model(#[from] ModelError),
    /// The worker's model differs from the coordinator's.
    #[error(
        "model '{model}' has {here} parameters here, but {there} at the coordinator: use the same build on all machines"
    )]
    OtherModel {
        /// The model's specification.
        model: String,
        /// Number of parameters at the worker.
        here: u64,
        /// Number of parameters at the coordinator.
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
        /// Its digest.
        found: String,
        /// The digest of the coordinator's file.
        expected: String,
    },
    /// The coordinator has not sent its training data in time.
    #[error("{cause}; gave up after {} s (--retry-for)", tried.as_secs())]
    NoData {
        /// Why the last attempt failed.
        cause: String,
        /// How long the worker tried.
        tried: Duration,
    },
    /// The emulated slowness is invalid for this worker's number.
    #[error("{0}")]
    TaskTime(String),
    /// Other workers cannot reach this one.
    #[error("cannot listen for other workers at {address} (--peer-listen): {cause}")]
    PeerListen {
        /// The address.
        address: SocketAddr,
        /// Why.
        cause: String,
    },
    /// The compute thread failed.
    #[error("the device failed: {0}")]
    Device(String),
}

/// Why a session ended.
#[derive(Debug)]
pub(crate) enum SessionError {
    /// The connection broke, or could not be made: try again.
    Broken(String),
    /// The coordinator answers but lacks its training data: try again later.
    NoData(String),
    /// The name is taken: wait for it, or try another one.
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
    pub(crate) fn connect(error: ConnectError) -> Self {
        match error {
            ConnectError::Unreachable { .. } => Self::Broken(error.to_string()),
            ConnectError::Distrusted { .. } => Self::Fatal(WorkerError::Distrusted(error)),
            ConnectError::Address(_) | ConnectError::Certificates { .. } => Self::Fatal(WorkerError::Connect(error)),
        }
    }

    /// The error of a call that failed.
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

    /// The error of a fetch of data. If the coordinator lacks the data, or sends other data, a retry is worthwhile only
    /// later. All other errors are those of any call.
    pub(crate) fn fetch(error: ReceiveError) -> Self {
        match error {
            ReceiveError::Call(status) if matches!(status.code(), Code::DataLoss | Code::Internal) => {
                Self::NoData(status.message().to_owned())
            }
            ReceiveError::Content(cause) => Self::NoData(format!("the data arrived damaged: {cause}")),
            error => Self::receive(error),
        }
    }

    /// The error of a transfer from the coordinator that was not received.
    pub(crate) fn receive(error: ReceiveError) -> Self {
        match error {
            ReceiveError::Call(status) => Self::call(&status),
            ReceiveError::Order(_) => Self::protocol(error.to_string()),
            // The connection cannot be trusted any more.
            ReceiveError::Stalled | ReceiveError::Content(_) => {
                Self::Broken(format!("a transfer from the coordinator failed: {error}"))
            }
        }
    }

    /// A set of parameters cannot be read.
    pub(crate) fn parameters(error: CodecError) -> Self {
        Self::protocol(format!("parameters that cannot be read: {error}"))
    }

    /// What happened, for a part of the session that ends without it.
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
