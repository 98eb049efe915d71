//! Computes the gradients of tasks.

use std::sync::Arc;

use ata_types::{Iteration, TaskRange};
use burn::module::Module;
use burn::tensor::{Device, ExecutionError, TensorData};

use crate::device::{OpenDevice, Precision, is_cpu};
use crate::flat::{self, Gradients, ParameterGradient};
use crate::model::OpenData;
use crate::nn::{self, BatchTasks};
use crate::problem::{Batch, DeviceSamples, Problem, Samples};
use crate::sift::{Sifted, sift};
use ata_data::{DataError, TaskSample, TaskSampler, Tasks};
use ata_sums::{GradientSum, NotFinite, Quantizer, TensorGradient};

/// Computes the gradients of a run's tasks at given parameters.
pub trait Learner: Send {
    /// Puts parameters on the device.
    ///
    /// # Panics
    /// Panics if there is not one `f32` per parameter of the model.
    fn load(&mut self, parameters: &[f32]);

    /// Returns a task's mean loss and its gradient at the loaded parameters, in host memory.
    fn gradient(&mut self, iteration: Iteration, index: u64) -> Result<TaskGradient, LearnerError>;

    /// Returns the sum of the results of [`Learner::gradient`] over a range of at least one task. The tasks may be
    /// computed as one batch, which is faster on a GPU; otherwise they are summed in ascending order.
    fn fused(&mut self, iteration: Iteration, tasks: TaskRange) -> Result<TaskGradient, LearnerError> {
        let mut sum = self.gradient(iteration, tasks.first)?;
        for index in tasks.indices().skip(1) {
            let task = self.gradient(iteration, index)?;
            sum.gradient.iter_mut().zip(&task.gradient).for_each(|(sum, value)| *sum += value);
            sum.loss += task.loss;
        }
        Ok(sum)
    }

    /// Adds the gradients of a range of at least one task, computed as by [`Learner::fused`], to a sum. Returns the sum of the tasks'
    /// losses. If a gradient or the loss is not finite, this returns an error, and the sum does not change. What is added may stay on the
    /// device until [`Learner::finish`].
    fn add(
        &mut self,
        iteration: Iteration,
        tasks: TaskRange,
        sum: &mut GradientSum,
        quantizer: &Quantizer,
    ) -> Result<f64, LearnerError> {
        let TaskGradient { gradient, loss } = match tasks {
            TaskRange { first, count: 1 } => self.gradient(iteration, first)?,
            tasks => self.fused(iteration, tasks)?,
        };
        let loss = finite(loss)?;
        sum.add(&gradient, tasks.count, quantizer)?;
        Ok(loss)
    }

    /// Adds to a sum what calls of [`Learner::add`] have left on the device since the last call of this.
    fn finish(&mut self, _sum: &mut GradientSum) -> Result<(), LearnerError> {
        Ok(())
    }

    /// Finds the samples of a task that have no finite loss or gradient. This is called if those of the task are not finite. The default
    /// implementation finds nothing; [`sift`] does it for learners that compute any samples of a task as one batch.
    fn sift(&mut self, _iteration: Iteration, _index: u64) -> Result<Option<Sifted>, LearnerError> {
        Ok(None)
    }

    /// Announces the tasks that are computed next, `at_once` of them as one batch, so that later batches can be
    /// prepared while the first one is computed. This is only a hint.
    fn announce(&mut self, _iteration: Iteration, _tasks: TaskRange, _at_once: u64) {}

    /// Computes gradients of iteration 1, so that no measured time includes one-time work of a device: compiling and tuning kernels.
    /// `largest` is the maximum number of tasks that the worker will pass to [`Learner::fused`], or 1 if it will not call it.
    fn warm_up(&mut self, _largest: u64) -> Result<(), LearnerError> {
        self.gradient(Iteration::FIRST, 0).map(drop)
    }
}

