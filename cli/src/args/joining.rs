//! The flags for joining a coordinator, those of `ata worker` and `ata doctor`, which have them, and those of `ata token`.

use std::path::PathBuf;

use ata_learn::Precision;
use ata_net::limits::MAX_WORKERS;
use ata_wire::limits::MAX_TIME;
use clap::builder::RangedU64ValueParser;
use clap::{Args, Subcommand, value_parser};
use serde::Serialize;

use super::FolderArgs;
use crate::settings::{Fuse, MAX_THREADS};

/// The address of the coordinator, and the credentials.
#[derive(Debug, Args)]
pub(crate) struct JoinArgs {
    /// The coordinator's address without encryption, or https://HOST:PORT with --tls-ca [default: http://127.0.0.1:7070].
    #[arg(long, env = "ATA_COORDINATOR", value_name = "URL")]
    pub(crate) coordinator: Option<String>,
    /// The token that the coordinator prints: its address, its key and a secret. `ps` shows it to all users of this machine;
    /// --join-file and the variable do not.
    #[arg(long, env = "ATA_JOIN", value_name = "TOKEN", hide_env_values = true)]
    pub(crate) join: Option<String>,
    /// A file that holds the token; the worker waits for it if it does not exist yet.
    #[arg(long, env = "ATA_JOIN_FILE", value_name = "FILE")]
    pub(crate) join_file: Option<PathBuf>,
    /// Trust a coordinator whose certificate comes from this authority (PEM).
    #[arg(long, env = "ATA_TLS_CA", value_name = "FILE", help_heading = "Own certificates")]
    pub(crate) tls_ca: Option<PathBuf>,
    /// This worker's certificate (PEM); its DNS names are the names that the worker may use.
    #[arg(long, env = "ATA_TLS_CERT", value_name = "FILE", help_heading = "Own certificates")]
    pub(crate) tls_cert: Option<PathBuf>,
    /// The private key of this worker's certificate (PEM).
    #[arg(long, env = "ATA_TLS_KEY", value_name = "FILE", help_heading = "Own certificates")]
    pub(crate) tls_key: Option<PathBuf>,
}

#[derive(Debug, Subcommand)]
pub(crate) enum TokenCommand {
    /// Print the join token.
    Show(TokenArgs),
    /// Make a new secret: the old token stops working. Workers that are connected stay.
    Rotate(RotateArgs),
}

#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  ata token show                                   what follows --join
  ata token show > join.txt                        for ata worker --join-file join.txt
  ata token show --status                          the secret for reading the status")]
