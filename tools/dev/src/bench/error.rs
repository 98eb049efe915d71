//! Errors of measurements.

use std::fmt::Display;
use std::io;

use ata_coordinator::RunError;
use ata_data::DataError;
use ata_learn::{DeviceError, ModelError};
use ata_net::{ConnectError, SecurityError};
use ata_scheduler::PolicyError;
use ata_simulator::LawError;

/// Errors of measurements.
#[derive(Debug, thiserror::Error)]
pub(crate) enum BenchError {
    /// A temporary file could not be written.
    #[error("cannot write a temporary file: {0}")]
    Write(io::Error),
    /// A device could not be opened.
    #[error(transparent)]
    Device(#[from] DeviceError),
    /// The data could not be read.
    #[error(transparent)]
    Data(#[from] DataError),
    /// A model could not be built.
    #[error(transparent)]
    Model(#[from] ModelError),
    /// A policy could not be built.
    #[error(transparent)]
    Policy(#[from] PolicyError),
    /// A time law could not be parsed.
    #[error(transparent)]
    Law(#[from] LawError),
    /// The credentials of the measured coordinator could not be created.
    #[error(transparent)]
    Security(#[from] SecurityError),
    /// The measured coordinator could not be reached.
    #[error(transparent)]
    Connect(#[from] ConnectError),
    /// The measured run failed.
    #[error(transparent)]
    Run(#[from] RunError),
    /// Another error occurred.
    #[error("{0}")]
    Other(String),
}

impl BenchError {
    pub(crate) fn other(cause: impl Display) -> Self {
        Self::Other(cause.to_string())
    }
}