/// The result of a task.
#[derive(Clone, Debug, PartialEq)]
pub struct TaskGradient {
    /// One `f32` per parameter, in flat order.
    pub gradient: Vec<f32>,
    /// The mean loss over the task's samples; cross-entropies are in nats.
    pub loss: f64,
}

impl TaskGradient {
    /// Returns `true` if the loss and the whole gradient are finite.
    pub fn is_finite(&self) -> bool {
        self.loss.is_finite() && self.gradient.iter().all(|value| value.is_finite())
    }
}

/// Returns an error for a loss that is infinite or NaN.
pub fn finite(loss: f64) -> Result<f64, LearnerError> {
    if loss.is_finite() { Ok(loss) } else { Err(LearnerError::Loss(loss)) }
}

/// The reason why a gradient could not be computed.
#[derive(Debug, thiserror::Error)]
pub enum LearnerError {
    /// The task's samples cannot be read.
    #[error(transparent)]
    Data(#[from] DataError),
    /// The gradient contains a number that is not finite.
    #[error(transparent)]
    NotFinite(#[from] NotFinite),
    /// The loss is not finite.
    #[error("the loss is {0}: expected a finite number")]
    Loss(f64),
    /// The problem's own code failed, as it would on any worker.
    #[error("{0}")]
    Problem(String),
    /// The device failed.
    #[error("the device failed: {0}")]
    Device(String),
}

impl From<ExecutionError> for LearnerError {
    fn from(error: ExecutionError) -> Self {
        Self::Device(format!("{error:?}"))
    }
}

pub(crate) struct BurnLearner<P: Problem> {
    data: Arc<OpenData<P>>,
    on_device: Option<DeviceSamples<Batch<P>>>,
    tasks: TaskSampler,
    network: Option<P::Network>,
    device: Device,
    precision: Precision,
    /// The maximum number of tasks that are computed as one batch.
    fused_tasks: u64,
    /// The number of parts of a task that are computed one after the other.
    parts: usize,
    /// Whether the gradients of large weights are kept as factors, until a network uses one in several ways.
    keeps_factors: bool,
    /// Whether batches are prepared ahead. This is not done on the CPU, which would have to stop computing for it.
    prepares: bool,
    announced: Option<TaskBatch>,
    prepared: Option<(TaskBatch, Drawn<P>)>,
}

/// A batch, and the random bits of its samples.
struct Drawn<P: Problem> {
    batch: Batch<P>,
    draws: Vec<u64>,
}

/// The tasks of an iteration that are computed as one batch.
type TaskBatch = (Iteration, TaskRange);

impl<P: Problem> BurnLearner<P> {
    /// Creates a learner on a device.
    pub(crate) fn new(data: Arc<OpenData<P>>, tasks: Tasks, open: &OpenDevice) -> Self {
        let device = open.device.clone().autodiff();
        let fused = open.micro_batch.map_or(data.samples.fused(), u64::from);
        Self {
            on_device: data.samples_on(&device),
            prepares: !is_cpu(&device),
            fused_tasks: (fused / u64::from(tasks.task_batch)).max(1),
            parts: open.micro_batch.map_or(1, |most| tasks.task_batch.div_ceil(most) as usize),
            keeps_factors: true,
            tasks: TaskSampler::new(tasks, data.samples.count(), data.samples.samples_of_shard()),
            network: Some(data.problem.network(&device)),
            data,
            device,
            precision: open.precision,
            announced: None,
            prepared: None,
        }
    }

    fn batch(&mut self, batch: TaskBatch) -> Result<Drawn<P>, DataError> {
        if let Some((_, batch)) = self.prepared.take_if(|(prepared, _)| *prepared == batch) {
            return Ok(batch);
        }
        let (iteration, tasks) = batch;
        if let Some(shards) = self.tasks.next_shards(iteration, tasks.first) {
            self.data.samples.expect_shards(&shards);
        }
        let samples: Vec<TaskSample> = tasks.indices().flat_map(|task| self.tasks.task(iteration, task)).collect();
        self.batch_of(&samples)
    }

    fn batch_of(&self, samples: &[TaskSample]) -> Result<Drawn<P>, DataError> {
        let batch = match &self.on_device {
            Some(on_device) => on_device.training_batch(samples)?,
            None => self.data.samples.training_batch(samples)?,
        };
        Ok(Drawn { batch, draws: samples.iter().map(|sample| sample.draw).collect() })
    }

    /// Returns the loss and the gradient of one batch, on the device, multiplied by the number of its tasks, or by the share of a task that
    /// it is.
    fn gradients(&self, Drawn { batch, draws }: Drawn<P>, tasks: f64) -> Result<Gradients, LearnerError> {
        let network = self.network.as_ref().expect("a network is only taken to be put back");
        let count = tasks.max(1.0) as usize;
        let forward = || self.data.problem.loss(network, &batch, &self.device);
        let (loss, left) = nn::computing(BatchTasks { count, draws }, forward);
        if tasks < 1.0 && !left.is_empty() {
            return Err(needs_all("batch normalisation"));
        }
        // Tasks have equal sizes, so the sum of their mean losses is their number times the mean over all their samples.
        let loss = if tasks == 1.0 { loss } else { loss * tasks };
        let gradients = Gradients::of(loss, network, count, left);
        // After the flush, the device computes while the host continues.
        self.device.flush()?;
        Ok(gradients)
    }

    /// Returns the loss and the gradient of a task, on the device, as the sum over its parts.
    fn in_parts(&mut self, iteration: Iteration, task: u64) -> Result<Gradients, LearnerError> {
        if self.data.samples.mixes() {
            return Err(needs_all("mixup"));
        }
        let samples = self.tasks.task(iteration, task);
        let ends = (0..=self.parts).map(|part| part * samples.len() / self.parts);
        let parts = ends.clone().zip(ends.skip(1)).map(|(from, to)| &samples[from..to]);
        let gradients = parts
            .filter(|part| !part.is_empty())
            .map(|part| self.gradients(self.batch_of(part)?, part.len() as f64 / samples.len() as f64));
        let sum = gradients.reduce(|sum, gradients| Ok(sum?.plus(gradients?)));
        sum.expect("a task has samples")
    }

    /// Returns the loss and the gradient summed over some tasks, in host memory.
    fn read(
        &mut self,
        iteration: Iteration,
        tasks: TaskRange,
    ) -> Result<(f32, Vec<ParameterGradient<TensorData>>), LearnerError> {
        let mut sum: Option<Gradients> = None;
        for tasks in batches(tasks, self.fused_tasks) {
            let gradients = if self.parts > 1 {
                self.in_parts(iteration, tasks.first)?
            } else {
                let batch = self.batch((iteration, tasks))?;
                self.gradients(batch, tasks.count as f64)?
            };
            sum = Some(match sum {
                Some(sum) => sum.plus(gradients),
                None => gradients,
            });
        }
        if let Some(batch) = self.announced.take_if(|_| self.prepares && self.parts == 1) {
            // If this fails, it fails again when the batch is needed.
            self.prepared = self.batch(batch).ok().map(|samples| (batch, samples));
        }
        Ok(sum.expect("a lease has tasks").read()?)
    }
}

impl<P: Problem> Learner for BurnLearner<P> {
    fn load(&mut self, parameters: &[f32]) {
        let (device, dtype) = (&self.device, self.precision.into());
        self.network = self.network.take().map(|network| flat::with_parameters_as(dtype, network, parameters, device));
    }

    fn gradient(&mut self, iteration: Iteration, index: u64) -> Result<TaskGradient, LearnerError> {
        self.fused(iteration, TaskRange::single(index))
    }

    fn fused(&mut self, iteration: Iteration, tasks: TaskRange) -> Result<TaskGradient, LearnerError> {
        let (loss, parts) = self.read(iteration, tasks)?;
        Ok(task_gradient(loss, &parts))
    }

    fn add(
        &mut self,
        iteration: Iteration,
        tasks: TaskRange,
        sum: &mut GradientSum,
        quantizer: &Quantizer,
    ) -> Result<f64, LearnerError> {
        let kept = if self.keeps_factors { nn::keeping_factors(|| self.read(iteration, tasks)) } else { None };
        self.keeps_factors = kept.is_some();
        let (loss, parts) = kept.unwrap_or_else(|| self.read(iteration, tasks))?;
        let loss = finite(loss.into())?;
        let tensors: Vec<TensorGradient<'_>> = parts.iter().map(ParameterGradient::gradient).collect();
        sum.add_tensors(&tensors, tasks.count, quantizer)?;
        Ok(loss)
    }

    fn sift(&mut self, iteration: Iteration, index: u64) -> Result<Option<Sifted>, LearnerError> {
        let samples = self.tasks.task(iteration, index);
        let gradient = |samples: &[TaskSample]| {
            let (loss, parts) = self.gradients(self.batch_of(&TaskSample::ring(samples.to_vec()))?, 1.0)?.read()?;
            Ok(task_gradient(loss, &parts))
        };
        sift(&samples, |sample| sample.index, gradient).map(Some)
    }

    fn announce(&mut self, iteration: Iteration, tasks: TaskRange, at_once: u64) {
        let first = tasks.first + at_once;
        let count = tasks.end().saturating_sub(first).min(at_once);
        self.announced = batches(TaskRange { first, count }, self.fused_tasks).next().map(|batch| (iteration, batch));
    }

    fn warm_up(&mut self, largest: u64) -> Result<(), LearnerError> {
        let is_batch = |size: &u64| batch_size(*size, self.fused_tasks) == *size;
        let sizes: Vec<u64> = (1..=largest.min(self.fused_tasks)).filter(is_batch).collect();
        let before = self.network.as_ref().map(flat::averaged_values);
        for (at, &count) in sizes.iter().enumerate() {
            if !is_cpu(&self.device) {
                let (at, of) = (at + 1, sizes.len());
                tracing::info!(
                    tasks = count,
                    "compiling and tuning kernels, which can take minutes: batch {at} of {of}"
                );
            }
            self.fused(Iteration::FIRST, TaskRange { first: 0, count })?;
        }
        if before == self.network.as_ref().map(|network| flat::averaged_values(&network.valid())) {
            return Ok(());
        }
        let reason =
            "a layer changes its parameters in the forward pass: replace burn's BatchNorm by ata_learn::nn::BatchNorm";
        Err(LearnerError::Problem(reason.into()))
    }
}

/// Returns the batches in which a lease is computed, of at most `most` tasks each.
fn batches(mut left: TaskRange, most: u64) -> impl Iterator<Item = TaskRange> {
    std::iter::from_fn(move || {
        let batch = TaskRange { count: batch_size(left.count, most), ..left };
        left = TaskRange { first: batch.end(), count: left.count - batch.count };
        (batch.count > 0).then_some(batch)
    })
}

/// Returns how many of `left` tasks are computed as one batch. Batches have few sizes, 2ⁱ and 3·2ⁱ, because a device compiles kernels for
/// each, which takes longer than many batches: so all sizes are compiled before training begins.
fn batch_size(left: u64, most: u64) -> u64 {
    if left >= most {
        return most;
    }
    let power = left.checked_ilog2().map_or(0, |log| 1 << log);
    if left >= power + power / 2 { power + power / 2 } else { power }
}

fn needs_all(what: &str) -> LearnerError {
    let way_out = "leave out --micro-batch, or use a smaller --task-batch";
    LearnerError::Problem(format!("{what} takes all samples of a task at once: {way_out}"))
}

fn task_gradient(loss: f32, parts: &[ParameterGradient<TensorData>]) -> TaskGradient {
    let parts: Vec<_> = parts.iter().map(ParameterGradient::gradient).collect();
    let values: Vec<_> = parts.iter().map(TensorGradient::values).collect();
    TaskGradient { gradient: values.concat(), loss: loss.into() }
}

#[cfg(test)]
mod tests;
