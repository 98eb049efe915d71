//! The command line.

mod data;
mod simulation;

pub(crate) use data::{DataCommand, FetchArgs};
pub(crate) use simulation::{ProblemName, ReplayArgs, SimulateArgs};

use std::path::PathBuf;

use clap::error::ErrorKind;
use clap::{Args, Parser, Subcommand};
use serde::Serialize;

use crate::failure::Failure;
use crate::run::resume::Resumption;
use crate::settings::{Flags, Settings};

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
}

const EXAMPLES: &str = "\
Examples:
  ata up                                           try it out on this machine, in about a minute
  ata coordinator --listen 127.0.0.1:7070          on the head node
  ata worker --coordinator http://head:7070        on each GPU machine
  ata simulate --policy ata-auto,gta,uta           compare policies in virtual time
  ata replay runs/RUN_ID                           what other policies would have cost
  ata data fetch                                   download CIFAR-100
  ata data synth some-folder                       a data set to play with

Exit codes: 0 done; 64 wrong usage or configuration; 65 bad data; 69 coordinator or server unreachable;
70 internal error; 74 disk error; 77 refused by the coordinator; 130 interrupted.";

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Train on this machine: a coordinator and several workers, over real gRPC.
    Up(Box<UpArgs>),
    /// Run the head node: wait for workers, then train.
    Coordinator(Box<CoordinatorArgs>),
    /// Compute gradients for a coordinator.
    Worker(Box<WorkerArgs>),
    /// Download or verify CIFAR-100, or make a synthetic data set.
    #[command(subcommand)]
    Data(DataCommand),
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
    /// Find what would prevent a run on this machine, and what to do about it.
    Doctor(DoctorArgs),
    /// Measure this build on this machine, each figure against a reference in the same run.
    Bench(BenchArgs),
}

/// The settings of a run; flags override environment variables, which override the file.
#[derive(Clone, Debug, Default, Args, Serialize)]
pub(crate) struct RunArgs {
    /// The scheduling policy: NAME or NAME:key=value,…; `ata policies` lists them [default: ata-auto].
    #[arg(long, env = "ATA_POLICY", value_name = "POLICY")]
    policy: Option<String>,
    /// Optimizer steps [default: 200].
    #[arg(long, env = "ATA_ITERATIONS", value_name = "K", allow_negative_numbers = true)]
    iterations: Option<u64>,
    /// Tasks per iteration [default: 16].
    #[arg(long, env = "ATA_BUDGET", value_name = "B", allow_negative_numbers = true)]
    budget: Option<u64>,
    /// Samples per task [default: 6, or 1 if --task-time gives absolute times].
    #[arg(long, env = "ATA_TASK_BATCH", value_name = "S", allow_negative_numbers = true)]
    task_batch: Option<u32>,
    /// synthetic, a folder with CIFAR-100's train.bin and test.bin, or cifar-100-binary.tar.gz.
    #[arg(long, env = "ATA_DATA", value_name = "DATA")]
    data: Option<String>,
    /// cnn, or cnn:widths=C1/C2/C3/H.
    #[arg(long, env = "ATA_MODEL", value_name = "MODEL")]
    model: Option<String>,
    #[command(flatten)]
    #[serde(flatten)]
    training: TrainingArgs,
    /// Seed of the parameters, the data order and every random choice.
    #[arg(long, env = "ATA_SEED", value_name = "N", allow_negative_numbers = true)]
    seed: Option<u64>,
    /// auto, cpu, wgpu, wgpu:INDEX, cuda or cuda:INDEX.
    #[arg(long, env = "ATA_DEVICE", value_name = "DEVICE")]
    device: Option<String>,
    /// The run's folder, which must not hold a run yet [default: runs/RUN_ID].
    #[arg(long, env = "ATA_OUT", value_name = "DIR")]
    out: Option<PathBuf>,
    /// A worker not heard from for this long is lost.
    #[arg(long, env = "ATA_HEARTBEAT_TIMEOUT_MS", value_name = "MS", allow_negative_numbers = true)]
    heartbeat_timeout_ms: Option<u64>,
    /// A worker that was never timed counts as hung after this long without a result; others after ten times their
    /// usual time, but at least a tenth of this.
    #[arg(long, env = "ATA_LEASE_TIMEOUT_S", value_name = "S", allow_negative_numbers = true)]
    lease_timeout_s: Option<f64>,
    /// Allocate this share of tasks beyond the budget, and take the first results: wastes work for speed [default: 0].
    #[arg(long, env = "ATA_OVERCOMMIT", value_name = "X", allow_negative_numbers = true)]
    overcommit: Option<f64>,
    /// An earlier run's folder: start with the speeds that it learned.
    #[arg(long, env = "ATA_WARM_START", value_name = "RUN")]
    warm_start: Option<PathBuf>,
    /// End once an iteration's mean loss is at or below this.
    #[arg(
        long,
        env = "ATA_TARGET_LOSS",
        value_name = "LOSS",
        allow_negative_numbers = true,
        help_heading = "Stopping"
    )]
    target_loss: Option<f64>,
    /// End after the iteration in which an evaluation reached this accuracy, from 0 to 1.
    #[arg(
        long,
        env = "ATA_TARGET_ACCURACY",
        value_name = "X",
        allow_negative_numbers = true,
        help_heading = "Stopping"
    )]
    target_accuracy: Option<f64>,
    /// End after the iteration in which this many seconds have passed.
    #[arg(long, env = "ATA_MAX_RUNTIME_S", value_name = "S", allow_negative_numbers = true, help_heading = "Stopping")]
    max_runtime_s: Option<f64>,
    /// End after the iteration in which this much total worker time is spent, in seconds.
    #[arg(
        long,
        env = "ATA_MAX_WORKER_TIME_S",
        value_name = "S",
        allow_negative_numbers = true,
        help_heading = "Stopping"
    )]
    max_worker_time_s: Option<f64>,
    /// End after the iteration in which workers were employed this many times in all.
    #[arg(
        long,
        env = "ATA_MAX_EMPLOYMENTS",
        value_name = "N",
        allow_negative_numbers = true,
        help_heading = "Stopping"
    )]
    max_employments: Option<u64>,
}

