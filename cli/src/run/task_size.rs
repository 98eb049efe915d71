//! The size of tasks, if only the samples of a step are given.
//!
//! With fewer samples a task, all workers end closer together, and with more, less time goes to what a task takes whatever its samples: to
//! read parameters, and to add a gradient to a sum.

use std::sync::Arc;
use std::time::{Duration, Instant};

use ata_data::Tasks;
use ata_learn::{Dataset, DeviceChoice, Model, on_one_thread};
use ata_sums::{GradientSum, Quantizer, TensorKind, TensorSizes, Units, maxima};
use ata_types::{Iteration, TaskRange, WireFormat};
use ata_wire::limits::MAX_TASK_BATCH;

use crate::failure::Failure;
use crate::inputs::Inputs;
use crate::output::note;
use crate::settings::{BatchSize, Settings};

/// The least samples of a task with batch normalisation, which takes means over them.
const LEAST_NORMALISED: u64 = 8;

/// The most samples of a task whose emulated time does not depend on them: those of a small step on one machine, which tasks emulate.
const EMULATED: u64 = 16;

/// The time after which no further size is measured. A task that takes so long spends little on anything but its samples.
const MEASURED_WITHIN: Duration = Duration::from_secs(2);

/// The number of times that tasks of a size are computed, of which the least time counts, unless they take longer than [`TIMED_WITHIN`].
const TIMED: usize = 5;
const TIMED_WITHIN: Duration = Duration::from_millis(300);

/// The least ratio of two sizes that are measured: closer ones differ by less than the measurement is exact.
const APART: f64 = 1.4;

/// The largest ratio of the times of steps for which larger tasks are worth waiting for, and the number of sizes in a row without such a gain
/// after which no larger one is measured.
const WORTH: f64 = 0.99;
const WITHOUT_GAIN: u32 = 2;

/// The share of a step in which workers may wait for each other's tasks if small ones cost nothing.
const WAITING: f64 = 0.02;

impl Settings {
    /// Divides the samples of a step into tasks, if the settings do not say how, and prints the result. Tasks are measured on this machine's
    /// CPU, unless the workers compute all their tasks as one batch (`fuse`).
    pub(crate) fn divide_batch(&mut self, inputs: &mut Inputs, workers: u64, fuse: bool) -> Result<(), Failure> {
        let Some(batch) = self.batch.take() else { return Ok(()) };
        let data = inputs.measured.take().ok_or_else(|| {
            Failure::usage(format!(
                "batch = {batch}: this program does not have the model '{}', whose tasks it would measure; give --budget and --task-batch",
                self.model
            ))
        })?;
        let model = &*inputs.model;
        let is_normalised = model.table().tensors.iter().any(|tensor| tensor.kind == TensorKind::Averaged);
        // Mixed images have a partner in their task.
        let least = if is_normalised { LEAST_NORMALISED } else { 1 + u64::from(self.augmentation()?.mixup) };
        let sizes = sizes(batch, least);
        let first = sizes.first().copied().ok_or_else(|| {
            Failure::usage(format!(
                "batch = {batch} cannot be divided into tasks of {least} samples or more; expected a multiple of 8"
            ))
        })?;
        let waiting = |size: u64| waiting(size, batch.least(), workers);
        let largest =
            |is_good: &dyn Fn(u64) -> bool| sizes.iter().copied().rfind(|size| is_good(*size)).unwrap_or(first);
        let size = if self.time_laws()?.is_some_and(|laws| !laws.is_relative()) {
            largest(&|size| size <= EMULATED)
        } else if fuse {
            largest(&|size| waiting(size) <= WAITING)
        } else {
            let began = Instant::now();
            let mut time_s = |size| match began.elapsed() {
                passed if passed > MEASURED_WITHIN => Ok(None),
                _ => on_one_thread(|| task_s(model, &data, self.seed, batch, size)).map(Some),
            };
            best(&sizes, waiting, &mut time_s)?
        };
        (self.budget, self.task_batch) = (batch.budget(size), size as u32);
        let Self { budget, .. } = self;
        note!("--batch {batch} is --budget {budget} --task-batch {size} here; give these to repeat the run elsewhere");
        Ok(())
    }
}

/// Returns the sizes that divide the samples of the first step, ascending, of at least so many samples.
fn sizes(batch: BatchSize, least: u64) -> Vec<u64> {
    let samples = batch.first();
    // If the number of samples follows the noise, that is measured between two tasks.
    let most =
        if let BatchSize::Auto { .. } = batch { batch.least() / 2 } else { samples }.clamp(1, MAX_TASK_BATCH.into());
    let mut sizes: Vec<u64> = Vec::new();
    for size in (least.min(most)..=most).filter(|size| samples.is_multiple_of(*size)) {
        if sizes.last().is_none_or(|last| size as f64 >= APART * *last as f64) {
            sizes.push(size);
        }
    }
    sizes
}

