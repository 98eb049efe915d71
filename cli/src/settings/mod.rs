//! A run's settings: defaults, overridden by the file, overridden by environment variables and flags.

mod contradictions;
mod dashboard;
mod devices;
mod keys;
mod labels;
pub(crate) mod policy_list;
mod security;
mod sources;
mod span;
mod training;
mod workers;

pub(crate) use dashboard::DEFAULT_DASHBOARD;
pub(crate) use devices::{BF16_ON_CPU, Devices, Fuse, rounds};
use labels::check_labels;
pub(crate) use labels::{Tag, as_setting, parse_tag};
pub(crate) use security::{DEFAULT_PORT, EntranceSettings, advertised, credentials_folder, data_folder};
use sources::merge;
pub(crate) use sources::{flags, read_file, read_text};
pub(crate) use span::Span;
pub(crate) use training::{EvaluateOn, FIXED, KeptJournal, OnBadSample};
pub(crate) use workers::Workers;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::Duration;

use ata_data::FolderOptions;
use ata_learn::{DeviceChoice, Precision};
use ata_net::limits::MAX_WORKERS;
use ata_record::Labels;
use ata_scheduler::Limits;
use ata_simulator::TimeLaws;
use ata_sums::{RuleName, ScheduleName};
use ata_types::{ExchangeChoice, WireFormat};
use ata_wire::limits::{MAX_BUDGET, MAX_TASK_BATCH, MAX_TIME};
use serde::{Deserialize, Serialize};
use toml::Table;

use crate::failure::{Failure, require};

/// The largest number of threads that a worker computes with: more than the largest machines have cores.
pub(crate) const MAX_THREADS: usize = 1024;

