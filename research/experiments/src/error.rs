//! Errors of experiments.

use ata_simulator::{LawError, SettingError};

/// An error of an experiment.
#[derive(Debug, thiserror::Error)]
pub enum ExperimentError {
    /// The file cannot be read or does not parse, or a policy or a learning problem is invalid.
    #[error("{0}")]
    Invalid(String),
    /// A setting is invalid.
    #[error(transparent)]
    Setting(#[from] SettingError),
    /// A time law is invalid.
    #[error(transparent)]
    Law(#[from] LawError),
    /// A run ended early with an error, or a gradient could not be computed.
    #[error("{0}")]
    Run(String),
}
