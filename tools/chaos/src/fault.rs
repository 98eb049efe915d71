//! The kinds of faults.

use clap::ValueEnum;
use serde::Serialize;

/// A kind of fault.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, ValueEnum, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum FaultKind {
    /// The coordinator is killed (SIGKILL), and a new one resumes the run.
    KillCoordinator,
    /// The coordinator is killed, and so are the new ones while they start, until one is left alone.
    KillStart,
    /// The run is brought to its end by processes that are killed on the way; then it is extended.
    KillEnd,
    /// The coordinator is asked to stop (SIGTERM), and a new one resumes the run.
    EndCoordinator,
    /// The coordinator is stopped (SIGSTOP) for longer than the heartbeat timeout.
    StopCoordinator,
    /// No file of the coordinator can grow, as on a full disk: it gives up, and a new one resumes when there is room.
    FillDisk,
    /// A worker is killed, and started again.
    KillWorker,
    /// A worker is stopped for longer than the heartbeat timeout.
    StopWorker,
    /// A worker's connections break.
    CutLink,
    /// Nothing comes through a worker's connections for longer than the heartbeat timeout, as with a pulled cable.
    StallLink,
    /// A worker's connections are slow for a while.
    SlowLink,
}

impl FaultKind {
    /// Its name, as `--only` takes it.
    pub fn name(self) -> String {
        self.to_possible_value().map_or_else(String::new, |value| value.get_name().to_owned())
    }
}
