//! The flags of a run, of `ata up` and of `ata coordinator`.

use std::path::PathBuf;

use ata_learn::Precision;
use ata_types::{ExchangeChoice, WireFormat};
use clap::Args;
use serde::Serialize;

use super::{FolderArgs, SecurityArgs};
use crate::settings::{
    DEFAULT_DASHBOARD, EvaluateOn, Fuse, KeptJournal, OnBadSample, Span, Tag, as_setting, parse_tag,
};

/// The settings of a run; flags override environment variables, which override the file.
#[derive(Clone, Debug, Default, Args, Serialize)]
pub(crate) struct RunArgs {
    /// The scheduling policy: NAME or NAME:key=value,…; `ata policies` lists them [default: ata-auto].
    #[arg(long, env = "ATA_POLICY", value_name = "POLICY")]
    policy: Option<String>,
    /// Optimizer steps, or passes over the training data, as in 30epochs [default: 200].
    #[arg(long, env = "ATA_ITERATIONS", value_name = "K", allow_negative_numbers = true)]
    iterations: Option<Span>,
    /// Tasks per iteration [default: 16].
    #[arg(long, env = "ATA_BUDGET", value_name = "B", allow_negative_numbers = true)]
    budget: Option<u64>,
    /// Samples per task [default: 6, or 1 if --task-time gives absolute times].
    #[arg(long, env = "ATA_TASK_BATCH", value_name = "S", allow_negative_numbers = true)]
    task_batch: Option<u32>,
    /// The data: synthetic, a folder of images (train/CLASS/*.png, test/CLASS/*.png) or what `ata data pack` made of one, a folder with
    /// CIFAR-100's train.bin and test.bin, or cifar-100-binary.tar.gz; or the URL of a folder in an object store with images that were
    /// packed with --shard-mb. A model of your own may take something else.
    #[arg(long, env = "ATA_DATA", value_name = "DATA")]
    data: Option<String>,
    #[command(flatten)]
    #[serde(flatten)]
    folder: FolderArgs,
    /// The model: cnn, cnn:widths=C1/C2/C3/H, resnet20 (for images of 32 pixels), resnet18 (for 224), or resnet20:width=W; classes=N and
    /// size=S are taken from --data if they are not given, as in cnn:size=64.
    #[arg(long, env = "ATA_MODEL", value_name = "MODEL")]
    model: Option<String>,
    /// Write scalars for TensorBoard to the folder tensorboard in the run's.
    #[arg(long, env = "ATA_TENSORBOARD", num_args = 0..=1, default_missing_value = "true", value_name = "BOOL",
          help_heading = "Output")]
    tensorboard: Option<bool>,
    #[command(flatten, next_help_heading = "Training")]
    #[serde(flatten)]
    training: TrainingArgs,
    #[command(flatten, next_help_heading = None::<&str>)]
    #[serde(flatten)]
    other: OtherRunArgs,
    #[command(flatten, next_help_heading = "Stopping")]
    #[serde(flatten)]
    stopping: StoppingArgs,
}

