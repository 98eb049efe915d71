//! The list of all settings. To add one, add an entry: its field, its flag, its environment variable and its key in files follow.
//!
//! An entry is `name: Type = default, "VALUE", RANGE;` below the help of its flag, and `[default]` in that text becomes the default. Without
//! a default, the field is an `Option`. `as` precedes the field's type if the flag has another. Settings in `flags_elsewhere` have flags
//! that are written by hand, in `args`. The order is that of `config.toml`.

use std::collections::BTreeMap;
use std::path::PathBuf;

use ata_learn::Precision;
use ata_net::limits::MAX_WORKERS;
use ata_sums::{RuleName, ScheduleName};
use ata_types::{DIFFERENCE_BITS, ExchangeChoice, WireFormat};
use ata_wire::limits::MAX_TASK_BATCH;
use clap::Args;
use serde::{Deserialize, Serialize};

use super::Allowed::{self, Below1, NotNegative, Positive, Seconds, UpTo, Whole};
use super::{
    BatchSize, Budget, EvaluateOn, Fuse, KeptJournal, LocalStepCount, MAX_THREADS, OnBadSample, Tag, TrainingLength,
    Workers, as_setting, parse_tag,
};

/// The largest number in a TOML file.
const LARGEST: u64 = u64::MAX >> 1;

