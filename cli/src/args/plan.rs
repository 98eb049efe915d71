//! The flags of `ata plan`.

use std::path::PathBuf;

use ata_types::{ExchangeChoice, WireFormat};
use clap::Args;

#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  ata plan gpu1=20ms gpu2=50ms 3xcpu=300ms --budget 64
  ata plan gpu1=20ms gpu2=50ms 3xcpu=300ms --budget 64 --link 1Gbit --model-bytes 100MB
  ata plan gpu=15ms+2ms 4xcpu=60ms                 a GPU that computes its share as one batch: 15 ms, and 2 ms for each task
  ata doctor --json > gpu1.json                    on each machine, with the run's --model and --task-batch; then:
  ata plan --from gpu1.json gpu2.json --link 1Gbit

A task is the gradient of --task-batch samples, and a step takes --budget tasks. Times are in us, ms or s.
Everything is simulated with constant times by the engine that decides in a real run.")]
pub(crate) struct PlanArgs {
    /// The machines: NAME=TIME with the time of a task, NxNAME=TIME for N equal ones, NAME=TIME+TIME for a machine that computes
    /// its share as one batch.
    #[arg(value_name = "MACHINE")]
    pub(crate) machines: Vec<String>,
    /// Machines from files that `ata doctor --json` wrote on them, in addition to those given by their times. Their names are those of the
    /// files. Give this flag after the machines.
    #[arg(long, value_name = "FILE", num_args = 1..)]
    pub(crate) from: Vec<PathBuf>,
    /// Tasks per step.
    #[arg(long, value_name = "B", default_value_t = 16, allow_negative_numbers = true)]
    pub(crate) budget: u64,
    /// The rate of a machine's link in each direction: 1Gbit, 200Mbit, 100MB/s, … Without it, vectors take no time.
    #[arg(long, value_name = "RATE")]
    pub(crate) link: Option<String>,
    /// The rate of the coordinator's link [default: that of a machine's].
    #[arg(long, value_name = "RATE", requires = "link")]
    pub(crate) head_link: Option<String>,
    /// The size of the model's parameters as f32: 100MB, 8MiB, … [default: that in the files of --from].
    #[arg(long, value_name = "SIZE")]
    pub(crate) model_bytes: Option<String>,
    /// The representation of gradients and parameters on the wire: f32-exact or compact [default: compact, as in a run on a network].
    #[arg(long, value_name = "FORMAT", requires = "link")]
    pub(crate) wire: Option<WireFormat>,
    /// The way in which machines exchange vectors: auto (in shards where that is shorter) or star (through the
    /// coordinator's link) [default: auto].
    #[arg(long, value_name = "WAY", requires = "link")]
    pub(crate) exchange: Option<ExchangeChoice>,
    /// The part of a task's time that does not become shorter with fewer samples [default: none].
    #[arg(long, value_name = "TIME", allow_hyphen_values = true)]
    pub(crate) task_overhead: Option<String>,
    /// Print JSON on standard output.
    #[arg(long)]
    pub(crate) json: bool,
}
