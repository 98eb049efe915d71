//! The flags of the commands that run in virtual time: `ata simulate`, `ata replay` and `ata plan`.

use std::path::PathBuf;

use ata_simulator::{LinksSpec, MAX_BUDGET};
use ata_types::{ExchangeChoice, WireFormat};
use clap::{Args, value_parser};
use serde::Serialize;
use toml::Table;

use crate::failure::Failure;
use crate::settings::{LocalStepCount, flags as flags_given};

#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  ata simulate
  ata simulate --policy fta,ata:alpha=2265,gta --task-time 'shifted_exp(29*i, 29*i)' --workers 17,51 --seeds 20
  ata simulate --experiment ata-cifar100 --out figures
  ata simulate --show speed-change > mine.toml; ata simulate --experiment mine.toml --json
  ata simulate --task-time 'trace(times.txt, wall, block=50)' --workers 10 --seeds 5
  ata simulate --experiment drift --policy fta:means=current,clairvoyant,ata-auto,gta
  ata simulate --experiment comparison --out comparison           # all hard cases, as ratios to an oracle
  ata simulate --task-time 'const(20); const(40); const(80); const(160)' --workers 4 --link 200Mbit --model-bytes 8.9MB
  ata simulate --policy uta,ata-auto --budget 240 --difference-bits 4 --link 20Mbit:100Mbit --model-bytes 8.9MB --wire compact
  ata simulate --experiment pai --data clusterdata/jobs --seeds 2

Times have no unit, except with --link. Flags override the experiment's file; a suite (comparison, pai) takes --policy, --seed, --seeds,
--iterations and --data.")]
pub(crate) struct SimulateArgs {
    /// A built-in experiment or suite (--list shows them), or a file.
    #[arg(long, value_name = "NAME|FILE")]
    pub(crate) experiment: Option<String>,
    /// List the built-in experiments.
    #[arg(long, conflicts_with_all = ["experiment", "show"])]
    pub(crate) list: bool,
    /// Print a built-in experiment's file, to copy and edit.
    #[arg(long, value_name = "NAME", conflicts_with = "experiment")]
    pub(crate) show: Option<String>,
    /// Policies separated by commas, each NAME or NAME:key=value,…; or all. `ata policies` lists them.
    #[arg(long = "policy", value_name = "POLICY")]
    pub(crate) policies: Vec<String>,
    /// A time law in terms of the worker's number i and the number of workers n; repeat the flag for several.
    #[arg(long = "task-time", visible_alias = "law", value_name = "LAW")]
    pub(crate) laws: Vec<String>,
    /// Numbers of workers, separated by commas.
    #[arg(long, value_name = "N", value_delimiter = ',', allow_negative_numbers = true)]
    pub(crate) workers: Vec<u32>,
    /// Tasks per iteration.
    #[arg(long, value_name = "B", allow_negative_numbers = true)]
    pub(crate) budget: Option<u64>,
    /// The number of iterations.
    #[arg(long, value_name = "K", allow_negative_numbers = true)]
    pub(crate) iterations: Option<u64>,
    /// The first seed.
    #[arg(long, value_name = "N", allow_negative_numbers = true)]
    pub(crate) seed: Option<u64>,
    /// The number of seeds.
    #[arg(long, value_name = "COUNT", allow_negative_numbers = true)]
    pub(crate) seeds: Option<u64>,
    /// A time law for the overhead of each assignment, before the worker computes.
    #[arg(long, value_name = "LAW")]
    pub(crate) overhead: Option<String>,
    #[command(flatten)]
    pub(crate) links: LinkArgs,
    /// The unit of times in --task-time, if there are links [default: 1ms].
    #[arg(long, value_name = "TIME")]
    pub(crate) time_unit: Option<String>,
    /// Shares of tasks that barrier policies allocate beyond the budget, separated by commas.
    #[arg(long, value_name = "X", value_delimiter = ',', allow_negative_numbers = true)]
    pub(crate) overcommit: Vec<f64>,
    /// The share of leases that two workers compute, under policies that wait for all of their tasks.
    #[arg(long, value_name = "SHARE", allow_negative_numbers = true)]
    pub(crate) verify: Option<f64>,
    /// The problem to train.
    #[arg(long, value_enum, value_name = "PROBLEM")]
    pub(crate) problem: Option<ProblemName>,
    /// The CNN's training data: synthetic, a folder, or cifar-100-binary.tar.gz. For a suite, a folder with the recorded
    /// jobs job1.txt to job4.txt: a line per minibatch, a column for each of ten workers.
    #[arg(long, env = "ATA_DATA", value_name = "DATA")]
    pub(crate) data: Option<String>,
    /// A folder for report.html and the figures as SVG and CSV; for a suite also comparison.md.
    #[arg(long, value_name = "DIR")]
    pub(crate) out: Option<PathBuf>,
    /// Print a list of objects as JSON on standard output, one per run (of a suite: one per case and policy).
    #[arg(long)]
    pub(crate) json: bool,
}

