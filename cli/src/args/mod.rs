//! The command line.

#[cfg(target_os = "linux")]
mod chaos;
mod data;
mod doctor;
mod joining;
mod run;
mod simulation;
mod watching;

#[cfg(target_os = "linux")]
pub(crate) use chaos::ChaosArgs;
pub(crate) use data::{DataCommand, FetchArgs};
pub(crate) use doctor::DoctorArgs;
pub(crate) use joining::{JoinArgs, RotateArgs, SecurityArgs, TokenArgs, TokenCommand};
pub(crate) use run::{CommonArgs, RunArgs};
pub(crate) use simulation::{ProblemName, ReplayArgs, SimulateArgs};
pub(crate) use watching::{ExplainArgs, HealthArgs, ReportArgs, RunOrUrl, StatusArgs};

use std::path::PathBuf;

use ata_wire::limits::{MAX_TIME, MAX_WORKERS};
use clap::builder::RangedU64ValueParser;
use clap::error::ErrorKind;
use clap::{Args, Parser, Subcommand};
use serde::Serialize;

use crate::failure::Failure;
use crate::settings::{DEFAULT_DASHBOARD, Fuse, MAX_THREADS};

/// Distributed training that learns how fast each worker is.
///
/// One coordinator and many workers of unknown and unequal speed: ata learns each worker's speed while training, and
/// gives each one as many gradient tasks as make the iteration finish soonest, with no work thrown away (Adaptive Task
/// Allocation, ICML 2025).
#[derive(Debug, Parser)]
#[command(name = "ata", version, propagate_version = true, max_term_width = 100, after_help = EXAMPLES)]
pub(crate) struct Cli {
    #[command(subcommand)]
    pub(crate) command: Command,
    /// What to log on standard error: error, warn, info, debug, or directives of the tracing crate.
    #[arg(long, global = true, env = "ATA_LOG", value_name = "LEVEL", help_heading = "Output")]
    pub(crate) log: Option<String>,
    /// Whether the log is text for people, or a JSON object a line.
    #[arg(
        long,
        global = true,
        env = "ATA_LOG_FORMAT",
        value_name = "text|json",
        default_value = "text",
        hide_default_value = true,
        hide_possible_values = true,
        help_heading = "Output"
    )]
    pub(crate) log_format: LogFormat,
}

/// How the log is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum LogFormat {
    Text,
    Json,
}

const EXAMPLES: &str = "\
Examples:
  ata up                                           try it out on this machine, in about a minute
  ata coordinator --listen 0.0.0.0:7070            on the head node; prints the next line
  ata worker --join TOKEN                          on each GPU machine
  ata simulate --policy ata-auto,gta,uta           compare policies in virtual time
  ata replay runs/RUN_ID                           what other policies would have cost
  ata up --resume latest                           go on with the last run that was stopped
  ata status --watch                               what the newest run is doing
  ata explain --worker 2                           why worker 2 got its tasks
  ata eval runs/RUN_ID --data DATA                 how good a trained model is
  ata data fetch                                   download CIFAR-100
  ata data synth some-folder                       a data set to play with

