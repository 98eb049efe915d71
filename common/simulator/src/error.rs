//! Why a simulated run ends early.

use ata_scheduler::AbortReason;

/// The reason why a simulated run did not reach its end.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum SimulationError {
    /// The engine aborted the run.
    #[error("the run was aborted: {0}")]
    Aborted(AbortReason),
    /// All workers left, and none will join; or the remaining workers hang, and there is no lease timeout.
    #[error("at time {at}, in iteration {iteration}, the run cannot continue: no worker computes, and none will join")]
    NobodyLeft {
        /// The virtual time.
        at: f64,
        /// The iteration, k.
        iteration: u64,
    },
    /// The coordinator crashed, and did not start again.
    #[error("at time {at}, the coordinator is down, and does not start again")]
    CoordinatorDown {
        /// The virtual time.
        at: f64,
    },
}
