//! Errors of a plan.

use ata_scheduler::PolicyError;
use ata_simulator::{LawError, SettingError, SimulationError};

/// The reason why a plan is refused or cannot be computed.
#[derive(Debug, thiserror::Error)]
pub enum PlanError {
    /// A setting is invalid.
    #[error(transparent)]
    Setting(#[from] SettingError),
    /// A machine's times do not form a valid law.
    #[error(transparent)]
    Law(#[from] LawError),
    /// A policy cannot be built.
    #[error(transparent)]
    Policy(#[from] PolicyError),
    /// A run did not reach its end.
    #[error(transparent)]
    Run(#[from] SimulationError),
}