Exit codes: 0 done; 64 wrong usage or configuration; 65 bad data; 69 coordinator or server unreachable;
70 internal error; 74 disk error; 75 stopped with the state saved, --resume goes on; 77 refused by the
coordinator; 130 interrupted.";

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Train on this machine: a coordinator and several workers, over real gRPC.
    Up(Box<UpArgs>),
    /// Run the head node: wait for workers, then train.
    Coordinator(Box<CoordinatorArgs>),
    /// Compute gradients for a coordinator.
    Worker(Box<WorkerArgs>),
    /// Show what a run is doing, from its folder or its coordinator.
    Status(StatusArgs),
    /// Show why each worker got its tasks: what was known, and what one task more or less would have cost.
    Explain(ExplainArgs),
    /// Write the page of a run, or of several side by side, or serve it.
    Report(ReportArgs),
    /// Show or replace the token with which workers join.
    #[command(subcommand)]
    Token(TokenCommand),
    /// Download or verify CIFAR-100, or make a synthetic data set.
    #[command(subcommand)]
    Data(DataCommand),
    /// Measure a trained model on test data: loss, accuracy, accuracy by class.
    Eval(EvalArgs),
    /// Simulate policies × time laws in virtual time: tables and figures.
    Simulate(Box<SimulateArgs>),
    /// Show what each policy would have cost on the times that a real run recorded.
    Replay(ReplayArgs),
    /// List the scheduling policies and their parameters.
    Policies {
        /// Print JSON on standard output.
        #[arg(long)]
        json: bool,
    },
    /// Find what would stop a run on this machine, or a worker on the way to its coordinator, and the mend.
    Doctor(Box<DoctorArgs>),
    /// Run a cluster on this machine under faults, and hold it against a run without any.
    ///
    /// Real processes are killed and stopped, links between them cut, stalled and slowed down, the disk filled, at random
    /// points. At the end the run is stopped with SIGTERM and repeated without faults: the parameters must be the same bits.
    /// The exit code is 0 only if every promise of recovery was kept.
    #[cfg(target_os = "linux")]
    Chaos(Box<ChaosArgs>),
    /// Measure this build on this machine, each figure against a reference in the same run.
    Bench(BenchArgs),
    /// Ask whether a coordinator lives, for health checks; the exit code is 69 if it does not.
    Health(HealthArgs),
    /// Print completions for a shell: `ata completions bash > /etc/bash_completion.d/ata`.
    Completions {
        /// bash, elvish, fish, powershell or zsh.
        shell: clap_complete::Shell,
    },
    /// Write the reference pages of the documentation.
    #[command(hide = true)]
    Reference {
        /// The folder for them.
        #[arg(long, value_name = "DIR")]
        out: PathBuf,
    },
    /// Write the manual pages: `ata man --out /usr/local/share/man/man1`.
    Man {
        /// The folder for them.
        #[arg(long, value_name = "DIR")]
        out: PathBuf,
    },
}

/// Where traces go.
#[derive(Debug, Args)]
pub(crate) struct TraceArgs {
    /// Send a trace of each iteration to an OpenTelemetry collector, by gRPC: http://127.0.0.1:4317. Needs the feature otlp.
    #[arg(long, env = "ATA_OTLP", value_name = "URL", help_heading = "Output")]
    otlp: Option<String>,
}

impl TraceArgs {
    /// The collector's URL; an empty variable names none.
    pub(crate) fn url(&self) -> Option<&str> {
        self.otlp.as_deref().filter(|url| !url.is_empty())
    }
}

#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  ata up
  ata up --data cifar-100-binary.tar.gz --iterations 1000 --lr 1e-3
  ata up --policy uta --seed 1
  ata up --warm-start runs/RUN --target-loss 0.5
  ata up --verify 0.05 --aggregate trimmed:0.2
  ata up --workers 51 --budget 23 --task-time 'shifted_exp(29*i, 29*i)' --time-unit 0.1ms")]
pub(crate) struct UpArgs {
    #[command(flatten)]
    pub(crate) common: CommonArgs,
    #[command(flatten)]
    pub(crate) run: RunArgs,
    #[command(flatten)]
    pub(crate) local: LocalArgs,
    #[command(flatten)]
    pub(crate) traces: TraceArgs,
}

