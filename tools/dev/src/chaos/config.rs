//! The configuration of a chaos run.

use std::ffi::OsString;
use std::path::PathBuf;
use std::time::Duration;

use tokio::process::Command;

use crate::chaos::FaultKind;

/// The exit code of a coordinator that was stopped and can be resumed.
pub(crate) const RESUMABLE: i32 = 75;

/// The exit code of a coordinator whose disk is full.
pub(crate) const DISK_FULL: i32 = 74;

/// The exit code of a worker whose run failed.
pub(crate) const RUN_FAILED: i32 = 70;

/// The cluster, and the faults that it is exposed to.
#[derive(Clone, Debug)]
pub(crate) struct Config {
    /// The words that start `ata`, the executable first.
    pub(crate) program: Vec<OsString>,
    /// The settings of the run, as for `--config`.
    pub(crate) settings: String,
    /// A new folder for both runs and all logs.
    pub(crate) folder: PathBuf,
    /// The arguments of every worker, without its identity and the coordinator's address.
    pub(crate) worker_args: Vec<OsString>,
    /// The number of workers.
    pub(crate) workers: u32,
    /// The number of tasks per iteration.
    pub(crate) budget: u64,
    /// The size of the model's parameters, in bytes.
    pub(crate) parameters_bytes: u64,
    /// The time after which a silent worker counts as lost.
    pub(crate) heartbeat_timeout: Duration,
    /// The checkpoint interval of the first coordinator, as for `--checkpoint-every`.
    pub(crate) first_checkpoint_every: String,
    /// The checkpoint interval of all later coordinators; `None` draws one for each.
    pub(crate) checkpoint_every: Option<String>,
    /// The seed of the faults.
    pub(crate) seed: u64,
    /// The kinds of faults; an empty list stands for all.
    pub(crate) only: Vec<FaultKind>,
    /// The number of faults; `None` limits them by [`Config::minutes`].
    pub(crate) faults: Option<u64>,
    /// Minutes during which faults are injected, unless [`Config::faults`] limits them.
    pub(crate) minutes: f64,
}

impl Config {
    /// Returns a command for `ata` without arguments.
    pub(crate) fn command(&self) -> Command {
        let (program, first) = self.program.split_first().expect("a program has a name");
        let mut command = Command::new(program);
        command.args(first);
        command
    }
}
