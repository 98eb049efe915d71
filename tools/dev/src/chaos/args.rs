//! The flags of `ata-dev chaos`.

use std::path::PathBuf;

use clap::Args;
use serde::Serialize;

use super::schedule::FaultKind;

/// The flags of `ata-dev chaos`; those that are not skipped are settings of the run.
#[derive(Clone, Debug, Args, Serialize)]
#[command(after_help = "\
The wall clock is not among the faults: only names and log lines depend on it, and it cannot be set for one process
alone.

Examples:
  ata-dev chaos
  ata-dev chaos --minutes 10 --data cifar-100-binary.tar.gz
  ata-dev chaos --only kill-coordinator --faults 100
  ata-dev chaos --only kill-worker,stop-worker --faults 20 --checkpoint-every 10")]
pub(crate) struct ChaosArgs {
    /// Minutes during which faults are injected.
    // In two minutes, each kind occurs at least once.
    #[arg(long, value_name = "M", default_value_t = 2.0, conflicts_with = "faults", allow_negative_numbers = true)]
    #[serde(skip)]
    pub(crate) minutes: f64,
    /// The number of faults to inject, instead of a time.
    #[arg(long, value_name = "N", allow_negative_numbers = true)]
    #[serde(skip)]
    pub(crate) faults: Option<u64>,
    /// The kinds of faults [default: all].
    #[arg(long, value_enum, value_name = "KINDS", value_delimiter = ',')]
    #[serde(skip)]
    pub(crate) only: Vec<FaultKind>,
    /// The number of worker processes [default: 4].
    #[arg(long, value_name = "N", allow_negative_numbers = true)]
    workers: Option<u32>,
    /// The data, as for `ata up` [default: synthetic].
    #[arg(long, value_name = "DATA")]
    data: Option<String>,
    /// The model, as for `ata up` [default: cnn:widths=8/16/256/1024, whose optimizer step takes some 20 ms].
    #[arg(long, value_name = "MODEL")]
    model: Option<String>,
    /// Tasks per iteration [default: 16].
    #[arg(long, value_name = "B", allow_negative_numbers = true)]
    budget: Option<u64>,
    /// Inner steps per round, in place of --budget. The parameters are then not compared with those of the run without faults.
    #[arg(long, value_name = "N", conflicts_with = "budget", allow_negative_numbers = true)]
    local_steps: Option<u64>,
    /// Samples per task [default: 1, or 6 with --task-time none].
    #[arg(long, value_name = "S", allow_negative_numbers = true)]
    task_batch: Option<u32>,
    /// Emulated task times, which keep the processes from competing for this machine's cores [default: const(20), and
    /// const(400) for every fourth worker].
    #[arg(long, value_name = "LAW")]
    task_time: Option<String>,
    /// How often the run is saved [default: drawn for each coordinator from 1, 5, 2s and 60s].
    #[arg(long, value_name = "T", allow_hyphen_values = true)]
    pub(crate) checkpoint_every: Option<String>,
    /// A worker that has been silent for this long counts as lost [default: 2000].
    #[arg(long, value_name = "MS", allow_negative_numbers = true)]
    heartbeat_timeout_ms: Option<u64>,
    /// The seed of the faults and of the run [default: 1].
    #[arg(long, value_name = "N", allow_negative_numbers = true)]
    seed: Option<u64>,
    /// A TOML file with more settings of the run.
    #[arg(long, value_name = "FILE")]
    #[serde(skip)]
    pub(crate) config: Option<PathBuf>,
    /// A new folder for both runs and all logs [default: runs/TIME-chaos-…].
    #[arg(long, value_name = "DIR")]
    #[serde(skip)]
    pub(crate) out: Option<PathBuf>,
    /// Print the result as JSON on standard output instead of the table.
    #[arg(long)]
    #[serde(skip)]
    pub(crate) json: bool,
}