/// How the parameters are trained, evaluated and saved.
#[derive(Clone, Debug, Default, Args, Serialize)]
pub(crate) struct TrainingArgs {
    /// adam, adamw or sgd [default: adam].
    #[arg(long, env = "ATA_OPTIMIZER", value_name = "NAME", help_heading = "Training")]
    optimizer: Option<String>,
    /// The learning rate, or its peak [default: 0.001].
    #[arg(long, env = "ATA_LR", value_name = "X", allow_negative_numbers = true, help_heading = "Training")]
    lr: Option<f64>,
    /// constant, cosine (to 0 at the last iteration) or step (see --lr-step-every) [default: constant].
    #[arg(long, env = "ATA_LR_SCHEDULE", value_name = "NAME", help_heading = "Training")]
    lr_schedule: Option<String>,
    /// Iterations over which the learning rate rises linearly to its peak [default: 0].
    #[arg(long, env = "ATA_LR_WARMUP", value_name = "K", allow_negative_numbers = true, help_heading = "Training")]
    lr_warmup: Option<u64>,
    /// Iterations after which --lr-schedule step changes the rate [default: 1000].
    #[arg(long, env = "ATA_LR_STEP_EVERY", value_name = "K", allow_negative_numbers = true, help_heading = "Training")]
    lr_step_every: Option<u64>,
    /// The factor by which it changes it [default: 0.1].
    #[arg(
        long,
        env = "ATA_LR_STEP_FACTOR",
        value_name = "X",
        allow_negative_numbers = true,
        help_heading = "Training"
    )]
    lr_step_factor: Option<f64>,
    /// Momentum of sgd [default: 0.9].
    #[arg(long, env = "ATA_MOMENTUM", value_name = "X", allow_negative_numbers = true, help_heading = "Training")]
    momentum: Option<f64>,
    /// Nesterov's momentum for sgd.
    #[arg(
        long,
        env = "ATA_NESTEROV",
        num_args = 0..=1,
        default_missing_value = "true",
        value_name = "BOOL",
        help_heading = "Training"
    )]
    nesterov: Option<bool>,
    /// L2 penalty on the parameters; decoupled from the gradient for adamw [default: 0.01 for adamw, else 0].
    #[arg(long, env = "ATA_WEIGHT_DECAY", value_name = "X", allow_negative_numbers = true, help_heading = "Training")]
    weight_decay: Option<f64>,
    /// Scale gradients down to this Euclidean norm if they exceed it.
    #[arg(long, env = "ATA_CLIP_NORM", value_name = "X", allow_negative_numbers = true, help_heading = "Training")]
    clip_norm: Option<f64>,
    /// Begin with the parameters of this model.safetensors, which PyTorch may have written.
    #[arg(long, env = "ATA_INIT", value_name = "FILE", help_heading = "Training")]
    init: Option<PathBuf>,
    /// Iterations between two evaluations on the test data, beside the training; 0 for only one at the end
    /// [default: a tenth of the run].
    #[arg(long, env = "ATA_EVAL_EVERY", value_name = "K", allow_negative_numbers = true, help_heading = "Training")]
    eval_every: Option<u64>,
    /// How often the run is saved: a time (60s, 10m), a number of iterations, or never [default: 60s].
    #[arg(long, env = "ATA_CHECKPOINT_EVERY", value_name = "T", allow_hyphen_values = true, help_heading = "Saving")]
    checkpoint_every: Option<String>,
    /// How many checkpoints are kept [default: 3].
    #[arg(long, env = "ATA_KEEP", value_name = "N", allow_negative_numbers = true, help_heading = "Saving")]
    keep: Option<usize>,
    /// Besides, keep the checkpoints of iterations divisible by this.
    #[arg(long, env = "ATA_KEEP_EVERY", value_name = "K", allow_negative_numbers = true, help_heading = "Saving")]
    keep_every: Option<u64>,
}