pub(crate) struct TokenArgs {
    /// The folder of the coordinator's key and secrets.
    #[arg(long, env = "ATA_CREDENTIALS", value_name = "DIR")]
    pub(crate) credentials: Option<PathBuf>,
    /// HOST or HOST:PORT under which workers reach the coordinator [default: as it was started last].
    #[arg(long, env = "ATA_ADVERTISE", value_name = "HOST")]
    pub(crate) advertise: Option<String>,
    /// The secret for reading the status, in place of the token for workers.
    #[arg(long)]
    pub(crate) status: bool,
    /// Print JSON on standard output.
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  ata token rotate                                 after a token has leaked
  ata token rotate --key                           after the key has leaked: all workers need the new token")]
pub(crate) struct RotateArgs {
    #[command(flatten)]
    pub(crate) token: TokenArgs,
    /// Make a new key, too; a coordinator that is running takes it for new connections.
    #[arg(long, conflicts_with = "status")]
    pub(crate) key: bool,
}

/// The default size of the cache of shards, in gigabytes.
pub(crate) const DEFAULT_CACHE_GB: u64 = 20;
/// The default time for leaving, in seconds: less than the 10 s after which Docker kills a container.
pub(crate) const DEFAULT_DRAIN_S: u64 = 8;
/// The largest size of the cache, in gigabytes: more than the largest disks.
const MAX_CACHE_GB: u64 = 1_000_000;

#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  ata worker                                       for a coordinator on this machine
  ata worker --join TOKEN                          for another one, which printed this line
  ata worker --join-file join.txt --device wgpu:1 --name rig-2
  ata worker --join-file join.txt --devices all
  ata worker --coordinator https://head:7070 --tls-ca ca.pem --tls-cert rig.pem --tls-key rig.key")]
pub(crate) struct WorkerArgs {
    #[command(flatten)]
    pub(crate) joining: JoinArgs,
    /// This worker's name, under which its speed is remembered [default: the host name].
    #[arg(long, env = "ATA_NAME")]
    pub(crate) name: Option<String>,
    /// The device: auto, cpu, wgpu, wgpu:INDEX, cuda or cuda:INDEX.
    #[arg(long, env = "ATA_DEVICE", value_name = "DEVICE", default_value = "auto")]
    pub(crate) device: String,
    /// One worker on each of these devices, all in this process: all (the GPUs of this machine), or a list, as in
    /// wgpu:0,wgpu:1,cpu. Each device's name is appended to the worker's.
    #[arg(long, env = "ATA_DEVICES", value_name = "DEVICES", conflicts_with = "device")]
    pub(crate) devices: Option<String>,
    /// Compute the tasks of a lease as one batch: faster on GPUs, but not the same bits for every allocation and device. auto does on
    /// every device but the CPU.
    #[arg(long, env = "ATA_FUSE", value_name = "auto|on|off", default_value = "auto", hide_possible_values = true)]
    pub(crate) fuse: Fuse,
    /// The most samples of a task whose gradient is computed at once, for devices with too little memory for the whole task. Not with
    /// batch normalisation [default: all; for a PyTorch problem, as many as fit].
    #[arg(long, env = "ATA_MICRO_BATCH", value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    pub(crate) micro_batch: Option<u32>,
    /// Compute gradients in f32, or in bf16 on devices that have it: faster on GPUs with matrix units for 16 bits. Parameters and
    /// optimizer stay f32.
    #[arg(long, env = "ATA_PRECISION", value_name = "f32|bf16", default_value_t)]
    pub(crate) precision: Precision,
    /// The training data, as the coordinator's --data takes it, so that it does not have to be sent.
    #[arg(long, env = "ATA_DATA", value_name = "DATA")]
    pub(crate) data: Option<PathBuf>,
    #[command(flatten)]
    pub(crate) folder: FolderArgs,
    /// Gigabytes of shards that the cache may hold, of data sets that were packed with --shard-mb. It holds what is needed next in any
    /// case.
    #[arg(long, env = "ATA_CACHE_GB", value_name = "GB", default_value_t = DEFAULT_CACHE_GB, allow_negative_numbers = true,
          value_parser = value_parser!(u64).range(0..=MAX_CACHE_GB))]
    pub(crate) cache_gb: u64,
    /// The time to keep trying to reach a coordinator, in seconds since the last contact [default: 30, and without end once a coordinator
    /// has accepted this worker].
    #[arg(long, env = "ATA_RETRY_FOR", value_name = "S", allow_negative_numbers = true,
          value_parser = value_parser!(u64).range(0..=MAX_TIME.as_secs()))]
    pub(crate) retry_for: Option<u64>,
    /// The time in seconds to finish what the worker has begun, and to send it, after SIGTERM or Ctrl-C.
    #[arg(long, env = "ATA_DRAIN_S", value_name = "S", default_value_t = DEFAULT_DRAIN_S, allow_negative_numbers = true,
          value_parser = value_parser!(u64).range(0..=MAX_TIME.as_secs()))]
    pub(crate) drain_s: u64,
    /// The address at which other workers reach this one, to exchange gradients and parameters in shards: HOST:PORT to listen at, or off.
    /// Port 0 is any that is free; one for each device, if there are several [default: [::]:0, which is IPv4, too, or off if the
    /// coordinator is on this machine].
    #[arg(long, env = "ATA_PEER_LISTEN", value_name = "ADDRESS")]
    pub(crate) peer_listen: Option<String>,
    /// The host that is announced to other workers, if it is not the one that the coordinator sees. The coordinator must allow it
    /// (--peer-hosts).
    #[arg(long, env = "ATA_PEER_HOST", value_name = "HOST")]
    pub(crate) peer_host: Option<String>,
    /// CPU threads to compute with [default: all cores].
    #[arg(long, env = "ATA_THREADS", value_name = "N", allow_negative_numbers = true,
          value_parser = RangedU64ValueParser::<usize>::new().range(1..=MAX_THREADS as u64))]
    pub(crate) threads: Option<usize>,
    /// Emulated task times: a law in terms of the worker's number i and the number of workers n. With 'affine(o, s)' it
    /// computes its share as one batch.
    #[arg(long, env = "ATA_TASK_TIME", value_name = "LAW", help_heading = "Emulated slowness")]
    pub(crate) task_time: Option<String>,
    /// The unit of times in --task-time.
    #[arg(long, env = "ATA_TIME_UNIT", value_name = "TIME", default_value = "1ms", help_heading = "Emulated slowness")]
    pub(crate) time_unit: String,
    /// The number i that this worker asks for [default: chosen by the coordinator].
    #[arg(long, value_name = "I", allow_negative_numbers = true,
          value_parser = RangedU64ValueParser::<u32>::new().range(1..=MAX_WORKERS as u64),
          help_heading = "Emulated slowness")]
    pub(crate) number: Option<u32>,
    /// The number of workers n.
    #[arg(long, value_name = "N", default_value_t = 1, allow_negative_numbers = true,
          value_parser = RangedU64ValueParser::<u32>::new().range(1..=MAX_WORKERS as u64),
          help_heading = "Emulated slowness")]
    pub(crate) workers: u32,
}

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
#[derive(Debug, Args, Serialize)]
pub(crate) struct SubjectArgs {
    /// The device to check; its gradient is compared with the CPU's [default].
    #[arg(long, value_name = "DEVICE")]
    device: Option<String>,
    /// The model [default: that of the coordinator's run if a coordinator is contacted, else cnn].
    #[arg(long, value_name = "MODEL")]
    pub(crate) model: Option<String>,
    /// The data that gradients are computed on, as for a run [default].
    #[arg(long, value_name = "DATA")]
    data: Option<String>,
    #[command(flatten)]
    #[serde(flatten)]
    folder: FolderArgs,
    /// The number of samples in the gradient [default: as for the model].
    #[arg(long, value_name = "S")]
    pub(crate) task_batch: Option<u32>,
    /// The number of workers of the run [default].
    #[arg(long, value_name = "N")]
    workers: Option<u32>,
    /// The number of checkpoints to keep [default].
    #[arg(long, value_name = "N")]
    keep: Option<usize>,
    /// The run's folder [default: one in runs/].
    #[arg(long, value_name = "DIR")]
    out: Option<PathBuf>,
    /// The address a coordinator would listen on [default].
    #[arg(long, value_name = "ADDRESS")]
    pub(crate) listen: Option<String>,
    /// The address of the coordinator's dashboard, or off [default: 127.0.0.1:7071].
    #[arg(long, value_name = "ADDRESS")]
    dashboard: Option<String>,
    /// The folder of the coordinator's key and secrets [default: ~/.local/share/ata/credentials].
    #[arg(long, value_name = "DIR")]
    credentials: Option<PathBuf>,
    /// The authority of the workers' certificates, as for a coordinator (PEM).
    #[arg(long, value_name = "FILE", help_heading = "Own certificates")]
    #[serde(skip)]
    pub(crate) tls_client_ca: Option<PathBuf>,
}