/// The settings of a run that are neither those of its training nor the limits that stop it.
#[derive(Clone, Debug, Default, Args, Serialize)]
pub(crate) struct OtherRunArgs {
    /// Seed of the parameters, the data order and every random choice.
    #[arg(long, env = "ATA_SEED", value_name = "N", allow_negative_numbers = true)]
    seed: Option<u64>,
    /// The device: auto, cpu, wgpu, wgpu:INDEX, cuda or cuda:INDEX.
    #[arg(long, env = "ATA_DEVICE", value_name = "DEVICE")]
    device: Option<String>,
    /// The run's folder, which must not hold a run yet [default: runs/RUN_ID].
    #[arg(long, env = "ATA_OUT", value_name = "DIR")]
    out: Option<PathBuf>,
    /// A name by which other commands find the run, in addition to its id and its folder.
    #[arg(long, env = "ATA_RUN_NAME", value_name = "NAME")]
    name: Option<String>,
    /// A tag of the run, such as team=vision, shown by `status`, the dashboard, reports and metrics; may be given several times.
    #[arg(long = "tag", env = "ATA_TAG", value_name = "KEY=VALUE", value_parser = parse_tag)]
    #[serde(skip_serializing_if = "Vec::is_empty", serialize_with = "as_setting")]
    tags: Vec<Tag>,
    /// A worker that has been silent for this long counts as lost.
    #[arg(long, env = "ATA_HEARTBEAT_TIMEOUT_MS", value_name = "MS", allow_negative_numbers = true)]
    heartbeat_timeout_ms: Option<u64>,
    /// A worker that was never timed counts as hung after this long without a result; others after ten times their
    /// usual time, but at least a tenth of this.
    #[arg(long, env = "ATA_LEASE_TIMEOUT_S", value_name = "S", allow_negative_numbers = true)]
    lease_timeout_s: Option<f64>,
    /// Price of one second of runtime, in worker-seconds, under ata-auto: 2 pays for two busy workers [default: as many as are
    /// in use]. A higher price makes the run faster and uses more worker time.
    #[arg(long, env = "ATA_TIME_PRICE", value_name = "W", allow_negative_numbers = true)]
    time_price: Option<f64>,
    /// Allocate this share of tasks beyond the budget, and take the first results: wastes work for speed [default: 0].
    #[arg(long, env = "ATA_OVERCOMMIT", value_name = "X", allow_negative_numbers = true)]
    overcommit: Option<f64>,
    /// Have this share of leases, as in 0.01, computed by two workers, which must agree; a third decides if they do not, and
    /// a worker whose results do not match is named and expelled. For policies that wait for all tasks [default: 0].
    #[arg(long, env = "ATA_VERIFY", value_name = "SHARE", allow_negative_numbers = true, help_heading = "Trust")]
    verify: Option<f64>,
    /// The representation of gradients and parameters on the wire: f32-exact (4 bytes a value each way), or compact (gradients in about 14
    /// bits, parameters as 8-bit differences). The default is f32-exact if the coordinator listens on loopback, else compact.
    #[arg(long, env = "ATA_WIRE", value_name = "FORMAT", help_heading = "Network")]
    wire: Option<WireFormat>,
    /// The way in which workers exchange gradients and parameters: star (through the coordinator's link), shards (among each other, each of
    /// them summing a part; the coordinator's link carries one of each), or auto (shards where they are shorter) [default: auto].
    #[arg(long, env = "ATA_EXCHANGE", value_name = "WAY", help_heading = "Network")]
    exchange: Option<ExchangeChoice>,
    /// Hosts, separated by commas, that workers may name (--peer-host) for others to reach them at. Any other name is ignored: they are
    /// reached at the address from which they connect to the coordinator [default: none].
    #[arg(long, env = "ATA_PEER_HOSTS", value_name = "HOSTS", help_heading = "Network")]
    peer_hosts: Option<String>,
    /// Start with the worker speeds that an earlier run learned: its folder.
    #[arg(long, env = "ATA_WARM_START", value_name = "RUN")]
    warm_start: Option<PathBuf>,
}

/// The limits that end a run early.
#[derive(Clone, Debug, Default, Args, Serialize)]
pub(crate) struct StoppingArgs {
    /// End once an iteration's mean loss is at or below this.
    #[arg(long, env = "ATA_TARGET_LOSS", value_name = "LOSS", allow_negative_numbers = true)]
    target_loss: Option<f64>,
    /// End after the iteration in which an evaluation reached this accuracy, from 0 to 1.
    #[arg(long, env = "ATA_TARGET_ACCURACY", value_name = "X", allow_negative_numbers = true)]
    target_accuracy: Option<f64>,
    /// End after the iteration in which this many seconds have passed.
    #[arg(long, env = "ATA_MAX_RUNTIME_S", value_name = "S", allow_negative_numbers = true)]
    max_runtime_s: Option<f64>,
    /// End after the iteration in which this much total worker time is spent, in seconds.
    #[arg(long, env = "ATA_MAX_WORKER_TIME_S", value_name = "S", allow_negative_numbers = true)]
    max_worker_time_s: Option<f64>,
    /// End after the iteration in which workers were employed this many times in all.
    #[arg(long, env = "ATA_MAX_EMPLOYMENTS", value_name = "N", allow_negative_numbers = true)]
    max_employments: Option<u64>,
}

