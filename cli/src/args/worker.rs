//! The flags of `ata worker`.

use std::path::PathBuf;

use ata_learn::Precision;
use ata_net::limits::MAX_WORKERS;
use ata_wire::limits::MAX_TIME;
use clap::Args;
use clap::builder::RangedU64ValueParser;

use super::JoinArgs;
use crate::settings::{Fuse, MAX_THREADS};

/// The default size of the cache of shards, in gigabytes.
pub(crate) const DEFAULT_CACHE_GB: u64 = 20;

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
    /// Compute the tasks of a lease as one batch: faster on GPUs, but not the same bits for every allocation and device
    /// [default: auto, on every device but the CPU].
    #[arg(long, env = "ATA_FUSE", value_name = "auto|on|off", default_value = "auto", hide_possible_values = true)]
    pub(crate) fuse: Fuse,
    /// Compute gradients in f32, or in bf16 on devices that have it: faster on GPUs with matrix units for 16 bits. Parameters and
    /// optimizer stay f32.
    #[arg(long, env = "ATA_PRECISION", value_name = "f32|bf16", default_value_t)]
    pub(crate) precision: Precision,
    /// The training data, as the coordinator's --data takes it, so that it does not have to be sent.
    #[arg(long, env = "ATA_DATA", value_name = "DATA")]
    pub(crate) data: Option<PathBuf>,
    /// Gigabytes of shards that the cache may hold, of data sets that were packed with --shard-mb. It holds what is needed next in any
    /// case.
    #[arg(long, env = "ATA_CACHE_GB", value_name = "GB", default_value_t = DEFAULT_CACHE_GB, allow_negative_numbers = true,
          value_parser = RangedU64ValueParser::<u64>::new().range(0..=MAX_CACHE_GB))]
    pub(crate) cache_gb: u64,
    /// The time to keep trying to reach a coordinator, in seconds since the last contact.
    #[arg(long, env = "ATA_RETRY_FOR", value_name = "S", default_value_t = 30, allow_negative_numbers = true,
          value_parser = RangedU64ValueParser::<u64>::new().range(0..=MAX_TIME.as_secs()))]
    pub(crate) retry_for: u64,
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
    #[arg(
        long,
        value_name = "I",
        allow_negative_numbers = true,
        value_parser = RangedU64ValueParser::<u32>::new().range(1..=MAX_WORKERS as u64),
        help_heading = "Emulated slowness"
    )]
    pub(crate) number: Option<u32>,
    /// The number of workers n.
    #[arg(
        long,
        value_name = "N",
        default_value_t = 1,
        allow_negative_numbers = true,
        value_parser = RangedU64ValueParser::<u32>::new().range(1..=MAX_WORKERS as u64),
        help_heading = "Emulated slowness"
    )]
    pub(crate) workers: u32,
}
