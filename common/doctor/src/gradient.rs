//! Checks whether a device computes the same as the CPU, and how long a task takes.

use std::error::Error;
use std::sync::Arc;
use std::time::{Duration, Instant};

use ata_data::{DataError, Tasks};
use ata_learn::{Dataset, DeviceChoice, Learner, LearnerError, Model, OpenDevice, TaskGradient};
use ata_types::{Iteration, TaskRange};
use serde::Serialize;

use crate::finding::Finding;

/// The largest relative difference that rounding can explain. It is exceeded if all samples, or all leases of few samples, differ by more.
const LARGEST_DIFFERENCE: f64 = 1e-5;

/// The largest relative difference for a lease of tasks of any size. There are always some ReLUs whose input is so near 0 that devices
/// disagree on whether their gradient passes: among the millions of ResNet-20, this makes a difference of up to 3e-4.
const LARGEST_BATCH_DIFFERENCE: f64 = 1e-3;

/// The largest relative difference for a device that rounds factors to TF32, as for `--verify`. ResNet-18 has 3.2e-2 on an H200.
const LARGEST_TF32_DIFFERENCE: f64 = 5e-2;

/// The number of tasks in the lease that is computed as one batch.
const LEASE: u64 = 4;

/// The number of computations whose median is taken, unless they take longer than [`TIMED_WITHIN`] in all.
const TIMED: usize = 9;
const TIMED_WITHIN: Duration = Duration::from_secs(1);

const CHECK: &str = "gradient";

/// The comparison of a task's gradient on the device with that on the CPU.
#[derive(Serialize)]
pub struct Gradient {
    model: String,
    parameters: usize,
    device: String,
    task_batch: u32,
    cpu_ms: f64,
    /// The time of a task on the device, in milliseconds.
    pub device_ms: f64,
    /// The smallest relative difference ‖device − CPU‖ / ‖CPU‖ of [`LEASE`] tasks of one sample.
    relative_l2_difference: f64,
    /// The smallest relative difference of as many leases of such tasks, each computed as one batch.
    fused_relative_l2_difference: f64,
    lease: u64,
    /// The time of a lease on the device, task by task, in milliseconds.
    tasks_ms: f64,
    /// The time of a lease on the device as one batch, in milliseconds.
    fused_ms: f64,
    /// The relative difference between the batch on the device and the sum of the tasks on the CPU.
    batch_relative_l2_difference: f64,
    /// The limits of the two differences of samples, and of that of the batch.
    limit: f64,
    batch_limit: f64,
}

/// Computes tasks of the model, which users know as `name`, on the device and on the CPU.
pub fn check(
    name: &str,
    model: &dyn Model,
    data: Result<Arc<dyn Dataset>, DataError>,
    task_batch: u32,
    device: &OpenDevice,
) -> (Option<Gradient>, Vec<Finding>) {
    let failed = |found: String, fix: &str| (None, vec![Finding::problem(CHECK, found, fix)]);
    let data = match data {
        Ok(data) => data,
        Err(error @ DataError::NotGenerated { .. }) => {
            let fix = "name the data by --data to have it computed";
            return (None, vec![Finding::warning(CHECK, format!("not computed: {error}"), fix)]);
        }
        Err(error) => return failed(format!("the data cannot be opened: {error}"), "see --data"),
    };
    match compare(name, model, &data, device, task_batch) {
        Ok(gradient) => {
            let findings = gradient.findings();
            (Some(gradient), findings)
        }
        Err(error) => failed(format!("not computed: {error}"), "update the device's driver, or use another --device"),
    }
}

