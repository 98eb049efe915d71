//! What a chaos run is made of.

use std::ffi::OsString;
use std::path::PathBuf;
use std::time::Duration;

use tokio::process::Command;

use crate::FaultKind;

/// The exit code of a coordinator that was stopped, and can be resumed.
pub(crate) const RESUMABLE: i32 = 75;

/// The exit code of a coordinator whose disk is full.
pub(crate) const DISK_FULL: i32 = 74;

/// The exit code of a worker whose run failed.
pub(crate) const RUN_FAILED: i32 = 70;

/// The cluster, and the faults that it is exposed to.
#[derive(Clone, Debug)]
pub struct Config {
    /// The words that start `ata`, the executable first.
    pub program: Vec<OsString>,
    /// Settings of the run, as for `--config`.
    pub settings: String,
    /// A new folder for both runs and all logs.
    pub folder: PathBuf,
    /// Arguments of every worker, without its identity and the coordinator's address.
    pub worker_args: Vec<OsString>,
    /// Number of workers.
    pub workers: u32,
    /// Tasks per iteration.
    pub budget: u64,
    /// Bytes of the model's parameters.
    pub parameters_bytes: u64,
    /// Time after which a silent worker counts as lost.
    pub heartbeat_timeout: Duration,
    /// The checkpoint interval of the first coordinator, as for `--checkpoint-every`.
    pub first_checkpoint_every: String,
    /// The checkpoint interval of all later coordinators; `None` draws one for each.
    pub checkpoint_every: Option<String>,
    /// Seed of the faults.
    pub seed: u64,
    /// Kinds of faults; none stands for all.
    pub only: Vec<FaultKind>,
    /// Number of faults; `None` leaves the number to [`Config::minutes`].
    pub faults: Option<u64>,
    /// How long faults are injected, unless [`Config::faults`] says how many.
    pub minutes: f64,
}

impl Config {
    /// Starts `ata` with arguments that follow.
    pub(crate) fn command(&self) -> Command {
        let (program, first) = self.program.split_first().expect("a program has a name");
        let mut command = Command::new(program);
        command.args(first);
        command
    }
}
