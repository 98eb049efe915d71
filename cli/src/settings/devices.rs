//! The devices of workers, the precision, and whether a lease is computed as one batch.

use ata_learn::{DeviceChoice, OpenDevice, Precision};
use serde::{Deserialize, Serialize};

use crate::failure::{Failure, require};

/// The setting `fuse`: the devices on which a lease is computed as one batch.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, clap::ValueEnum)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Fuse {
    /// Every device except the CPU.
    Auto,
    /// Every device.
    On,
    /// No device.
    Off,
}

impl Fuse {
    pub(crate) const ON_CPU: &str =
        "--fuse on: leases are computed as one batch, so the result is no longer the same bits for every allocation";

    pub(crate) fn applies_to(self, device: &OpenDevice) -> bool {
        match self {
            Self::Auto => !device.is_cpu(),
            Self::On => true,
            Self::Off => false,
        }
    }

    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Auto => "auto",
            Self::On => "on",
            Self::Off => "off",
        }
    }
}

pub(crate) const BF16_ON_CPU: &str =
    "--precision bf16: a CPU computes in f32 and rounds, which shows what 16 bits do to a model but takes longer";

pub(crate) fn rounds(device: &OpenDevice) -> bool {
    device.is_cpu() && device.precision() == Precision::Bf16
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Devices {
    All,
    /// A list of devices without repetitions.
    List(Vec<DeviceChoice>),
}

impl Devices {
    pub(crate) fn parse(text: &str) -> Result<Self, Failure> {
        if text.trim() == "all" {
            return Ok(Self::All);
        }
        let mut list = Vec::new();
        for name in text.split(',') {
            let choice: DeviceChoice = name.trim().parse()?;
            let auto = || "--devices: expected all, or a list such as wgpu:0,wgpu:1,cpu, without auto";
            require(choice != DeviceChoice::Auto, auto)?;
            let twice = || format!("--devices: {choice} is there twice; each device has one worker");
            require(!list.contains(&choice), twice)?;
            list.push(choice);
        }
        Ok(Self::List(list))
    }

    /// Resolves the setting to devices of this machine, at least one.
    pub(crate) fn choices(self) -> Result<Vec<DeviceChoice>, Failure> {
        match self {
            Self::All => Ok(DeviceChoice::gpus()?),
            Self::List(list) => Ok(list),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists_of_devices() {
        assert_eq!(Devices::parse("all").unwrap(), Devices::All);
        let list = Devices::List(vec![DeviceChoice::Wgpu(Some(0)), DeviceChoice::Cuda(Some(1)), DeviceChoice::Cpu]);
        assert_eq!(Devices::parse("wgpu:0, cuda:1,cpu").unwrap(), list);
        for (text, says) in [
            ("", "unknown device ''"),
            ("all,cpu", "unknown device 'all'"),
            ("wgpu:0,", "unknown device ''"),
            ("cpu,auto", "without auto"),
            ("wgpu:1,wgpu:1", "wgpu:1 is there twice"),
        ] {
            let error = Devices::parse(text).unwrap_err().to_string();
            assert!(error.contains(says), "{text}: {error}");
        }
    }

    #[test]
    fn by_default_the_cpu_computes_task_by_task() {
        let cpu = DeviceChoice::Cpu.open().unwrap();
        assert_eq!([Fuse::Auto, Fuse::On, Fuse::Off].map(|fuse| fuse.applies_to(&cpu)), [false, true, false]);
    }
}