/// The settings file, and the form of the output.
#[derive(Clone, Debug, Default, Args)]
pub(crate) struct CommonArgs {
    /// A TOML file of settings, named like the flags: task_batch = 16.
    #[arg(long, env = "ATA_CONFIG", value_name = "FILE")]
    pub(crate) config: Option<PathBuf>,
    /// Go on with a run that stopped: auto (if there is one, else begin), latest, its name or its folder, or a
    /// checkpoint's folder. Its settings apply; flags may extend or change them.
    #[arg(long, env = "ATA_RESUME", value_name = "RUN", help_heading = "Saving")]
    pub(crate) resume: Option<String>,
    /// Print the run's summary as JSON on standard output instead of the table.
    #[arg(long, help_heading = "Output")]
    pub(crate) json: bool,
}

impl CommonArgs {
    /// The settings of the run, and the run that is to go on, if any.
    pub(crate) fn settings(&self, flags: &[&dyn Flags]) -> Result<(Settings, Option<Resumption>), Failure> {
        let file = self.config.as_deref();
        let fresh = Settings::resolve(&file.into_iter().collect::<Vec<_>>(), flags)?;
        let Some(resume) = &self.resume else { return Ok((fresh, None)) };
        match Resumption::find(resume, fresh.out.as_deref())? {
            Some(resumption) => Ok((resumption.settings(file, flags)?, Some(resumption))),
            None => Ok((fresh, None)),
        }
    }
}

/// Examples:
///   ata up
///   ata up --data cifar-100-binary.tar.gz --iterations 1000 --lr 1e-3
///   ata up --policy uta --seed 1
///   ata up --warm-start runs/RUN --target-loss 0.5
///   ata up --workers 51 --budget 23 --task-time 'shifted_exp(29*i, 29*i)' --time-unit 0.1ms
#[derive(Debug, Args)]
#[command(verbatim_doc_comment)]
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
    /// Worker processes.
    #[arg(long, env = "ATA_WORKERS", value_name = "N", allow_negative_numbers = true)]
    workers: Option<u32>,
    /// Emulated task times by worker number i: 'shifted_exp(29*i, 29*i)', 'scale(1); scale(2)', … or none.
    #[arg(long, env = "ATA_TASK_TIME", value_name = "LAW")]
    task_time: Option<String>,
    /// The unit of times in --task-time: 1ms, 0.1ms, 1s, …
    #[arg(long, env = "ATA_TIME_UNIT", value_name = "TIME")]
    time_unit: Option<String>,
    /// CPU threads that each worker computes with [default: an equal share of this machine's cores].
    #[arg(long, env = "ATA_THREADS", value_name = "N", allow_negative_numbers = true)]
    threads: Option<usize>,
}

/// Examples:
///   ata coordinator                                        listen on this machine only
///   ata coordinator --listen 0.0.0.0:7070 --insecure --config run.toml --min-workers 8
#[derive(Debug, Args)]
#[command(verbatim_doc_comment)]
pub(crate) struct CoordinatorArgs {
    #[command(flatten)]
    pub(crate) common: CommonArgs,
    #[command(flatten)]
    pub(crate) run: RunArgs,
    #[command(flatten)]
    pub(crate) head: HeadArgs,
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
    /// Accept connections from other machines, although they are neither encrypted nor authenticated.
    #[arg(long, env = "ATA_INSECURE", num_args = 0..=1, default_missing_value = "true", value_name = "BOOL")]
    insecure: Option<bool>,
}

