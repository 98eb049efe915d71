//! The flags of `ata up`.

use ata_learn::Precision;
use clap::Args;
use serde::Serialize;

use super::{CommonArgs, RunArgs};
use crate::settings::{DEFAULT_DASHBOARD, Fuse};

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
#[derive(Clone, Debug, Default, Args, Serialize)]
pub(crate) struct LocalArgs {
    /// The number of worker processes.
    #[arg(long, env = "ATA_WORKERS", value_name = "N", allow_negative_numbers = true)]
    workers: Option<u32>,
    /// One worker on each of these devices, in place of --device and --workers: all (the GPUs of this machine), or a list,
    /// as in wgpu:0,wgpu:1,cpu.
    #[arg(long, env = "ATA_DEVICES", value_name = "DEVICES")]
    devices: Option<String>,
    /// Compute the tasks of a lease as one batch: faster on GPUs, but not the same bits for every allocation and device
    /// [default: auto, on every device but the CPU].
    #[arg(long, env = "ATA_FUSE", value_name = "auto|on|off", hide_possible_values = true)]
    fuse: Option<Fuse>,
    /// Compute gradients in f32, or in bf16 on devices that have it: faster on GPUs with matrix units for 16 bits. Parameters and
    /// optimizer stay f32 [default: f32].
    #[arg(long, env = "ATA_PRECISION", value_name = "f32|bf16")]
    precision: Option<Precision>,
    /// The emulated task times by worker number i: 'shifted_exp(29*i, 29*i)', 'scale(1); scale(2)', … or none. A device that computes its
    /// share as one batch: 'affine(20, 0.5)', 20 for the batch and 0.5 for each task.
    #[arg(long, env = "ATA_TASK_TIME", value_name = "LAW")]
    task_time: Option<String>,
    /// The unit of times in --task-time: 1ms, 0.1ms, 1s, …
    #[arg(long, env = "ATA_TIME_UNIT", value_name = "TIME")]
    time_unit: Option<String>,
    /// CPU threads that each worker computes with [default: an equal share of this machine's cores].
    #[arg(long, env = "ATA_THREADS", value_name = "N", allow_negative_numbers = true)]
    threads: Option<usize>,
    /// Serve the dashboard during the run [default: off; without an address, 127.0.0.1:7071 or a free port].
    #[arg(
        long,
        env = "ATA_DASHBOARD",
        value_name = "ADDRESS|off",
        num_args = 0..=1,
        default_missing_value = DEFAULT_DASHBOARD,
        help_heading = "Output"
    )]
    dashboard: Option<String>,
}