/// The settings of a cluster on one machine.
#[derive(Clone, Debug, Default, Args, Serialize)]
pub(crate) struct LocalArgs {
    /// Worker processes.
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
    /// Emulated task times by worker number i: 'shifted_exp(29*i, 29*i)', 'scale(1); scale(2)', … or none. A device that
    /// computes its share as one batch: 'affine(20, 0.5)', 20 for the batch and 0.5 for each task.
    #[arg(long, env = "ATA_TASK_TIME", value_name = "LAW")]
    task_time: Option<String>,
    /// The unit of times in --task-time: 1ms, 0.1ms, 1s, …
    #[arg(long, env = "ATA_TIME_UNIT", value_name = "TIME")]
    time_unit: Option<String>,
    /// CPU threads that each worker computes with [default: an equal share of this machine's cores].
    #[arg(long, env = "ATA_THREADS", value_name = "N", allow_negative_numbers = true)]
    threads: Option<usize>,
    /// Serve the dashboard meanwhile [default: off; without an address, 127.0.0.1:7071 or a free port].
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

#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  ata coordinator                                        listen on this machine only
  ata coordinator --listen 0.0.0.0:7070 --min-workers 8  and on others, who join by the token that it prints
  ata coordinator --listen 0.0.0.0:7070 --tls-cert head.pem --tls-key head.key --tls-client-ca workers-ca.pem")]
pub(crate) struct CoordinatorArgs {
    #[command(flatten)]
    pub(crate) common: CommonArgs,
    #[command(flatten)]
    pub(crate) run: RunArgs,
    #[command(flatten)]
    pub(crate) head: HeadArgs,
    /// Write a JSON object with the keys run_id, address and resumes_after (the iteration that the run goes on after, or 0) to
    /// this file as soon as workers can connect.
    #[arg(long, env = "ATA_READY_FILE", value_name = "FILE", help_heading = "Output")]
    pub(crate) ready_file: Option<PathBuf>,
    #[command(flatten)]
    pub(crate) traces: TraceArgs,
}

/// The settings of the head node.
#[derive(Clone, Debug, Default, Args, Serialize)]
pub(crate) struct HeadArgs {
    /// Address and port to listen on; port 0 picks a free one.
    #[arg(long, env = "ATA_LISTEN", value_name = "ADDRESS")]
    listen: Option<String>,
    /// Workers to wait for before the first iteration.
    #[arg(long, env = "ATA_MIN_WORKERS", value_name = "N", allow_negative_numbers = true)]
    min_workers: Option<usize>,
    /// Where to serve the dashboard and the metrics: on another address than loopback over TLS, to those who have the status
    /// secret [default: 127.0.0.1:7071, or a free port if that is taken].
    #[arg(long, env = "ATA_DASHBOARD", value_name = "ADDRESS|off", help_heading = "Output")]
    dashboard: Option<String>,
    #[command(flatten)]
    #[serde(flatten)]
    security: SecurityArgs,
}

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
    /// auto, cpu, wgpu, wgpu:INDEX, cuda or cuda:INDEX.
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
    /// The training data, as the coordinator's --data takes it, so that it does not have to be sent.
    #[arg(long, env = "ATA_DATA", value_name = "DATA")]
    pub(crate) data: Option<PathBuf>,
    /// How long to keep trying to reach a coordinator, in seconds since the last contact.
    #[arg(long, env = "ATA_RETRY_FOR", value_name = "S", default_value_t = 30, allow_negative_numbers = true,
          value_parser = RangedU64ValueParser::<u64>::new().range(0..=MAX_TIME.as_secs()))]
    pub(crate) retry_for: u64,
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
    #[command(flatten)]
    pub(crate) traces: TraceArgs,
}

#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  ata eval runs/RUN_ID
  ata eval runs/RUN_ID/model-best.safetensors --data cifar-100-binary.tar.gz --json")]
pub(crate) struct EvalArgs {
    /// A run's folder or name, a checkpoint's folder, or a model.safetensors.
    #[arg(value_name = "RUN|FILE")]
    pub(crate) model: PathBuf,
    /// synthetic, a folder with CIFAR-100's test.bin, or cifar-100-binary.tar.gz [default: the run's data].
    #[arg(long, env = "ATA_DATA", value_name = "DATA")]
    pub(crate) data: Option<String>,
    /// Seed of synthetic data [default: the run's].
    #[arg(long, env = "ATA_SEED", value_name = "N")]
    pub(crate) seed: Option<u64>,
    /// auto, cpu, wgpu, wgpu:INDEX, cuda or cuda:INDEX.
    #[arg(long, env = "ATA_DEVICE", value_name = "DEVICE", default_value = "auto")]
    pub(crate) device: String,
    /// Print JSON on standard output.
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  ata bench
  ata bench allocation transport --json")]
pub(crate) struct BenchArgs {
    /// What to measure [default: everything].
    #[arg(value_enum)]
    pub(crate) subjects: Vec<ata_bench::Subject>,
    /// Print JSON on standard output.
    #[arg(long)]
    pub(crate) json: bool,
}

/// Reads the command line; help and version end the program here.
pub(crate) fn parse() -> Result<Cli, Failure> {
    match Cli::try_parse() {
        Ok(cli) => Ok(cli),
        Err(error) if matches!(error.kind(), ErrorKind::DisplayHelp | ErrorKind::DisplayVersion) => error.exit(),
        Err(error) => Err(Failure::usage(in_short(&error))),
    }
}

/// clap's message without its usage section.
fn in_short(error: &clap::Error) -> String {
    let full = error.render().to_string();
    let short = full.split("\n\nUsage:").next().unwrap_or(&full);
    let short = short.split("\n\nFor more information").next().unwrap_or(short);
    format!("{}. See `ata help` or `--help`", short.trim_start_matches("error: ").trim_end())
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::CommandFactory;

    #[test]
    fn the_command_line_is_consistent() {
        Cli::command().debug_assert();
    }
}