/// Examples:
///   ata worker --coordinator http://head:7070
///   ata worker --coordinator http://head:7070 --device wgpu:1 --name rig-2
#[derive(Debug, Args)]
#[command(verbatim_doc_comment)]
pub(crate) struct WorkerArgs {
    /// The coordinator's address.
    #[arg(long, env = "ATA_COORDINATOR", value_name = "URL", default_value = "http://127.0.0.1:7070")]
    pub(crate) coordinator: String,
    /// This worker's name, under which its speed is remembered [default: the host name].
    #[arg(long, env = "ATA_NAME")]
    pub(crate) name: Option<String>,
    /// auto, cpu, wgpu, wgpu:INDEX, cuda or cuda:INDEX.
    #[arg(long, env = "ATA_DEVICE", value_name = "DEVICE", default_value = "auto")]
    pub(crate) device: String,
    /// A folder or archive with the training data, so that the coordinator does not have to send it.
    #[arg(long, env = "ATA_DATA", value_name = "DATA")]
    pub(crate) data: Option<PathBuf>,
    /// How long to keep trying to reach a coordinator, in seconds since the last contact.
    #[arg(long, env = "ATA_RETRY_FOR", value_name = "S", default_value_t = 30, allow_negative_numbers = true)]
    pub(crate) retry_for: u64,
    /// CPU threads to compute with [default: all cores].
    #[arg(long, env = "ATA_THREADS", value_name = "N", allow_negative_numbers = true)]
    pub(crate) threads: Option<usize>,
    /// Emulated task times: a law in terms of the worker's number i and the number of workers n.
    #[arg(long, env = "ATA_TASK_TIME", value_name = "LAW", help_heading = "Emulated slowness")]
    pub(crate) task_time: Option<String>,
    /// The unit of times in --task-time.
    #[arg(long, env = "ATA_TIME_UNIT", value_name = "TIME", default_value = "1ms", help_heading = "Emulated slowness")]
    pub(crate) time_unit: String,
    /// The number i that this worker asks for [default: chosen by the coordinator].
    #[arg(long, value_name = "I", allow_negative_numbers = true, help_heading = "Emulated slowness")]
    pub(crate) number: Option<u32>,
    /// The number of workers n.
    #[arg(
        long,
        value_name = "N",
        default_value_t = 1,
        allow_negative_numbers = true,
        help_heading = "Emulated slowness"
    )]
    pub(crate) workers: u32,
}

/// Examples:
///   ata doctor
///   ata doctor --device wgpu:0 --task-batch 4
#[derive(Debug, Args)]
#[command(verbatim_doc_comment)]
pub(crate) struct DoctorArgs {
    /// The device to check; its gradient is compared with the CPU's.
    #[arg(long, env = "ATA_DEVICE", value_name = "DEVICE", default_value = "auto")]
    pub(crate) device: String,
    /// Number of samples in the gradient.
    #[arg(long, value_name = "S", default_value_t = 16)]
    pub(crate) task_batch: u32,
    /// The address a coordinator would listen on.
    #[arg(long, env = "ATA_LISTEN", value_name = "ADDRESS", default_value = "127.0.0.1:7070")]
    pub(crate) listen: String,
    /// Print JSON on standard output.
    #[arg(long)]
    pub(crate) json: bool,
}

/// Examples:
///   ata bench
///   ata bench allocation transport --json
#[derive(Debug, Args)]
#[command(verbatim_doc_comment)]
pub(crate) struct BenchArgs {
    /// What to measure [default: everything].
    #[arg(value_enum)]
    pub(crate) subjects: Vec<BenchSubject>,
    /// Print JSON on standard output.
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum BenchSubject {
    /// RAS at n = 51, B = 23 and at n = B = 10^6.
    Allocation,
    /// A result, a step and a join in large runs, against the same in small ones.
    Engine,
    /// An iteration of the simulator, at n = 51 and at n = 10^5.
    Simulation,
    /// Parameters and gradients through gRPC, against a TCP copy of the same bytes.
    Transport,
    /// The reduction of gradients, against a memory copy of the same bytes.
    Aggregation,
    /// Everything in an iteration that is not gradient computation, at 4 and at 64 workers.
    Coordination,
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