/// Returns about which share of a step workers wait for each other: on average, each one for half a task of another one.
fn waiting(size: u64, samples: u64, workers: u64) -> f64 {
    if workers == 1 { 0.0 } else { workers as f64 * size as f64 / (2 * samples) as f64 }
}

/// Returns the size with the shortest steps. `time_s` measures the time of a task of a size, if there is time for it.
fn best<E>(
    sizes: &[u64],
    waiting: impl Fn(u64) -> f64,
    time_s: &mut dyn FnMut(u64) -> Result<Option<f64>, E>,
) -> Result<u64, E> {
    let (mut best, mut misses) = ((f64::INFINITY, sizes[0]), 0);
    for &size in sizes {
        let Some(time_s) = time_s(size)? else { break };
        let cost = time_s / size as f64 * (1.0 + waiting(size));
        if cost < WORTH * best.0 {
            (best, misses) = ((cost, size), 0);
        } else {
            misses += 1;
        }
        if misses == WITHOUT_GAIN {
            break;
        }
    }
    Ok(best.1)
}

/// Measures a task of so many samples, and the addition of its gradient to a sum, in seconds.
fn task_s(model: &dyn Model, data: &Arc<dyn Dataset>, seed: u64, batch: BatchSize, size: u64) -> Result<f64, Failure> {
    let budget = batch.first() / size;
    let mut learner = data.clone().learner(&DeviceChoice::Cpu.open()?, Tasks { seed, budget, task_batch: size as u32 });
    learner.load(&model.initial_parameters(seed)?);
    let sizes = TensorSizes::from(&model.table());
    let first = learner.gradient(Iteration::FIRST, 0).map_err(Failure::internal)?;
    let maxima = maxima(&first.gradient, &sizes).map_err(Failure::internal)?;
    let quantizer = Quantizer::new(Units::first(&maxima, budget), sizes.clone(), budget, WireFormat::F32Exact);
    let mut sum = GradientSum::new(&sizes);
    let (began, mut least) = (Instant::now(), Duration::MAX);
    for _ in 0..TIMED {
        let started = Instant::now();
        learner.add(Iteration::FIRST, TaskRange::single(0), &mut sum, &quantizer).map_err(Failure::internal)?;
        least = least.min(started.elapsed());
        if began.elapsed() > TIMED_WITHIN {
            break;
        }
    }
    Ok(least.as_secs_f64())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns the best size for steps of 256 samples if a task takes `overhead` as long as a sample in addition to its samples.
    fn found(overhead: f64, workers: u64) -> u64 {
        let mut time_s = |size: u64| Ok::<_, ()>(Some(overhead + size as f64));
        best(&sizes(BatchSize::Fixed(256), 1), |size| waiting(size, 256, workers), &mut time_s).unwrap()
    }

    /// The best size is near √(2·256·overhead/workers).
    #[test]
    fn tasks_are_smaller_the_more_workers_and_the_less_overhead_there_are() {
        assert_eq!([0.0, 0.5, 2.0, 8.0, 100.0].map(|overhead| found(overhead, 4)), [1, 8, 16, 32, 128]);
        assert_eq!([1, 4, 16, 64].map(|workers| found(2.0, workers)), [128, 16, 8, 4]);
    }

    #[test]
    fn sizes_divide_the_step_and_have_the_samples_that_they_need() {
        assert_eq!(sizes(BatchSize::Fixed(368), 1), [1, 2, 4, 8, 16, 23, 46, 92, 184, 368]);
        assert_eq!(sizes(BatchSize::Fixed(24), 8), [8, 12, 24]);
        assert_eq!(sizes(BatchSize::Fixed(4), 8), [4]);
        assert_eq!(sizes(BatchSize::Fixed(61), 2), [61]);
        assert_eq!(sizes(BatchSize::Auto { first: 64 }, 1), [1, 2, 4, 8]);
        assert_eq!(sizes(BatchSize::Auto { first: 2 }, 1), [1]);
        assert_eq!(sizes(BatchSize::Auto { first: 61 }, 7), [0; 0], "it has to be divided");
    }

    #[test]
    fn no_size_is_measured_after_two_without_a_gain_or_for_which_there_is_no_time() {
        let mut measured = Vec::new();
        let mut time_s = |size: u64| {
            measured.push(size);
            Ok::<_, ()>((size < 4).then_some(size as f64))
        };
        assert_eq!(best(&[1, 2, 4, 8], |_| 0.0, &mut time_s), Ok(1));
        assert_eq!(measured, [1, 2, 4]);
        let mut measured = Vec::new();
        let mut time_s = |size: u64| {
            measured.push(size);
            Ok::<_, ()>(Some(size as f64))
        };
        assert_eq!(best(&[1, 64, 256, 512], |size| waiting(size, 256, 4), &mut time_s), Ok(1));
        assert_eq!(measured, [1, 64, 256]);
        assert_eq!(best(&[8, 16], |_| 0.0, &mut |_| Err("unreadable")), Err("unreadable"));
    }
}