/// Every setting of a run, as in `config.toml`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
#[expect(clippy::struct_excessive_bools, reason = "each is a setting of its own")]
pub(crate) struct Settings {
    pub(crate) policy: String,
    pub(crate) iterations: Span,
    pub(crate) budget: u64,
    pub(crate) task_batch: u32,
    pub(crate) data: String,
    /// Whether unusable files in a folder of images are left out.
    pub(crate) skip_bad: bool,
    /// The share of the images of a folder that become test images, if it has no others.
    pub(crate) validation: Option<f64>,
    pub(crate) model: String,
    pub(crate) optimizer: RuleName,
    pub(crate) lr: f64,
    pub(crate) lr_schedule: ScheduleName,
    pub(crate) lr_warmup: Span,
    /// The time between changes, for the schedule `step`.
    pub(crate) lr_step_every: Span,
    pub(crate) lr_step_factor: f64,
    /// The momentum, for the optimizer `sgd`.
    pub(crate) momentum: f64,
    pub(crate) nesterov: bool,
    /// The decay rates of the moments, for the optimizers `adam` and `adamw`.
    pub(crate) beta1: f64,
    pub(crate) beta2: f64,
    pub(crate) epsilon: f64,
    pub(crate) weight_decay: Option<f64>,
    /// Tensors with another learning rate or weight decay, by their names.
    pub(crate) param_groups: Option<String>,
    pub(crate) clip_norm: Option<f64>,
    /// The decay of the moving average of the parameters, which is evaluated.
    pub(crate) ema: Option<f64>,
    pub(crate) augment: Option<String>,
    pub(crate) label_smoothing: f64,
    pub(crate) on_bad_sample: OnBadSample,
    pub(crate) init: Option<PathBuf>,
    /// The names of the tensors that `init` does not give.
    pub(crate) init_except: Option<String>,
    pub(crate) eval_every: Option<u64>,
    pub(crate) evaluate_on: EvaluateOn,
    /// The place of checkpoints, if they are not in the run's folder: another folder, or the URL of an object store.
    pub(crate) checkpoint: Option<String>,
    pub(crate) checkpoint_every: String,
    pub(crate) keep: usize,
    pub(crate) keep_every: Option<u64>,
    pub(crate) journal: KeptJournal,
    pub(crate) seed: u64,
    pub(crate) device: String,
    pub(crate) out: Option<PathBuf>,
    /// A name by which the run is found, in addition to its id.
    pub(crate) name: Option<String>,
    /// Tags that are shown with the run and kept in its record.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub(crate) tags: BTreeMap<String, String>,
    pub(crate) heartbeat_timeout_ms: u64,
    pub(crate) lease_timeout_s: f64,
    pub(crate) time_price: Option<f64>,
    pub(crate) overcommit: f64,
    pub(crate) verify: f64,
    /// The representation of vectors. It is always set after the settings have been resolved, so a resumed run keeps it.
    pub(crate) wire: Option<WireFormat>,
    pub(crate) exchange: ExchangeChoice,
    /// The hosts that workers may announce as their own, separated by commas.
    pub(crate) peer_hosts: String,
    pub(crate) target_loss: Option<f64>,
    pub(crate) target_accuracy: Option<f64>,
    pub(crate) max_runtime_s: Option<f64>,
    pub(crate) max_worker_time_s: Option<f64>,
    pub(crate) max_employments: Option<u64>,
    /// The folder of an earlier run whose learned speeds are used.
    pub(crate) warm_start: Option<PathBuf>,
    /// The address to listen on. This setting and those up to `tls_client_ca` are for `ata coordinator` only.
    pub(crate) listen: String,
    pub(crate) min_workers: usize,
    pub(crate) advertise: Option<String>,
    pub(crate) credentials: Option<PathBuf>,
    pub(crate) insecure: bool,
    pub(crate) tls_cert: Option<PathBuf>,
    pub(crate) tls_key: Option<PathBuf>,
    pub(crate) tls_client_ca: Option<PathBuf>,
    /// The address of the dashboard, or `off`; the default depends on the command.
    pub(crate) dashboard: Option<String>,
    pub(crate) tensorboard: bool,
    pub(crate) workers: Workers,
    /// The devices of the workers. This setting and those after it are for `ata up` only.
    pub(crate) devices: Option<String>,
    pub(crate) fuse: Fuse,
    pub(crate) precision: Precision,
    pub(crate) task_time: String,
    pub(crate) time_unit: String,
    /// The number of threads of each worker; 0 stands for an equal share of this machine's cores.
    pub(crate) threads: usize,
}

impl Default for Settings {
    #[expect(clippy::too_many_lines, reason = "a line for each setting")]
    fn default() -> Self {
        Self {
            policy: "ata-auto".into(),
            iterations: Span::Iterations(200),
            budget: 16,
            task_batch: 6,
            data: "synthetic".into(),
            skip_bad: false,
            validation: None,
            model: "cnn".into(),
            optimizer: RuleName::Adam,
            lr: 1e-3,
            lr_schedule: ScheduleName::Constant,
            lr_warmup: Span::Iterations(0),
            lr_step_every: Span::Iterations(1000),
            lr_step_factor: 0.1,
            momentum: 0.9,
            nesterov: false,
            beta1: 0.9,
            beta2: 0.999,
            epsilon: 1e-8,
            weight_decay: None,
            param_groups: None,
            clip_norm: None,
            ema: None,
            augment: None,
            label_smoothing: 0.0,
            on_bad_sample: OnBadSample::default(),
            init: None,
            init_except: None,
            eval_every: None,
            evaluate_on: EvaluateOn::default(),
            checkpoint: None,
            checkpoint_every: "60s".into(),
            keep: 3,
            keep_every: None,
            journal: KeptJournal::default(),
            seed: 1,
            device: "auto".into(),
            out: None,
            name: None,
            tags: BTreeMap::new(),
            heartbeat_timeout_ms: 2000,
            lease_timeout_s: 60.0,
            time_price: None,
            overcommit: 0.0,
            verify: 0.0,
            wire: None,
            exchange: ExchangeChoice::default(),
            peer_hosts: String::new(),
            target_loss: None,
            target_accuracy: None,
            max_runtime_s: None,
            max_worker_time_s: None,
            max_employments: None,
            warm_start: None,
            listen: "127.0.0.1:7070".into(),
            min_workers: 1,
            advertise: None,
            credentials: None,
            insecure: false,
            tls_cert: None,
            tls_key: None,
            tls_client_ca: None,
            dashboard: None,
            tensorboard: false,
            workers: Workers::default(),
            devices: None,
            fuse: Fuse::Auto,
            precision: Precision::F32,
            task_time: "scale(1); scale(2); scale(4); scale(8)".into(),
            time_unit: "1ms".into(),
            threads: 0,
        }
    }
}