/// The training, the evaluation and the checkpoints.
#[derive(Clone, Debug, Default, Args, Serialize)]
pub(crate) struct TrainingArgs {
    /// The optimizer: adam, adamw, sgd, or own (that of a Python program) [default: adam, or own if there is one].
    #[arg(long, env = "ATA_OPTIMIZER", value_name = "NAME")]
    optimizer: Option<String>,
    /// The learning rate, or its peak [default: 0.001].
    #[arg(long, env = "ATA_LR", value_name = "X", allow_negative_numbers = true)]
    lr: Option<f64>,
    /// The schedule of the learning rate: constant, cosine (to 0 at the last iteration), one-cycle (as PyTorch's, without the
    /// cycle of the momentum) or step (see --lr-step-every) [default: constant].
    #[arg(long, env = "ATA_LR_SCHEDULE", value_name = "NAME")]
    lr_schedule: Option<String>,
    /// Iterations, or epochs, over which the learning rate rises linearly to its peak [default: 0].
    #[arg(long, env = "ATA_LR_WARMUP", value_name = "K", allow_negative_numbers = true)]
    lr_warmup: Option<Span>,
    /// Iterations, or epochs, after which --lr-schedule step changes the rate [default: 1000].
    #[arg(long, env = "ATA_LR_STEP_EVERY", value_name = "K", allow_negative_numbers = true)]
    lr_step_every: Option<Span>,
    /// The factor by which --lr-schedule step changes the rate [default: 0.1].
    #[arg(long, env = "ATA_LR_STEP_FACTOR", value_name = "X", allow_negative_numbers = true)]
    lr_step_factor: Option<f64>,
    /// The momentum of sgd [default: 0.9].
    #[arg(long, env = "ATA_MOMENTUM", value_name = "X", allow_negative_numbers = true)]
    momentum: Option<f64>,
    /// Nesterov's momentum for sgd.
    #[arg(long, env = "ATA_NESTEROV", num_args = 0..=1, default_missing_value = "true", value_name = "BOOL")]
    nesterov: Option<bool>,
    /// The decay rate of the first moment of adam and adamw [default: 0.9].
    #[arg(long, env = "ATA_BETA1", value_name = "X", allow_negative_numbers = true)]
    beta1: Option<f64>,
    /// The decay rate of the second moment [default: 0.999].
    #[arg(long, env = "ATA_BETA2", value_name = "X", allow_negative_numbers = true)]
    beta2: Option<f64>,
    /// What adam and adamw add to the root of the second moment [default: 1e-8].
    #[arg(long, env = "ATA_EPSILON", value_name = "X", allow_negative_numbers = true)]
    epsilon: Option<f64>,
    /// L2 penalty on the parameters; decoupled from the gradient for adamw [default: 0.01 for adamw, else 0].
    #[arg(long, env = "ATA_WEIGHT_DECAY", value_name = "X", allow_negative_numbers = true)]
    weight_decay: Option<f64>,
    /// Parameter groups with a weight decay or a factor of the learning rate of their own, by the names of tensors (* stands for any
    /// characters), as in "*.bias *norm*: weight_decay=0; head.*: lr_factor=10". The first group that matches counts.
    #[arg(long, env = "ATA_PARAM_GROUPS", value_name = "GROUPS")]
    param_groups: Option<String>,
    /// Scale gradients whose Euclidean norm is larger down to this norm.
    #[arg(long, env = "ATA_CLIP_NORM", value_name = "X", allow_negative_numbers = true)]
    clip_norm: Option<f64>,
    /// Keep an exponential moving average of the parameters with this decay, as in 0.999, evaluate it instead of them, and save it as
    /// model-ema.safetensors.
    #[arg(long, env = "ATA_EMA", value_name = "DECAY", allow_negative_numbers = true)]
    ema: Option<f64>,
    /// Change the training images at random: crop (moves them by up to an eighth of their size), flip (mirrors half of them), mixup
    /// (mixes each one with another one of its task), or several, as in crop,flip. A task's images depend on the seed alone, so that
    /// results do not depend on who computes [default: as they are].
    #[arg(long, env = "ATA_AUGMENT", value_name = "HOW")]
    augment: Option<String>,
    /// The share of each label, from 0 to below 1, that the training loss spreads over all classes; evaluations use the labels as they are
    /// [default: 0].
    #[arg(long, env = "ATA_LABEL_SMOOTHING", value_name = "X", allow_negative_numbers = true)]
    label_smoothing: Option<f64>,
    /// The treatment of training samples that give NaN or infinite losses or gradients: stop (the run ends and names them), or skip (they
    /// are left out of the mean of their task, and each worker names them in its log). A task that has no other samples ends the run in any
    /// case [default: stop].
    #[arg(long, env = "ATA_ON_BAD_SAMPLE", value_name = "WHAT")]
    on_bad_sample: Option<OnBadSample>,
    /// Start from the parameters in this model.safetensors, for example one written by PyTorch. A coordinator that does not have --model
    /// takes it from this file, if ata has written it (`ata init`): then its workers evaluate the parameters.
    #[arg(long, env = "ATA_INIT", value_name = "FILE")]
    init: Option<PathBuf>,
    /// Tensors that --init does not give, by their names, as in "output.*" for other classes (* stands for any characters).
    #[arg(long, env = "ATA_INIT_EXCEPT", value_name = "NAMES")]
    init_except: Option<String>,
    /// Iterations between two evaluations on the test data, which run during the training; 0 for only one at the end
    /// [default: a tenth of the run].
    #[arg(long, env = "ATA_EVAL_EVERY", value_name = "K", allow_negative_numbers = true)]
    eval_every: Option<u64>,
    /// The evaluators: workers (those without tasks first), head (the coordinator), or auto: workers without tasks, and the coordinator if
    /// there are none; the coordinator alone with --verify [default: auto].
    #[arg(long, env = "ATA_EVALUATE_ON", value_name = "WHO")]
    evaluate_on: Option<EvaluateOn>,
    /// The place of checkpoints: another folder, or, built with the feature object-store, s3://BUCKET/PREFIX, gs://…,
    /// az://… or file:///… [default: in the run's folder].
    #[arg(long, env = "ATA_CHECKPOINT", value_name = "URL", help_heading = "Saving")]
    checkpoint: Option<String>,
    /// The interval between checkpoints: a time (60s, 10m), a number of iterations, or never [default: 60s].
    #[arg(long, env = "ATA_CHECKPOINT_EVERY", value_name = "T", allow_hyphen_values = true, help_heading = "Saving")]
    checkpoint_every: Option<String>,
    /// The number of checkpoints to keep [default: 3].
    #[arg(long, env = "ATA_KEEP", value_name = "N", allow_negative_numbers = true, help_heading = "Saving")]
    keep: Option<usize>,
    /// Also keep the checkpoints of iterations divisible by this.
    #[arg(long, env = "ATA_KEEP_EVERY", value_name = "K", allow_negative_numbers = true, help_heading = "Saving")]
    keep_every: Option<u64>,
    /// The events that events.jsonl keeps: those of the last iterations, at most 100 MB (bounded), or all (full) [default: bounded].
    #[arg(long, env = "ATA_JOURNAL", value_name = "WHICH", help_heading = "Saving")]
    journal: Option<KeptJournal>,
}