impl Gradient {
    fn findings(&self) -> Vec<Finding> {
        let Self { device, task_batch, cpu_ms, device_ms, lease, tasks_ms, fused_ms, .. } = self;
        let on_cpu = if device == "cpu" { String::new() } else { format!(", {cpu_ms:.1} ms on the CPU") };
        let (difference, fused) = (self.relative_l2_difference, self.fused_relative_l2_difference);
        let (batch, limit, batch_limit) = (self.batch_relative_l2_difference, self.limit, self.batch_limit);
        let time = format!(
            "a task of {task_batch} samples takes {device_ms:.1} ms on {device}{on_cpu}; {lease} tasks {tasks_ms:.1} ms one by \
             one, {fused_ms:.1} ms as one batch"
        );
        let compared = format!(
            "relative L2 difference from the CPU {difference:.1e} of a sample, {fused:.1e} of {lease} as one batch (from rounding at \
             most {limit:.0e}), {batch:.1e} of {lease} tasks as one batch (at most {batch_limit:.0e})"
        );
        // The comparison is written in this direction because NaN must not count as agreement.
        let agrees = [difference, fused].iter().all(|difference| *difference <= limit) && batch <= batch_limit;
        let compared = if agrees {
            Finding::ok(CHECK, compared)
        } else {
            let fix = format!("update the driver of {device}, or use another --device");
            Finding::problem(CHECK, compared, fix)
        };
        vec![Finding::ok(CHECK, time), compared]
    }
}

fn compare(
    name: &str,
    model: &dyn Model,
    data: &Arc<dyn Dataset>,
    device: &OpenDevice,
    task_batch: u32,
) -> Result<Gradient, Box<dyn Error>> {
    let cpu = Computed::on(&DeviceChoice::Cpu.open()?, model, data, task_batch)?;
    let found = Computed::on(device, model, data, task_batch)?;
    let (limit, batch_limit) = limits(device.rounds_to_tf32);
    Ok(Gradient {
        model: name.into(),
        parameters: model.parameter_count(),
        device: device.name.clone(),
        task_batch,
        cpu_ms: cpu.task_ms,
        device_ms: found.task_ms,
        relative_l2_difference: smallest_difference(&found.samples, &cpu.samples),
        fused_relative_l2_difference: smallest_difference(&found.leases, &cpu.leases),
        lease: LEASE,
        tasks_ms: found.tasks_ms,
        fused_ms: found.fused_ms,
        batch_relative_l2_difference: relative_difference(&found.fused, &cpu.tasks),
        limit,
        batch_limit,
    })
}

/// Returns the largest relative differences that rounding explains: of samples, and of a batch.
fn limits(rounds_to_tf32: bool) -> (f64, f64) {
    if rounds_to_tf32 {
        (LARGEST_TF32_DIFFERENCE, LARGEST_TF32_DIFFERENCE)
    } else {
        (LARGEST_DIFFERENCE, LARGEST_BATCH_DIFFERENCE)
    }
}

struct Computed {
    /// The gradients of tasks of one sample.
    samples: Vec<Vec<f32>>,
    /// The gradients of leases of such tasks, each as one batch.
    leases: Vec<Vec<f32>>,
    task_ms: f64,
    /// The sum over a lease, computed task by task.
    tasks: Vec<f32>,
    tasks_ms: f64,
    /// The sum over a lease, computed as one batch.
    fused: Vec<f32>,
    fused_ms: f64,
}

impl Computed {
    fn on(
        device: &OpenDevice,
        model: &dyn Model,
        data: &Arc<dyn Dataset>,
        task_batch: u32,
    ) -> Result<Self, Box<dyn Error>> {
        let parameters = model.initial_parameters(1)?;
        let learner = |task_batch| {
            let mut learner = data.clone().learner(device, Tasks { seed: 1, budget: LEASE, task_batch });
            learner.load(&parameters);
            learner
        };
        let lease = TaskRange { first: 0, count: LEASE };
        let mut single = learner(1);
        let samples = (0..LEASE).map(|index| Ok(single.gradient(Iteration::FIRST, index)?.gradient));
        let samples = samples.collect::<Result<_, LearnerError>>()?;
        let leases = (1..=LEASE).map(|iteration| Ok(single.fused(Iteration(iteration), lease)?.gradient));
        let leases = leases.collect::<Result<_, LearnerError>>()?;
        let mut learner = learner(task_batch);
        let (_, task_ms) = timed(|| learner.gradient(Iteration::FIRST, 0))?;
        let (tasks, tasks_ms) = timed(|| one_by_one(&mut *learner))?;
        let (fused, fused_ms) = timed(|| learner.fused(Iteration::FIRST, lease))?;
        Ok(Self { samples, leases, task_ms, tasks, tasks_ms, fused, fused_ms })
    }
}

