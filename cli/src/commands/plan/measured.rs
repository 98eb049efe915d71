//! Machines from the measurements of `ata doctor --json`.

use std::path::{Path, PathBuf};

use ata_plan::Machine;
use serde::Deserialize;

use crate::failure::{Failure, require};

#[derive(Default)]
pub(super) struct PlanMeasurements {
    pub(super) machines: Vec<Machine>,
    /// The size of the model, which is the same in all files.
    pub(super) model_bytes: Option<u64>,
    /// The number of samples in a timed task, which is the same in all files.
    pub(super) task_batch: Option<u32>,
}

/// The part of doctor's JSON that is needed.
#[derive(Deserialize)]
struct DoctorReport {
    gradient: Option<GradientTimes>,
}

#[derive(Deserialize)]
struct GradientTimes {
    model: String,
    parameters: u64,
    device: String,
    task_batch: u32,
    device_ms: f64,
    lease: u64,
    fused_ms: f64,
}

impl PlanMeasurements {
    pub(super) fn read(paths: &[PathBuf]) -> Result<Self, Failure> {
        let mut measured = Self::default();
        let mut first: Option<(&Path, GradientTimes)> = None;
        for path in paths {
            let gradient = GradientTimes::read(path)?;
            measured.machines.push(gradient.machine(path)?);
            if let Some((first, of_first)) = &first {
                gradient.check_same(path, first, of_first)?;
            } else {
                measured.model_bytes = Some(4 * gradient.parameters);
                measured.task_batch = Some(gradient.task_batch);
                first = Some((path, gradient));
            }
        }
        Ok(measured)
    }
}

impl GradientTimes {
    fn read(path: &Path) -> Result<Self, Failure> {
        let shown = path.display();
        let text = std::fs::read(path).map_err(|cause| {
            let hint =
                if shown.to_string().contains('=') { "; machines with their times go before --from" } else { "" };
            Failure::data(format!("--from {shown}: {cause}{hint}"))
        })?;
        let examination: DoctorReport = serde_json::from_slice(&text).map_err(|cause| {
            Failure::data(format!("--from {shown}: {cause}; expected what `ata doctor --json` prints in this version"))
        })?;
        examination.gradient.ok_or_else(|| {
            Failure::data(format!("--from {shown}: no task was timed there; `ata doctor` on that machine says why"))
        })
    }

    /// Returns the machine. A GPU computes its share as one batch, whose overhead follows from the times of one task and of several.
    fn machine(&self, path: &Path) -> Result<Machine, Failure> {
        let stem = path.file_stem().map(|stem| stem.to_string_lossy().into_owned());
        let (one_s, fused_s) = (self.device_ms / 1e3, self.fused_ms / 1e3);
        let fits = |seconds: f64| seconds.is_finite() && seconds > 0.0;
        let (Some(name), true, true) = (stem, fits(one_s) && fits(fused_s), self.lease > 1) else {
            return Err(Failure::data(format!(
                "--from {}: a task of {} ms, {} tasks of {} ms as one batch; expected positive times",
                path.display(),
                self.device_ms,
                self.lease,
                self.fused_ms
            )));
        };
        let (batch_s, task_s) = if self.device == "cpu" {
            (None, one_s)
        } else {
            let task_s = (fused_s - one_s) / (self.lease - 1) as f64;
            // If a batch is as fast as a single task, further tasks take hardly any time. No task takes longer than the first.
            let task_s = task_s.clamp(one_s / 1e3, one_s);
            (Some(one_s - task_s).filter(|batch_s| *batch_s > 0.0), task_s)
        };
        Ok(Machine { name, count: 1, batch_s, task_s, price_per_hour: None })
    }

    fn check_same(&self, path: &Path, first: &Path, of_first: &Self) -> Result<(), Failure> {
        let what = |gradient: &Self| format!("{} with tasks of {} samples", gradient.model, gradient.task_batch);
        let (first, path, was, is) = (first.display(), path.display(), what(of_first), what(self));
        require(was == is, || {
            format!(
                "--from: {first} timed {was}, and {path} timed {is}: run ata doctor with the same --model and --task-batch \
                 on all machines"
            )
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn gradient(device: &str, device_ms: f64, fused_ms: f64) -> GradientTimes {
        let (model, device) = ("cnn".into(), device.into());
        GradientTimes { model, parameters: 9, device, task_batch: 6, device_ms, lease: 4, fused_ms }
    }

    #[test]
    fn a_gpu_is_a_batch_and_its_tasks() {
        let times = |device, device_ms, fused_ms| {
            let machine = gradient(device, device_ms, fused_ms).machine(Path::new("x/a.json")).unwrap();
            assert_eq!((machine.name.as_str(), machine.count), ("a", 1));
            let ms = |seconds: f64| (seconds * 1e6).round() / 1e3;
            (machine.batch_s.map(ms), ms(machine.task_s))
        };
        assert_eq!(times("cpu", 20.0, 70.0), (None, 20.0));
        assert_eq!(times("wgpu: x", 20.0, 26.0), (Some(18.0), 2.0));
        assert_eq!(times("wgpu: x", 20.0, 19.0), (Some(19.98), 0.02), "noise does not make a task take no time");
        assert_eq!(times("wgpu: x", 20.0, 95.0), (None, 20.0), "a batch gains nothing");
    }

    #[test]
    fn times_that_are_none_are_refused() {
        for (device_ms, fused_ms) in [(0.0, 1.0), (1.0, f64::NAN), (-1.0, 2.0)] {
            let error = gradient("cpu", device_ms, fused_ms).machine(Path::new("a.json")).unwrap_err().to_string();
            assert!(error.contains("a.json") && error.contains("expected positive times"), "{error}");
        }
    }
}
