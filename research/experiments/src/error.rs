//! What may be wrong with an experiment.

use std::path::PathBuf;

use ata_simulator::{LawError, SettingError};

/// What is wrong with an experiment.
#[derive(Debug, thiserror::Error)]
pub enum ExperimentError {
    /// The file cannot be read.
    #[error("experiment {path}: {cause}. Built-in experiments: {names}", names = super::builtin::names())]
    Unreadable {
        /// The file.
        path: PathBuf,
        /// Why not.
        cause: std::io::Error,
    },
    /// The file does not parse.
    #[error("experiment {name}, line {line}: {reason}")]
    Syntax {
        /// The file, or the built-in experiment.
        name: String,
        /// The line, 1-based.
        line: usize,
        /// What is wrong there.
        reason: String,
    },
    /// A setting makes no sense.
    #[error(transparent)]
    Setting(#[from] SettingError),
    /// A time law is wrong.
    #[error(transparent)]
    Law(#[from] LawError),
    /// A policy is wrong.
    #[error("policy {policy}, {workers} workers: {cause}")]
    Policy {
        /// The policy, as written.
        policy: String,
        /// The number of workers, n.
        workers: u32,
        /// What is wrong.
        cause: ata_scheduler::PolicyError,
    },
    /// A learning problem is wrong.
    #[error(transparent)]
    Problem(#[from] crate::ProblemError),
    /// A gradient could not be computed.
    #[error("learning failed: {reason}")]
    Learning {
        /// The cause.
        reason: String,
    },
    /// A run did not reach its end.
    #[error("policy {policy}, law {law}, {workers} workers, seed {seed}: {cause}")]
    Run {
        /// The policy, as written.
        policy: String,
        /// The law, as written.
        law: String,
        /// The number of workers, n.
        workers: u32,
        /// Its seed.
        seed: u64,
        /// The cause.
        cause: ata_simulator::SimulationError,
    },
    /// Figures cannot be made.
    #[error(transparent)]
    Figure(#[from] ata_figures::FigureError),
}