impl Settings {
    /// Applies a file and flags to the settings in `table`, each overriding the previous ones, and checks the result.
    pub(crate) fn extended(mut table: Table, file: Option<&Path>, flags: &[Table]) -> Result<Self, Failure> {
        let file = file.map(read_file).transpose()?;
        for over in file.into_iter().chain(flags.iter().cloned()) {
            merge(&mut table, over);
        }
        let settings = Self::of(table)?;
        settings.check_effect(flags)?;
        Ok(settings)
    }

    /// Applies the settings in `table` to the defaults, and checks the result.
    pub(crate) fn of(table: Table) -> Result<Self, Failure> {
        let chosen = table.contains_key("task_batch");
        let mut settings: Self = table.try_into().map_err(|error| Failure::usage(keys::described(&error)))?;
        settings.check()?;
        // If emulated times are absolute, the real computation should be as short as possible.
        if !chosen && settings.time_laws()?.is_some_and(|laws| !laws.is_relative()) {
            settings.task_batch = 1;
        }
        settings.wire = Some(settings.wire_format()?);
        Ok(settings)
    }

    fn check(&self) -> Result<(), Failure> {
        self.iterations.check("iterations", 1)?;
        in_range("budget", self.budget, 1, MAX_BUDGET)?;
        in_range("task_batch", self.task_batch.into(), 1, MAX_TASK_BATCH.into())?;
        in_range("workers", self.workers.count.into(), 1, MAX_WORKERS as u64)?;
        self.workers.check()?;
        in_range("min_workers", self.min_workers as u64, 1, MAX_WORKERS as u64)?;
        in_range("threads", self.threads as u64, 0, MAX_THREADS as u64)?;
        in_range("seed", self.seed, 0, u64::MAX >> 1)?;
        // With less, a busy worker would be lost; with more, a dead one would delay an iteration by over an hour.
        in_range("heartbeat_timeout_ms", self.heartbeat_timeout_ms, 100, 3_600_000)?;
        self.check_training()?;
        waited("lease_timeout_s", self.lease_timeout_s)?;
        check_overcommit(self.overcommit)?;
        self.policy_specification()?;
        self.check_trust()?;
        for (name, limit) in [
            ("target_loss", self.target_loss),
            ("max_runtime_s", self.max_runtime_s),
            ("max_worker_time_s", self.max_worker_time_s),
        ] {
            limit.map_or(Ok(()), |limit| positive(name, limit))?;
        }
        self.max_employments.map_or(Ok(()), |limit| in_range("max_employments", limit, 1, u64::MAX >> 1))?;
        check_labels(&self.labels())?;
        self.device_choice()?;
        self.devices()?;
        self.time_laws()?;
        self.time_unit()?;
        self.dashboard_or(DEFAULT_DASHBOARD)?;
        self.check_security()
    }

    pub(crate) fn labels(&self) -> Labels {
        Labels { name: self.name.clone(), tags: self.tags.clone() }
    }

    pub(crate) fn limits(&self) -> Limits {
        Limits {
            target_loss: self.target_loss,
            target_accuracy: self.target_accuracy,
            runtime_s: self.max_runtime_s,
            total_worker_time_s: self.max_worker_time_s,
            employments: self.max_employments,
        }
    }

    pub(crate) fn folder_options(&self) -> FolderOptions {
        FolderOptions { skip_bad: self.skip_bad, validation: self.validation }
    }