/// The settings file, and the form of the output.
#[derive(Clone, Debug, Default, Args)]
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
    #[command(flatten, next_help_heading = None::<&str>)]
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
#[derive(Clone, Debug, Default, Args, Serialize)]
pub(crate) struct HeadArgs {
    /// Address and port to listen on; port 0 picks a free one.
    #[arg(long, env = "ATA_LISTEN", value_name = "ADDRESS")]
    listen: Option<String>,
    /// The number of workers to wait for before the first iteration.
    #[arg(long, env = "ATA_MIN_WORKERS", value_name = "N", allow_negative_numbers = true)]
    min_workers: Option<usize>,
    /// The address of the dashboard and the metrics. On other addresses than loopback, they use TLS and require the status secret [default:
    /// 127.0.0.1:7071, or a free port if that is taken].
    #[arg(long, env = "ATA_DASHBOARD", value_name = "ADDRESS|off", help_heading = "Output")]
    dashboard: Option<String>,
    #[command(flatten)]
    #[serde(flatten)]
    security: SecurityArgs,
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
    #[command(flatten, next_help_heading = None::<&str>)]
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
    #[arg(long, env = "ATA_DASHBOARD", value_name = "ADDRESS|off", num_args = 0..=1,
          default_missing_value = DEFAULT_DASHBOARD, help_heading = "Output")]
    dashboard: Option<String>,
}