/// Defines [`Settings`], and the groups of flags: structs that serialize to a table of the settings that are given.
macro_rules! settings {
    ($(
        $(#[$group_meta:meta])* struct $group:ident {
            $($(#[$meta:meta])* $name:ident: $type:ty $(as $field:ty)? $(= $default:expr)?, $value:literal $(, $range:expr)?;)*
        }
        $(flags_elsewhere { $($other:ident: $other_type:ty $(= $other_default:expr)? $(, $other_range:expr)?;)* })?
    )*) => {
        /// Every setting of a run, as in `config.toml`.
        #[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
        #[serde(default, deny_unknown_fields)]
        pub(crate) struct Settings {$(
            $(pub(crate) $name: field!($type $(as $field)? $(= $default)?),)*
            $($(pub(crate) $other: field!($other_type $(= $other_default)?),)*)?
        )*}

        impl Default for Settings {
            fn default() -> Self {
                Self {$(
                    $($name: default!($($default)?),)*
                    $($($other: default!($($other_default)?),)*)?
                )*}
            }
        }

        impl Settings {
            pub(crate) const NAMES: &[&str] = &[$($(stringify!($name),)* $($(stringify!($other),)*)?)*];

            pub(super) const RANGES: &[(&str, Allowed)] = &[$(
                $($((stringify!($name), $range),)?)*
                $($($((stringify!($other), $other_range),)?)*)?
            )*];
        }

        $(
            #[derive(Debug, Args, Serialize)]
            $(#[$group_meta])* pub(crate) struct $group {
                $(#[arg(long, value_name = $value)] $(#[$meta])* $name: Option<$type>,)*
            }
        )*
    };
}

macro_rules! field {
    ($type:ty) => { Option<$type> };
    ($type:ty as $field:ty) => { Option<$field> };
    ($type:ty = $default:expr) => { $type };
    ($type:ty as $field:ty = $default:expr) => { $field };
}

macro_rules! default {
    () => {
        None
    };
    ($default:expr) => {
        $default
    };
}

settings! {
    /// The tasks and their data.
    struct TaskArgs {
        /// The scheduling policy: NAME or NAME:key=value,…; `ata policies` lists them [default].
        policy: String = "ata-auto".into(), "POLICY";
        /// Optimizer steps, or passes over the training data, as in 30epochs [default].
        iterations: TrainingLength = TrainingLength::Iterations(200), "K";
        /// Tasks per iteration. With auto, B follows what a second achieves, and with noise, the noise of the gradients alone: it begins with
        /// 16, or FIRST in auto:FIRST, and stays from 2 to 8 times that. Samples, learning rates and --iterations are counted as if it
        /// stayed at the first number. Numbers as in 16x50,8x100, or path:RUN with the folder of a run, repeat those of that run [default].
        budget: Budget = Budget::default(), "B|auto|noise";
        /// Samples per step, in place of --budget and --task-batch: tasks are as small as is worth it, by what they take on this machine.
        /// With auto, the samples follow what a second achieves, from 256 on, or from N in auto:N.
        batch: BatchSize, "N|auto";
        /// Samples per task [default: 6, or 1 if --task-time gives absolute times].
        task_batch: u32 = 6, "S", Whole(1, MAX_TASK_BATCH as u64);
        /// The data: synthetic, a folder of images (train/CLASS/*.png, test/CLASS/*.png) or what `ata data pack` made of one, a folder with
        /// CIFAR-100's train.bin and test.bin, or cifar-100-binary.tar.gz; or the URL of a folder in an object store with images that were
        /// packed with --shard-mb. A model of your own may take something else.
        data: String = "synthetic".into(), "DATA";
    }
    flags_elsewhere {
        skip_bad: bool = false;
        validation: f64, Below1;
    }

    /// The model, its training and the evaluation.
    #[command(next_help_heading = "Training")]
    struct TrainingArgs {
        /// The model: cnn, cnn:widths=C1/C2/C3/H, resnet20 (for images of 32 pixels), resnet18 or resnet50 (for 224), or resnet20:width=W;
        /// classes=N and size=S are taken from --data if they are not given, as in cnn:size=64.
        #[arg(help_heading = None::<&str>)]
        model: String = "cnn".into(), "MODEL";
        /// The optimizer: adam, adamw, sgd, or own (that of a Python program) [default: adam, or own if there is one].
        optimizer: String as RuleName = RuleName::Adam, "NAME";
        /// The learning rate, or its peak [default].
        lr: f64 = 1e-3, "X", Positive;
        /// The schedule of the learning rate: constant, cosine (to 0 at the last iteration), one-cycle (as PyTorch's, without the cycle of
        /// the momentum) or step (see --lr-step-every) [default].
        lr_schedule: String as ScheduleName = ScheduleName::Constant, "NAME";
        /// Iterations, or epochs, over which the learning rate rises linearly to its peak [default].
        lr_warmup: TrainingLength = TrainingLength::Iterations(0), "K";
        /// Iterations, or epochs, after which --lr-schedule step changes the rate [default].
        lr_step_every: TrainingLength = TrainingLength::Iterations(1000), "K";
        /// The factor by which --lr-schedule step changes the rate [default].
        lr_step_factor: f64 = 0.1, "X", Positive;
        /// The momentum of sgd [default].
        momentum: f64 = 0.9, "X", Below1;
        /// Nesterov's momentum for sgd.
        #[arg(num_args = 0..=1, default_missing_value = "true")]
        nesterov: bool = false, "BOOL";
        /// The decay rate of the first moment of adam and adamw [default].
        beta1: f64 = 0.9, "X", Below1;
        /// The decay rate of the second moment [default].
        beta2: f64 = 0.999, "X", Below1;
        /// What adam and adamw add to the root of the second moment [default].
        epsilon: f64 = 1e-8, "X", Positive;
        /// L2 penalty on the parameters; decoupled from the gradient for adamw [default: 0.01 for adamw, else 0].
        weight_decay: f64, "X", NotNegative;
        /// Parameter groups with a weight decay or a factor of the learning rate of their own, by the names of tensors (* stands for any
        /// characters), as in "*.bias *norm*: weight_decay=0; head.*: lr_factor=10". The first group that matches counts.
        param_groups: String, "GROUPS";
        /// Scale gradients whose Euclidean norm is larger down to this norm.
        clip_norm: f64, "X", Positive;
        /// Keep an exponential moving average of the parameters with this decay, as in 0.999, evaluate it instead of them, and save it as
        /// model-ema.safetensors.
        ema: f64, "DECAY", Below1;
        /// Exchange less, for machines far apart: an iteration is a round, in which all workers together take N optimizer steps by
        /// themselves, of one task each, faster ones more of them; then all go on from about the mean of their parameters. With auto, N
        /// follows the links, from --budget up to 960, or M in auto:M. Samples and learning rates then follow --budget, and --iterations
        /// stands for as many tasks.
        #[arg(help_heading = "Local steps")]
        local_steps: LocalStepCount, "N|auto";
        /// Bits of a value that workers send after local steps, in the format compact; what is rounded off is added to what they send next
        /// [default].
        #[arg(help_heading = "Local steps")]
        difference_bits: u32 = 4, "N", Whole(*DIFFERENCE_BITS.start() as u64, *DIFFERENCE_BITS.end() as u64);
        /// The learning rate of the outer step, along the mean difference of a round; 1 without momentum averages [default: 1 - outer-momentum,
        /// times a factor from 1 for one worker to 2 for many equal ones].
        #[arg(help_heading = "Local steps")]
        outer_lr: f64, "X", Positive;
        /// Nesterov's momentum of the outer step [default].
        #[arg(help_heading = "Local steps")]
        outer_momentum: f64 = 0.0, "X";
        /// Whether workers go on with the next round while differences travel. Bits then depend on when parameters arrive [default].
        #[arg(num_args = 0..=1, default_missing_value = "true", help_heading = "Local steps")]
        overlap: bool = true, "BOOL";
        /// Change the training images at random: crop (moves them by up to an eighth of their size), flip (mirrors half of them), mixup
        /// (mixes each one with another one of its task), or several, as in crop,flip. A task's images depend on the seed alone, so that
        /// results do not depend on who computes [default: as they are].
        augment: String, "HOW";
        /// The share of each label, from 0 to below 1, that the training loss spreads over all classes; evaluations use the labels as they
        /// are [default].
        label_smoothing: f64 = 0.0, "X", Below1;
        /// Measure how noisy gradients are: `ata explain` says how many tasks a step is worth. A step then begins only once all
        /// gradients have arrived.
        #[arg(num_args = 0..=1, default_missing_value = "true")]
        gradient_noise: bool = false, "BOOL";
        /// Whether --lr is for steps on 16 samples, and follows the samples of --budget auto or noise: with sgd, as the progress of a step
        /// does (AdaScale); with adam and adamw, as that over the square root of the samples [default].
        #[arg(num_args = 0..=1, default_missing_value = "true")]
        scale_lr: bool = true, "BOOL";
        /// The treatment of training samples that give NaN or infinite losses or gradients: stop (the run ends and names them), or skip
        /// (they are left out of the mean of their task, and each worker names them in its log). A task that has no other samples ends the
        /// run in any case [default].
        on_bad_sample: OnBadSample = OnBadSample::Stop, "WHAT";
        /// Start from the parameters in this model.safetensors, for example one written by PyTorch. A coordinator that does not have
        /// --model takes it from this file, if ata has written it (`ata init`): then its workers evaluate the parameters.
        init: PathBuf, "FILE";
        /// Tensors that --init does not give, by their names, as in "output.*" for other classes (* stands for any characters).
        init_except: String, "NAMES";
        /// Iterations between two evaluations on the test data, which run during the training; 0 for only one at the end [default: a tenth
        /// of the run].
        eval_every: u64, "K";
        /// The evaluators: workers (those without tasks first), head (the coordinator), or auto: workers without tasks, and the coordinator
        /// if there are none; the coordinator alone with --verify [default].
        evaluate_on: EvaluateOn = EvaluateOn::Auto, "WHO";
    }

    /// The checkpoints and the journal.
    #[command(next_help_heading = "Saving")]
    struct SavingArgs {
        /// The place of checkpoints: another folder, or, built with the feature object-store, s3://BUCKET/PREFIX, gs://…, az://… or
        /// file:///… [default: in the run's folder].
        checkpoint: String, "URL";
        /// The interval between checkpoints: a time (60s, 10m), a number of iterations, or never [default].
        #[arg(allow_hyphen_values = true)]
        checkpoint_every: String = "60s".into(), "T";
        /// The number of checkpoints to keep [default].
        keep: usize = 3, "N", Whole(1, 1 << 20);
        /// Also keep the checkpoints of iterations divisible by this.
        keep_every: u64, "K", Whole(1, LARGEST);
        /// The events that events.jsonl keeps: those of the last iterations, at most 100 MB (bounded), or all (full) [default].
        journal: KeptJournal = KeptJournal::Bounded, "WHICH";
    }

    /// The settings of a run for which there is no other group.
    #[command(next_help_heading = None::<&str>)]
    struct OtherRunArgs {
        /// Seed of the parameters, the data order and every random choice.
        seed: u64 = 1, "N";
        /// The device: auto, cpu, wgpu, wgpu:INDEX, cuda or cuda:INDEX.
        device: String = "auto".into(), "DEVICE";
        /// The run's folder, which must not hold a run yet [default: runs/RUN_ID].
        out: PathBuf, "DIR";
        /// A name by which other commands find the run, in addition to its id and its folder.
        #[arg(env = "ATA_RUN_NAME")]
        name: String, "NAME";
        /// A tag of the run, such as team=vision, shown by `status`, the dashboard, reports and metrics; may be given several times.
        #[arg(long = "tag", env = "ATA_TAG", value_parser = parse_tag)]
        #[serde(skip_serializing_if = "Option::is_none", serialize_with = "as_setting")]
        tags: Vec<Tag> as BTreeMap<String, String>, "KEY=VALUE";
        /// A worker that has been silent for this long counts as lost.
        // With less, a busy worker would be lost; with more, a dead one would delay an iteration by over an hour.
        heartbeat_timeout_ms: u64 = 2000, "MS", Whole(100, 3_600_000);
        /// A worker that was never timed counts as hung after this long without a result; others after ten times their usual time, but at
        /// least a tenth of this.
        lease_timeout_s: f64 = 60.0, "S", Seconds;
        /// Price of one second of runtime, in worker-seconds, under ata-auto: 2 pays for two busy workers [default: as many as are in use].
        /// A higher price makes the run faster and uses more worker time.
        time_price: f64, "W", Positive;
        /// Allocate this share of tasks beyond the budget, and take the first results: wastes work for speed [default].
        // Beyond 10, greedy allocation (`gta`) is the better choice.
        overcommit: f64 = 0.0, "X", UpTo(10.0);
        /// Have this share of leases, as in 0.01, computed by two workers, which must agree; a third decides if they do not, and a worker
        /// whose results do not match is named and expelled. For policies that wait for all tasks [default].
        #[arg(help_heading = "Trust")]
        verify: f64 = 0.0, "SHARE";
    }

    /// The exchange of gradients and parameters.
    #[command(next_help_heading = "Network")]
    struct NetworkArgs {
        /// The representation of gradients and parameters on the wire: f32-exact (4 bytes a value each way), or compact (gradients in about
        /// 14 bits, parameters as 8-bit differences). The default is f32-exact if the coordinator listens on loopback, else compact.
        // It is set once the settings are resolved, so that a resumed run keeps it.
        wire: WireFormat, "FORMAT";
        /// The way in which workers exchange gradients and parameters: star (through the coordinator's link), shards (among each other,
        /// each of them summing a part; the coordinator's link carries one of each), or auto (shards where they are shorter) [default].
        exchange: ExchangeChoice = ExchangeChoice::Auto, "WAY";
        /// Hosts, separated by commas, that workers may name (--peer-host) for others to reach them at. Any other name is ignored: they are
        /// reached at the address from which they connect to the coordinator [default: none].
        peer_hosts: String = String::new(), "HOSTS";
    }

    /// The limits that end a run early.
    #[command(next_help_heading = "Stopping")]
    struct StoppingArgs {
        /// End once an iteration's mean loss is at or below this.
        target_loss: f64, "LOSS", Positive;
        /// End after the iteration in which an evaluation reached this accuracy, from 0 to 1.
        target_accuracy: f64, "X", UpTo(1.0);
        /// End after the iteration in which this many seconds have passed.
        max_runtime_s: f64, "S", Positive;
        /// End after the iteration in which this much total worker time is spent, in seconds.
        max_worker_time_s: f64, "S", Positive;
        /// End after the iteration in which workers were employed this many times in all.
        max_employments: u64, "N", Whole(1, LARGEST);
        /// Start with the worker speeds that an earlier run learned: its folder.
        #[arg(help_heading = None::<&str>)]
        warm_start: PathBuf, "RUN";
    }

    /// The entrance of workers to a coordinator, and its security.
    #[command(next_help_heading = None::<&str>)]
    struct EntranceArgs {
        /// Address and port to listen on; port 0 picks a free one.
        listen: String = "127.0.0.1:7070".into(), "ADDRESS";
        /// The number of workers to wait for before the first iteration.
        min_workers: usize = 1, "N", Whole(1, MAX_WORKERS as u64);
        /// The host, or HOST:PORT, under which workers reach this machine, for the join token [default: its address].
        advertise: String, "HOST";
        /// The folder of the coordinator's key and secrets, made at the first start [default: ~/.local/share/ata/credentials].
        credentials: PathBuf, "DIR";
        /// Accept connections from other machines that are neither encrypted nor authenticated.
        #[arg(num_args = 0..=1, default_missing_value = "true")]
        insecure: bool = false, "BOOL";
        /// A certificate of your own for the coordinator (PEM, with what is between it and the root).
        #[arg(help_heading = "Own certificates")]
        tls_cert: PathBuf, "FILE";
        /// The private key of --tls-cert (PEM).
        #[arg(help_heading = "Own certificates")]
        tls_key: PathBuf, "FILE";
        /// Let in workers with a certificate of this authority (PEM), in place of those with a join token.
        #[arg(help_heading = "Own certificates")]
        tls_client_ca: PathBuf, "FILE";
    }
    flags_elsewhere {
        dashboard: String;
    }

    /// The output of a run.
    #[command(next_help_heading = "Output")]
    struct OutputArgs {
        /// Write scalars for TensorBoard to the folder tensorboard in the run's.
        #[arg(num_args = 0..=1, default_missing_value = "true")]
        tensorboard: bool = false, "BOOL";
    }

    /// The workers of a cluster on one machine.
    #[command(next_help_heading = None::<&str>)]
    struct MachineArgs {
        /// The number of worker processes.
        workers: u32 as Workers = Workers::default(), "N";
        /// One worker on each of these devices, in place of --device and --workers: all (the GPUs of this machine), or a list, as in
        /// wgpu:0,wgpu:1,cpu.
        devices: String, "DEVICES";
        /// Compute the tasks of a lease as one batch: faster on GPUs, but not the same bits for every allocation and device [default: auto,
        /// on every device but the CPU].
        #[arg(hide_possible_values = true)]
        fuse: Fuse = Fuse::Auto, "auto|on|off";
        /// Compute gradients in f32, or in bf16 on devices that have it: faster on GPUs with matrix units for 16 bits. Parameters and
        /// optimizer stay f32 [default].
        precision: Precision = Precision::F32, "f32|bf16";
        /// The emulated task times by worker number i: 'shifted_exp(29*i, 29*i)', 'scale(1); scale(2)', … or none. A device that computes
        /// its share as one batch: 'affine(20, 0.5)', 20 for the batch and 0.5 for each task.
        task_time: String = "scale(1); scale(2); scale(4); scale(8)".into(), "LAW";
        /// The unit of times in --task-time: 1ms, 0.1ms, 1s, …
        time_unit: String = "1ms".into(), "TIME";
        /// CPU threads that each worker computes with [default: an equal share of this machine's cores].
        // That share is written as 0.
        threads: usize = 0, "N", Whole(0, MAX_THREADS as u64);
    }
}
