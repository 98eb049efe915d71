//! A run's settings: defaults, overridden by the file, overridden by environment variables and flags.

mod batch;
mod budget;
mod contradictions;
mod devices;
mod labels;
mod list;
mod local_steps;
pub(crate) mod policy_list;
mod security;
mod sources;
mod training;
mod training_length;
mod workers;

pub(crate) use batch::BatchSize;
pub(crate) use budget::{Budget, BudgetPath};
pub(crate) use devices::{BF16_ON_CPU, Devices, Fuse, rounds};
use labels::{Tag, as_setting, check_labels, parse_tag};
pub(crate) use list::{
    EntranceArgs, MachineArgs, NetworkArgs, OtherRunArgs, OutputArgs, SavingArgs, Settings, StoppingArgs, TaskArgs,
    TrainingArgs,
};
pub(crate) use local_steps::LocalStepCount;
pub(crate) use security::{
    DEFAULT_DASHBOARD, DEFAULT_PORT, EntranceSettings, advertised, credentials_folder, data_folder,
};
use sources::{described, merge};
pub(crate) use sources::{flags, read_file, read_text};
pub(crate) use training::{EvaluateOn, FIXED, KeptJournal, OnBadSample};
pub(crate) use training_length::TrainingLength;
pub(crate) use workers::Workers;

use std::path::Path;
use std::time::Duration;

use ata_data::FolderOptions;
use ata_learn::DeviceChoice;
use ata_record::Labels;
use ata_scheduler::Limits;
use ata_simulator::TimeLaws;
use ata_wire::limits::MAX_TIME;
use toml::{Table, Value};

use crate::failure::{Failure, require};

/// The largest number of threads that a worker computes with: more than the largest machines have cores.
pub(crate) const MAX_THREADS: usize = 1024;

impl Settings {
    /// Applies a file and flags to the settings in `table`, each overriding the previous ones, and checks the result.
    pub(crate) fn extended(mut table: Table, file: Option<&Path>, flags: &[Table]) -> Result<Self, Failure> {
        let file = file.map(read_file).transpose()?;
        for over in file.into_iter().chain(flags.iter().cloned()) {
            merge(&mut table, over);
        }
        let settings = Self::of(&table)?;
        settings.check_effect(flags)?;
        Ok(settings)
    }

    /// Applies the settings in `table` to the defaults, and checks the result.
    pub(crate) fn of(table: &Table) -> Result<Self, Failure> {
        let chosen = table.contains_key("task_batch");
        let mut settings: Self = table.clone().try_into().map_err(|error| Failure::usage(described(&error)))?;
        for (name, range) in Self::RANGES {
            table.get(*name).map_or(Ok(()), |value| range.check(name, value))?;
        }
        settings.divide_known_batch(|key| table.contains_key(key))?;
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
        self.check_budget()?;
        self.check_local_steps()?;
        self.workers.check()?;
        self.check_training()?;
        self.policy_specification()?;
        self.check_trust()?;
        check_labels(&self.labels())?;
        self.device_choice()?;
        self.devices()?;
        self.time_laws()?;
        self.time_unit()?;
        self.dashboard_or(DEFAULT_DASHBOARD)?;
        self.check_security()
    }

    pub(crate) fn labels(&self) -> Labels {
        Labels { name: self.name.clone(), tags: self.tags.clone().unwrap_or_default() }
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

/// The values that a setting may have.
pub(crate) enum Allowed {
    Whole(u64, u64),
    Positive,
    NotNegative,
    Below1,
    UpTo(f64),
    Seconds,
}

impl Allowed {
    fn check(&self, name: &str, value: &Value) -> Result<(), Failure> {
        let (number, shown) = match value {
            Value::Integer(number) => (*number as f64, number.to_string()),
            Value::Float(number) => (*number, number.to_string()),
            _ => return Ok(()),
        };
        let within = |least: f64, most: f64| (least..=most).contains(&number);
        let longest = MAX_TIME.as_secs_f64();
        let (is_good, expected) = match self {
            Self::Whole(least, most) => {
                (within(*least as f64, *most as f64), format!("a whole number from {least} to {most}"))
            }
            Self::Positive => (number.is_finite() && number > 0.0, "a positive number".into()),
            Self::NotNegative => (number.is_finite() && number >= 0.0, "a number of at least 0".into()),
            Self::Below1 => ((0.0..1.0).contains(&number), "a number from 0 to below 1".into()),
            Self::UpTo(most) => (within(0.0, *most), format!("a number from 0 to {most}")),
            Self::Seconds => {
                (number > 0.0 && number <= longest, format!("a number of seconds above 0, and at most {longest}"))
            }
        };
        require(is_good, || format!("{name} = {shown}: expected {expected}"))
    }
}

fn in_range(name: &str, value: u64, min: u64, max: u64) -> Result<(), Failure> {
    let message = || format!("{name} = {value}: expected a whole number from {min} to {max}");
    require((min..=max).contains(&value), message)
}

impl Settings {
    pub(crate) fn policy_specification(&self) -> Result<String, Failure> {
        let Some(price) = self.time_price else { return Ok(self.policy.clone()) };
        let (name, parameters) = self.policy.split_once(':').unwrap_or((&self.policy, ""));
        require(name.trim() == "ata-auto" && !parameters.contains("time_price"), || {
            format!("time_price = {price} is for policy ata-auto, once; found policy = {}", self.policy)
        })?;
        let separator = if parameters.is_empty() { "" } else { "," };
        Ok(format!("ata-auto:{parameters}{separator}time_price={price}"))
    }
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
