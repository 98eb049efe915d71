//! Why a measurement failed.

use std::fmt::Display;
use std::io;

use ata_coordinator::RunError;
use ata_data::DataError;
use ata_learn::{DeviceError, ModelError};
use ata_net::{ConnectError, SecurityError};
use ata_scheduler::PolicyError;
use ata_simulator::LawError;

/// Why a measurement failed.
#[derive(Debug, thiserror::Error)]
pub enum BenchError {
    /// A temporary file cannot be written.
    #[error("cannot write a temporary file: {0}")]
    Write(io::Error),
    /// A device cannot be opened.
    #[error(transparent)]
    Device(#[from] DeviceError),
    /// The data cannot be read.
    #[error(transparent)]
    Data(#[from] DataError),
    /// A model cannot be built.
    #[error(transparent)]
    Model(#[from] ModelError),
    /// A policy cannot be built.
    #[error(transparent)]
    Policy(#[from] PolicyError),
    /// A time law cannot be read.
    #[error(transparent)]
    Law(#[from] LawError),
    /// The credentials of the measured coordinator cannot be made.
    #[error(transparent)]
    Security(#[from] SecurityError),
    /// The measured coordinator cannot be reached.
    #[error(transparent)]
    Connect(#[from] ConnectError),
    /// The measured run failed.
    #[error(transparent)]
    Run(#[from] RunError),
    /// Anything else went wrong.
    #[error("{0}")]
    Other(String),
}

impl BenchError {
    pub(crate) fn other(cause: impl Display) -> Self {
        Self::Other(cause.to_string())
    }
}