    pub(crate) fn device_choice(&self) -> Result<DeviceChoice, Failure> {
        Ok(self.device.parse()?)
    }

    /// Returns the devices of the workers, if each worker has its own.
    pub(crate) fn devices(&self) -> Result<Option<Devices>, Failure> {
        self.devices.as_deref().map(Devices::parse).transpose()
    }

    pub(crate) fn time_laws(&self) -> Result<Option<TimeLaws>, Failure> {
        match self.task_time.as_str() {
            "" | "none" => Ok(None),
            text => Ok(Some(text.parse()?)),
        }
    }

    pub(crate) fn time_unit(&self) -> Result<Duration, Failure> {
        parse_time_unit(&self.time_unit)
    }

    pub(crate) fn peer_hosts(&self) -> Vec<String> {
        let hosts = self.peer_hosts.split(',').map(|host| host.trim().trim_matches(['[', ']']));
        hosts.filter(|host| !host.is_empty()).map(Into::into).collect()
    }

    pub(crate) fn heartbeat_timeout(&self) -> Duration {
        Duration::from_millis(self.heartbeat_timeout_ms)
    }

    pub(crate) fn to_toml(&self) -> Result<String, Failure> {
        toml::to_string(self).map_err(Failure::internal)
    }
}

fn in_range(name: &str, value: u64, min: u64, max: u64) -> Result<(), Failure> {
    let message = || format!("{name} = {value}: expected a whole number from {min} to {max}");
    require((min..=max).contains(&value), message)
}

impl Settings {
    pub(crate) fn policy_specification(&self) -> Result<String, Failure> {
        let Some(price) = self.time_price else { return Ok(self.policy.clone()) };
        positive("time_price", price)?;
        let (name, parameters) = self.policy.split_once(':').unwrap_or((&self.policy, ""));
        require(name.trim() == "ata-auto" && !parameters.contains("time_price"), || {
            format!("time_price = {price} is for policy ata-auto, once; found policy = {}", self.policy)
        })?;
        let separator = if parameters.is_empty() { "" } else { "," };
        Ok(format!("ata-auto:{parameters}{separator}time_price={price}"))
    }
}

/// Checks an overcommitment. Beyond 10, greedy allocation (`gta`) is the better choice.
pub(crate) fn check_overcommit(overcommit: f64) -> Result<(), Failure> {
    let message = || format!("overcommit = {overcommit}: expected a number from 0 to 10");
    require((0.0..=10.0).contains(&overcommit), message)
}

fn waited(name: &str, value: f64) -> Result<(), Failure> {
    let most = MAX_TIME.as_secs_f64();
    let message = || format!("{name} = {value}: expected a number of seconds above 0, and at most {most}");
    require(value > 0.0 && value <= most, message)
}

fn positive(name: &str, value: f64) -> Result<(), Failure> {
    require(value.is_finite() && value > 0.0, || format!("{name} = {value}: expected a positive number"))
}

/// Parses times such as `1ms`, `0.1ms` and `2 s`.
pub(crate) fn parse_time_unit(text: &str) -> Result<Duration, Failure> {
    let wrong = || Failure::usage(format!("time unit '{text}': expected a time such as 1ms, 0.1ms, 10us or 1s"));
    let split = text.find(|c: char| c.is_alphabetic()).ok_or_else(wrong)?;
    let (number, unit) = text.split_at(split);
    let seconds = match unit.trim() {
        "s" => 1.0,
        "ms" => 1e-3,
        "us" | "µs" => 1e-6,
        "ns" => 1e-9,
        _ => return Err(wrong()),
    };
    let number: f64 = number.trim().parse().map_err(|_| wrong())?;
    let duration = Duration::try_from_secs_f64(number * seconds).map_err(|_| wrong())?;
    if duration.is_zero() || duration > MAX_TIME { Err(wrong()) } else { Ok(duration) }
}

#[cfg(test)]
mod tests;
