//! The flags of `ata doctor`.

use std::path::PathBuf;

use clap::Args;
use serde::Serialize;

use super::JoinArgs;

#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  ata doctor                                       what would stop a coordinator, or a cluster, on this machine
  ata doctor --config run.toml --workers 64        the same, for that run and so many workers
  ata doctor --device wgpu:0 --task-batch 4        this GPU, and whether its gradients are right
  ata doctor --join-file join.txt                  what would stop a worker on this machine, and how fast its connection is

Without --coordinator, --join or --join-file, no coordinator is contacted. The exit code is 1 if there is a problem, and 0 if there are only warnings.")]
pub(crate) struct DoctorArgs {
    #[command(flatten)]
    pub(crate) joining: JoinArgs,
    #[command(flatten)]
    pub(crate) subject: SubjectArgs,
    /// A TOML file of settings, as for a run.
    #[arg(long, env = "ATA_CONFIG", value_name = "FILE")]
    pub(crate) config: Option<PathBuf>,
    /// Print JSON on standard output.
    #[arg(long)]
    pub(crate) json: bool,
}

/// The settings of the run that this machine will take part in.
#[derive(Clone, Debug, Default, Args, Serialize)]
pub(crate) struct SubjectArgs {
    /// The device to check; its gradient is compared with the CPU's [default: auto].
    #[arg(long, env = "ATA_DEVICE", value_name = "DEVICE")]
    device: Option<String>,
    /// The model [default: that of the coordinator's run if a coordinator is contacted, else cnn].
    #[arg(long, env = "ATA_MODEL", value_name = "MODEL")]
    pub(crate) model: Option<String>,
    /// The data that gradients are computed on, as for a run [default: synthetic].
    #[arg(long, env = "ATA_DATA", value_name = "DATA")]
    data: Option<String>,
    /// The number of samples in the gradient [default: as for the model].
    #[arg(long, env = "ATA_TASK_BATCH", value_name = "S", allow_negative_numbers = true)]
    pub(crate) task_batch: Option<u32>,
    /// The number of workers of the run [default: 4].
    #[arg(long, env = "ATA_WORKERS", value_name = "N", allow_negative_numbers = true)]
    workers: Option<u32>,
    /// The number of checkpoints to keep [default: 3].
    #[arg(long, env = "ATA_KEEP", value_name = "N", allow_negative_numbers = true)]
    keep: Option<usize>,
    /// The run's folder [default: one in runs/].
    #[arg(long, env = "ATA_OUT", value_name = "DIR")]
    out: Option<PathBuf>,
    /// The address a coordinator would listen on [default: 127.0.0.1:7070].
    #[arg(long, env = "ATA_LISTEN", value_name = "ADDRESS")]
    pub(crate) listen: Option<String>,
    /// The address of the coordinator's dashboard, or off [default: 127.0.0.1:7071].
    #[arg(long, env = "ATA_DASHBOARD", value_name = "ADDRESS")]
    dashboard: Option<String>,
    /// The folder of the coordinator's key and secrets [default: ~/.local/share/ata/credentials].
    #[arg(long, env = "ATA_CREDENTIALS", value_name = "DIR")]
    credentials: Option<PathBuf>,
    /// The authority of the workers' certificates, as for a coordinator (PEM).
    #[arg(long, env = "ATA_TLS_CLIENT_CA", value_name = "FILE", help_heading = "Own certificates")]
    #[serde(skip)]
    pub(crate) tls_client_ca: Option<PathBuf>,
}
