//! What may be wrong with an experiment.

use std::path::PathBuf;

use crate::law::LawError;

/// What is wrong with an experiment.
#[derive(Debug, thiserror::Error)]
pub enum ExperimentError {
    /// The file cannot be read.
    #[error("experiment {path}: {cause}. Built-in experiments: {names}", names = super::builtin::names())]
    Unreadable {
        /// The file.
        path: PathBuf,
        /// Why.
        cause: std::io::Error,
    },
    /// The file does not parse.
    #[error("experiment {name}, line {line}: {reason}")]
    Syntax {
        /// The file, or the built-in experiment.
        name: String,
        /// 1-based.
        line: usize,
        /// What is wrong there.
        reason: String,
    },
    /// A setting has no meaning.
    #[error("{setting}: {found}, expected {expected}")]
    BadSetting {
        /// Which.
        setting: String,
        /// What it is.
        found: String,
        /// What would be right.
        expected: String,
    },
    /// A time law.
    #[error(transparent)]
    Law(#[from] LawError),
    /// A policy.
    #[error("policy {policy}, {workers} workers: {cause}")]
    Policy {
        /// As written.
        policy: String,
        /// n.
        workers: u32,
        /// What is wrong.
        cause: ata_scheduler::PolicyError,
    },
    /// A learning problem.
    #[error(transparent)]
    Problem(#[from] crate::problem::ProblemError),
    /// A gradient could not be computed.
    #[error("learning failed: {reason}")]
    Learning {
        /// Why.
        reason: String,
    },
    /// A run did not come to its end.
    #[error("policy {policy}, law {law}, {workers} workers, seed {seed}: {cause}")]
    Run {
        /// As written.
        policy: String,
        /// As written.
        law: String,
        /// n.
        workers: u32,
        /// Its seed.
        seed: u64,
        /// Why.
        cause: crate::drive::SimulationError,
    },
    /// Figures cannot be made.
    #[error(transparent)]
    Figure(#[from] ata_figures::FigureError),
}
