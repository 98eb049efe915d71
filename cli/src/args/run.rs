//! The flags of a run, of `ata up` and of `ata coordinator`.

use std::path::PathBuf;

use clap::Args;
use serde::Serialize;

use super::FolderArgs;
use crate::settings::{
    DEFAULT_DASHBOARD, EntranceArgs, MachineArgs, NetworkArgs, OtherRunArgs, OutputArgs, SavingArgs, StoppingArgs,
    TaskArgs, TrainingArgs,
};

/// The settings of a run; flags override environment variables, which override the file.
#[derive(Debug, Args, Serialize)]
pub(crate) struct RunArgs {
    #[command(flatten)]
    #[serde(flatten)]
    tasks: TaskArgs,
    #[command(flatten)]
    #[serde(flatten)]
    folder: FolderArgs,
    #[command(flatten)]
    #[serde(flatten)]
    output: OutputArgs,
    #[command(flatten)]
    #[serde(flatten)]
    training: TrainingArgs,
    #[command(flatten)]
    #[serde(flatten)]
    saving: SavingArgs,
    #[command(flatten)]
    #[serde(flatten)]
    other: OtherRunArgs,
    #[command(flatten)]
    #[serde(flatten)]
    network: NetworkArgs,
    #[command(flatten)]
    #[serde(flatten)]
    stopping: StoppingArgs,
}

/// The settings file, and the form of the output.
#[derive(Debug, Args)]
pub(crate) struct CommonArgs {
    /// A TOML file of settings, named like the flags: task_batch = 16.
    #[arg(long, env = "ATA_CONFIG", value_name = "FILE")]
    pub(crate) config: Option<PathBuf>,
    /// Go on with a run that stopped: auto (if there is one, else begin), latest, its id, name or folder, or a
    /// checkpoint's folder. Its settings apply; flags may extend or change them.
    #[arg(long, env = "ATA_RESUME", value_name = "RUN", help_heading = "Saving")]
    pub(crate) resume: Option<String>,
    /// When the run is done, keep serving its dashboard until Ctrl-C or SIGTERM.
    #[arg(long, env = "ATA_STAY", num_args = 0..=1, default_missing_value = "true", default_value = "false", hide_default_value = true, hide_possible_values = true, value_name = "BOOL", help_heading = "Output")]
    pub(crate) stay: bool,
    /// Print the run's summary as JSON on standard output instead of the table.
    #[arg(long, help_heading = "Output")]
    pub(crate) json: bool,
}

#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  ata coordinator                                        listen on this machine only
  ata coordinator --listen 0.0.0.0:7070 --min-workers 8  accept workers of other machines, by the token that it prints
  ata coordinator --listen 0.0.0.0:7070 --tls-cert head.pem --tls-key head.key --tls-client-ca workers-ca.pem")]
pub(crate) struct CoordinatorArgs {
    #[command(flatten)]
    pub(crate) common: CommonArgs,
    #[command(flatten)]
    pub(crate) run: RunArgs,
    #[command(flatten)]
    pub(crate) head: HeadArgs,
    /// Print the join token even if standard error is not a terminal.
    #[arg(long, env = "ATA_PRINT_JOIN", num_args = 0..=1, default_missing_value = "true", default_value = "false", hide_default_value = true, hide_possible_values = true, value_name = "BOOL", help_heading = "Output")]
    pub(crate) print_join: bool,
    /// Write a JSON object with the keys run_id, address and resumes_after (the iteration that the run goes on after, or 0) to
    /// this file as soon as workers can connect.
    #[arg(long, env = "ATA_READY_FILE", value_name = "FILE", help_heading = "Output")]
    pub(crate) ready_file: Option<PathBuf>,
}

/// Settings of the head node.
#[derive(Debug, Args, Serialize)]
pub(crate) struct HeadArgs {
    #[command(flatten)]
    #[serde(flatten)]
    entrance: EntranceArgs,
    /// The address of the dashboard and the metrics. On other addresses than loopback, they use TLS and require the status secret [default:
    /// 127.0.0.1:7071, or a free port if that is taken].
    #[arg(long, value_name = "ADDRESS|off", help_heading = "Output")]
    dashboard: Option<String>,
}

#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  ata up
  ata up --data cifar-100-binary.tar.gz --iterations 1000 --lr 1e-3
  ata up --policy uta --seed 1
  ata up --warm-start runs/RUN --target-loss 0.5
  ata up --verify 0.05
  ata up --workers 51 --budget 23 --task-time 'shifted_exp(29*i, 29*i)' --time-unit 0.1ms")]
pub(crate) struct UpArgs {
    #[command(flatten)]
    pub(crate) common: CommonArgs,
    #[command(flatten)]
    pub(crate) run: RunArgs,
    #[command(flatten)]
    pub(crate) local: LocalArgs,
}

/// The settings of a cluster on one machine.
#[derive(Debug, Args, Serialize)]
pub(crate) struct LocalArgs {
    #[command(flatten)]
    #[serde(flatten)]
    machine: MachineArgs,
    /// Serve the dashboard during the run [default: off; without an address, 127.0.0.1:7071 or a free port].
    #[arg(long, value_name = "ADDRESS|off", num_args = 0..=1,
          default_missing_value = DEFAULT_DASHBOARD, help_heading = "Output")]
    dashboard: Option<String>,
}