/// The links for gradients and parameters.
#[derive(Debug, Args, Serialize)]
pub(crate) struct LinkArgs {
    /// The rate of a worker's link: 1Gbit, 200Mbit, 100MB/s, … in each direction, or UP:DOWN, as in 20Mbit:100Mbit. Without it, vectors take
    /// no time.
    #[arg(long, value_name = "RATE")]
    pub(crate) link: Option<String>,
    /// The rate of the coordinator's link [default: that of a worker's].
    #[arg(long, value_name = "RATE")]
    pub(crate) head_link: Option<String>,
    /// The time from a worker to the coordinator and back, as ping measures it: 60ms [default: none].
    #[arg(long, value_name = "TIME")]
    pub(crate) round_trip: Option<String>,
    /// The size of the model's parameters as f32: 100MB, 8MiB, … [default of a plan: that in the files of --from].
    #[arg(long, value_name = "SIZE")]
    pub(crate) model_bytes: Option<String>,
    /// The representation of gradients and parameters on the wire: f32-exact or compact [default: f32-exact; of a plan: compact].
    #[arg(long, value_name = "FORMAT")]
    pub(crate) wire: Option<WireFormat>,
    /// The bits of a value in compact differences, if an iteration is a round of --budget local steps [default of a plan: 4].
    #[arg(long, value_name = "N")]
    pub(crate) difference_bits: Option<u32>,
    /// The way in which workers exchange vectors: auto (in shards where that is shorter) or star (through the
    /// coordinator's link) [default: auto].
    #[arg(long, value_name = "WAY")]
    pub(crate) exchange: Option<ExchangeChoice>,
}

impl LinkArgs {
    /// Returns the first of these flags that is given.
    pub(crate) fn first_given(&self) -> Option<&'static str> {
        let flags =
            ["--link", "--head-link", "--round-trip", "--model-bytes", "--wire", "--difference-bits", "--exchange"];
        let given = flags_given(self).unwrap_or_default();
        flags.into_iter().find(|flag| given.contains_key(&flag[2..].replace('-', "_")))
    }

    /// Returns these links with the flags applied.
    pub(crate) fn apply(&self, links: LinksSpec) -> Result<LinksSpec, Failure> {
        let mut table = Table::try_from(links).map_err(Failure::internal)?;
        table.extend(flags_given(self)?);
        table.try_into().map_err(Failure::internal)
    }
}

/// The problem that a simulation trains.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum ProblemName {
    /// Nothing: times only.
    None,
    /// The ATA paper's quadratic.
    Quadratic,
    /// The bandit paper's linear regression.
    LinearRegression,
    /// The CNN that `ata up` trains.
    Cnn,
}

#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  ata replay runs/RUN_ID/events.jsonl
  ata replay runs/RUN_ID --policy ata-auto,gta --seeds 20 --out replay

