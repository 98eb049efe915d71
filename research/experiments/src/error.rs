//! Errors of experiments.

use std::path::PathBuf;

use ata_simulator::{LawError, SettingError};

/// An error of an experiment.
#[derive(Debug, thiserror::Error)]
pub enum ExperimentError {
    /// The file cannot be read.
    #[error("experiment {path}: {cause}. Built-in experiments: {names}", names = super::builtin::names())]
    Unreadable {
        /// The file.
        path: PathBuf,
        /// The error of the system.
        cause: std::io::Error,
    },
    /// The file does not parse.
    #[error("experiment {name}, line {line}: {reason}")]
    Syntax {
        /// The file, or the built-in experiment.
        name: String,
        /// The line, 1-based.
        line: usize,
        /// The reason.
        reason: String,
    },
    /// A setting is invalid.
    #[error(transparent)]
    Setting(#[from] SettingError),
    /// A time law is invalid.
    #[error(transparent)]
    Law(#[from] LawError),
    /// A policy is invalid.
    #[error("policy {policy}, {workers} workers: {cause}")]
    Policy {
        /// The policy, as written.
        policy: String,
        /// The number of workers, n.
        workers: u32,
        /// The reason.
        cause: ata_scheduler::PolicyError,
    },
    /// A learning problem is invalid.
    #[error(transparent)]
    Problem(#[from] crate::ProblemError),
    /// A gradient could not be computed.
    #[error("learning failed: {reason}")]
    Learning {
        /// The cause.
        reason: String,
    },
    /// A run ended early with an error.
    #[error("policy {policy}, law {law}, {workers} workers, seed {seed}: {cause}")]
    Run {
        /// The policy, as written.
        policy: String,
        /// The law, as written.
        law: String,
        /// The number of workers, n.
        workers: u32,
        /// The seed of the run.
        seed: u64,
        /// The cause.
        cause: ata_simulator::SimulationError,
    },
    /// Figures cannot be made.
    #[error(transparent)]
    Figure(#[from] ata_figures::FigureError),
}
