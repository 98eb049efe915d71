//! What may be wrong with a plan.

use ata_scheduler::PolicyError;
use ata_simulator::{LawError, SettingError, SimulationError};

/// What is wrong with a plan.
#[derive(Debug, thiserror::Error)]
pub enum PlanError {
    /// A setting makes no sense.
    #[error(transparent)]
    Setting(#[from] SettingError),
    /// A machine's times are no law.
    #[error(transparent)]
    Law(#[from] LawError),
    /// A policy cannot be built.
    #[error(transparent)]
    Policy(#[from] PolicyError),
    /// A run did not reach its end.
    #[error(transparent)]
    Run(#[from] SimulationError),
}