Each worker's tasks take the times that the run recorded for it, in that order. If a policy gives it more tasks than
it did in the run, further times are drawn again from its own (the bootstrap); the output shows their share.")]
pub(crate) struct ReplayArgs {
    /// A run's folder, id or name, or its events.jsonl.
    #[arg(value_name = "EVENTS")]
    pub(crate) events: PathBuf,
    /// Policies separated by commas, or all.
    #[arg(long = "policy", value_name = "POLICY", default_value = "all")]
    pub(crate) policies: Vec<String>,
    /// The number of seeds, for the policies' own draws and for the bootstrap.
    #[arg(long, value_name = "COUNT", default_value_t = 5, allow_negative_numbers = true,
          value_parser = value_parser!(u64).range(1..=10_000))]
    pub(crate) seeds: u64,
    /// The first seed.
    #[arg(long, value_name = "N", default_value_t = 1, allow_negative_numbers = true)]
    pub(crate) seed: u64,
    /// Tasks per iteration [default: the run's].
    #[arg(long, value_name = "B", allow_negative_numbers = true,
          value_parser = value_parser!(u64).range(1..=MAX_BUDGET))]
    pub(crate) budget: Option<u64>,
    /// The number of iterations [default: the run's].
    #[arg(long, value_name = "K", allow_negative_numbers = true,
          value_parser = value_parser!(u64).range(1..=10_000_000))]
    pub(crate) iterations: Option<u64>,
    /// A folder for report.html and the figures as SVG and CSV.
    #[arg(long, value_name = "DIR")]
    pub(crate) out: Option<PathBuf>,
    /// Print JSON on standard output.
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  ata plan gpu1=20ms gpu2=50ms 3xcpu=300ms --budget 64
  ata plan gpu1=20ms gpu2=50ms 3xcpu=300ms --budget 64 --link 1Gbit --model-bytes 100MB
  ata plan gpu1=20ms gpu2=50ms --link 20Mbit:100Mbit --head-link 1Gbit --round-trip 60ms --model-bytes 100MB      at home
  ata plan gpu=15ms+2ms 4xcpu=60ms                 a GPU that computes its share as one batch: 15 ms, and 2 ms for each task
  ata plan gpu1=20ms@1.20 gpu2=50ms@0.35           with their prices for an hour
  ata doctor --json > gpu1.json                    on each machine, with the run's --model and --task-batch; then:
  ata plan --from gpu1.json gpu2.json --link 1Gbit

A task is the gradient of --task-batch samples, and a step takes --budget tasks. Times are in us, ms or s.
Everything is simulated with constant times by the engine that decides in a real run.")]
pub(crate) struct PlanArgs {
    /// The machines: NAME=TIME with the time of a task, NxNAME=TIME for N equal ones, NAME=TIME+TIME for a machine that computes
    /// its share as one batch, each followed by @PRICE if it costs that for an hour.
    #[arg(value_name = "MACHINE")]
    pub(crate) machines: Vec<String>,
    /// Machines from files that `ata doctor --json` wrote on them, in addition to those given by their times. Their names are those of the
    /// files. Give this flag after the machines.
    #[arg(long, value_name = "FILE", num_args = 1..)]
    pub(crate) from: Vec<PathBuf>,
    /// Tasks per step.
    #[arg(long, value_name = "B", default_value_t = 16, allow_negative_numbers = true)]
    pub(crate) budget: u64,
    #[command(flatten)]
    pub(crate) links: LinkArgs,
    /// The number of local steps of a round, as in a run [default: auto].
    #[arg(long, value_name = "N|auto", requires = "link")]
    pub(crate) local_steps: Option<LocalStepCount>,
    /// The part of a task's time that does not become shorter with fewer samples [default: none].
    #[arg(long, value_name = "TIME", allow_hyphen_values = true)]
    pub(crate) task_overhead: Option<String>,
    /// The gradient noise scale in tasks, as `ata explain` shows it for a run with --gradient-noise: the plan then says what a second
    /// achieves, and with which budget it achieves more.
    #[arg(long, value_name = "N", allow_negative_numbers = true)]
    pub(crate) noise_scale: Option<f64>,
    /// Print JSON on standard output.
    #[arg(long)]
    pub(crate) json: bool,
}
