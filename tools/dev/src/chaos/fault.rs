//! The kinds of faults.

use clap::ValueEnum;
use serde::Serialize;

/// A kind of fault.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, ValueEnum, Serialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum FaultKind {
    /// The coordinator is killed (SIGKILL), and a new one resumes the run.
    KillCoordinator,
    /// The coordinator is killed, and so are new ones while they start, until one is allowed to run.
    KillStart,
    /// Processes that end the run are killed before they finish; then the run is extended.
    KillEnd,
    /// The coordinator is asked to stop (SIGTERM), and a new one resumes the run.
    EndCoordinator,
    /// The coordinator is stopped (SIGSTOP) for longer than the heartbeat timeout.
    StopCoordinator,
    /// No file of the coordinator can grow, as on a full disk: it gives up, and a new one resumes when there is room.
    FillDisk,
    /// A worker is killed and restarted.
    KillWorker,
    /// A worker is stopped for longer than the heartbeat timeout.
    StopWorker,
    /// A worker's connections break.
    CutLink,
    /// A worker's connections transfer nothing for longer than the heartbeat timeout, as with a pulled cable.
    StallLink,
    /// A worker's connections are slow for a while.
    SlowLink,
}

impl FaultKind {
    /// Returns the name of the kind, as accepted by `--only`.
    pub(crate) fn name(self) -> String {
        self.to_possible_value().map_or_else(String::new, |value| value.get_name().to_owned())
    }
}