/// Returns the sum over a lease, computed task by task in ascending order.
fn one_by_one(learner: &mut dyn Learner) -> Result<TaskGradient, LearnerError> {
    let mut sum = learner.gradient(Iteration::FIRST, 0)?;
    for index in 1..LEASE {
        let task = learner.gradient(Iteration::FIRST, index)?;
        sum.gradient.iter_mut().zip(&task.gradient).for_each(|(sum, value)| *sum += value);
        sum.loss += task.loss;
    }
    Ok(sum)
}

/// Returns a gradient, and the median milliseconds of some computations after the first one, which compiles kernels.
fn timed(mut compute: impl FnMut() -> Result<TaskGradient, LearnerError>) -> Result<(Vec<f32>, f64), Box<dyn Error>> {
    let gradient = compute()?.gradient;
    let (began, mut times) = (Instant::now(), Vec::new());
    while times.is_empty() || times.len() < TIMED && began.elapsed() < TIMED_WITHIN {
        let started = Instant::now();
        compute()?;
        times.push(started.elapsed().as_secs_f64() * 1e3);
    }
    times.sort_by(f64::total_cmp);
    Ok((gradient, times[times.len() / 2]))
}

/// Returns the smallest of the relative differences of some gradients; NaN if one of them is NaN.
fn smallest_difference(found: &[Vec<f32>], expected: &[Vec<f32>]) -> f64 {
    smallest(found.iter().zip(expected).map(|(found, expected)| relative_difference(found, expected)))
}

fn smallest(differences: impl Iterator<Item = f64>) -> f64 {
    differences.fold(
        f64::INFINITY,
        |smallest, difference| {
            if difference < smallest || difference.is_nan() { difference } else { smallest }
        },
    )
}

/// Returns ‖found − expected‖ / ‖expected‖.
fn relative_difference(found: &[f32], expected: &[f32]) -> f64 {
    let norm = |values: &mut dyn Iterator<Item = f64>| values.map(|value| value * value).sum::<f64>().sqrt();
    let difference = norm(&mut found.iter().zip(expected).map(|(a, b)| f64::from(*a) - f64::from(*b)));
    difference / norm(&mut expected.iter().map(|value| f64::from(*value)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::finding::Status;

    #[test]
    fn what_differs_by_more_than_rounding_is_a_problem() {
        let gradient = |difference: f64, fused: f64, batch: f64, (limit, batch_limit)| Gradient {
            model: "cnn".into(),
            parameters: 9,
            device: "wgpu: x".into(),
            task_batch: 4,
            cpu_ms: 1.0,
            device_ms: 1.0,
            relative_l2_difference: difference,
            fused_relative_l2_difference: fused,
            lease: LEASE,
            tasks_ms: 4.0,
            fused_ms: 2.0,
            batch_relative_l2_difference: batch,
            limit,
            batch_limit,
        };
        for (difference, fused, batch, expected) in [
            (1e-6, 1e-6, 5e-4, Status::Ok),
            (2e-5, 1e-6, 1e-6, Status::Problem),
            (1e-6, 2e-5, 1e-6, Status::Problem),
            (1e-6, 1e-6, 2e-3, Status::Problem),
            (f64::NAN, 1e-6, 1e-6, Status::Problem),
            (1e-6, f64::NAN, 1e-6, Status::Problem),
            (1e-6, 1e-6, f64::NAN, Status::Problem),
        ] {
            let found = gradient(difference, fused, batch, limits(false)).findings()[1].status;
            assert_eq!(found, expected, "{difference}, {fused}, {batch}");
            let coarse =
                if difference.is_nan() || fused.is_nan() || batch.is_nan() { Status::Problem } else { Status::Ok };
            assert_eq!(gradient(difference, fused, batch, limits(true)).findings()[1].status, coarse);
        }
    }

    #[test]
    fn one_task_that_agrees_is_enough_and_one_nan_is_too_much() {
        assert_eq!(smallest([3e-4, 2e-7, 1e-4].into_iter()), 2e-7);
        for nan_at in 0..3 {
            let mut differences = [3e-4, 2e-7, 1e-4];
            differences[nan_at] = f64::NAN;
            assert!(smallest(differences.into_iter()).is_nan(), "{nan_at}");
        }
    }
}
