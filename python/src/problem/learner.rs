//! The worker's use of a computation: gradients of tasks.

use std::borrow::Cow;

use ata_data::{DataError, TaskSampler};
use ata_learn::{Learner, LearnerError, Sifted, TaskGradient, finite, sift};
use ata_sums::{GradientSum, Quantizer};
use ata_types::{Iteration, TaskRange};

use super::Raised;
use super::computation::{Computation, PyBatch};

pub(super) struct PythonLearner {
    /// The computation, or the reason why every task fails.
    computation: Result<Computation, String>,
    tasks: TaskSampler,
    seed: u64,
    /// The reason why the parameters could not be loaded.
    load_failure: Option<String>,
    /// The tasks that were announced to Python.
    announced: Option<(Iteration, TaskRange)>,
    /// The number of tasks whose gradients are summed on the device.
    on_device: u64,
}

impl PythonLearner {
    pub(super) fn new(computation: Result<Computation, String>, tasks: TaskSampler, seed: u64) -> Self {
        Self { computation, tasks, seed, load_failure: None, announced: None, on_device: 0 }
    }

    /// Computes samples as one batch, and passes their mean loss and its gradient to `take`.
    fn compute<T>(&self, batch: &PyBatch, take: impl FnOnce(f64, &[f32]) -> T) -> Result<T, LearnerError> {
        self.ready()?.gradient(batch, take).map_err(failed)
    }

    /// Returns the computation, if it works and has the parameters.
    fn ready(&self) -> Result<&Computation, LearnerError> {
        let computation = self.computation.as_ref().map_err(|reason| LearnerError::Device(reason.clone()))?;
        match &self.load_failure {
            Some(reason) => Err(LearnerError::Device(reason.clone())),
            None => Ok(computation),
        }
    }

    /// Adds the gradients of tasks to the sum on the device. Returns their loss, or `None` if something is not finite.
    fn add_on_device(
        &mut self,
        batch: &PyBatch,
        tasks: u64,
        quantizer: &Quantizer,
    ) -> Result<Option<f64>, LearnerError> {
        if self.on_device == 0 {
            self.ready()?.begin_sum(quantizer).map_err(failed)?;
        }
        let loss = self.ready()?.add(batch, tasks, quantizer.limit(tasks)).map_err(failed)?;
        self.on_device += if loss.is_some() { tasks } else { 0 };
        Ok(loss.map(|loss| loss * tasks as f64))
    }

    fn batch(&mut self, iteration: Iteration, tasks: TaskRange) -> PyBatch {
        let samples = tasks.indices().flat_map(|index| self.tasks.samples(iteration, index)).collect();
        PyBatch { samples, key: (self.seed, iteration.number(), tasks.first) }
    }
}

impl Learner for PythonLearner {
    fn load(&mut self, parameters: &[f32]) {
        let loaded = self.computation.as_ref().map_or(Ok(()), |computation| computation.load(parameters));
        self.load_failure = loaded.err().map(|raised| raised.text);
    }

    fn announce(&mut self, iteration: Iteration, tasks: TaskRange, at_once: u64) {
        let ahead = self.computation.as_ref().map_or(0, |computation| computation.ahead);
        if ahead == 0 {
            return;
        }
        let known =
            self.announced.filter(|(known, range)| *known == iteration && range.indices().contains(&tasks.first));
        let first = known.map_or(tasks.first, |(_, range)| range.end());
        // The range includes the batch that is computed next and those after it.
        let end = tasks.end().min(tasks.first + (ahead + 1) * at_once);
        let batches: Vec<PyBatch> = (first..end)
            .step_by(at_once as usize)
            .map(|first| self.batch(iteration, TaskRange { first, count: at_once.min(tasks.end() - first) }))
            .collect();
        self.announced = Some((iteration, TaskRange { first: tasks.first, count: end - tasks.first }));
        if let (Ok(computation), false) = (&self.computation, batches.is_empty()) {
            // A failure is ignored: the tasks are then computed without preparation.
            drop(computation.announce(&batches));
        }
    }

    fn gradient(&mut self, iteration: Iteration, index: u64) -> Result<TaskGradient, LearnerError> {
        self.fused(iteration, TaskRange { first: index, count: 1 })
    }

    fn fused(&mut self, iteration: Iteration, tasks: TaskRange) -> Result<TaskGradient, LearnerError> {
        let batch = self.batch(iteration, tasks);
        self.compute(&batch, |loss, gradient| TaskGradient {
            gradient: summed(gradient, tasks).into_owned(),
            loss: loss * tasks.count as f64,
        })
    }

    /// Adds on the device, or a single task's gradient directly from the shared array.
    fn add(
        &mut self,
        iteration: Iteration,
        tasks: TaskRange,
        sum: &mut GradientSum,
        quantizer: &Quantizer,
    ) -> Result<f64, LearnerError> {
        let batch = self.batch(iteration, tasks);
        if self.ready()?.has_sums()
            && let Some(loss) = self.add_on_device(&batch, tasks.count, quantizer)?
        {
            return Ok(loss);
        }
        // What is not finite on the device is computed again, for an error that says where.
        self.compute(&batch, |loss, gradient| {
            let loss = finite(loss * tasks.count as f64)?;
            sum.add(&summed(gradient, tasks), tasks.count, quantizer)?;
            Ok(loss)
        })?
    }

    fn finish(&mut self, sum: &mut GradientSum) -> Result<(), LearnerError> {
        match std::mem::take(&mut self.on_device) {
            0 => Ok(()),
            tasks => self.ready()?.end_sum(tasks, sum).map_err(failed),
        }
    }

    fn sift(&mut self, iteration: Iteration, index: u64) -> Result<Option<Sifted>, LearnerError> {
        let PyBatch { samples, key } = self.batch(iteration, TaskRange::single(index));
        let gradient = |samples: &[u64]| {
            let batch = PyBatch { samples: samples.to_vec(), key };
            self.compute(&batch, |loss, gradient| TaskGradient { gradient: gradient.to_vec(), loss })
        };
        match sift(&samples, |sample| *sample, gradient) {
            // Layers such as batch normalisation may refuse a single sample, whose error would hide that of the task.
            Err(LearnerError::Problem(_)) => Ok(None),
            found => found.map(Some),
        }
    }
}

/// An exception fails these tasks only: other tasks, or other workers, may succeed.
fn failed(raised: Raised) -> LearnerError {
    match raised {
        Raised { text, may_pass: true } => DataError::Problem(text).into(),
        Raised { text, may_pass: false } => LearnerError::Problem(text),
    }
}

/// Returns the sum of the tasks' gradients, given the mean over all samples: every task has the same number of samples.
fn summed(mean: &[f32], tasks: TaskRange) -> Cow<'_, [f32]> {
    let count = tasks.count as f32;
    if tasks.count == 1 { Cow::Borrowed(mean) } else { Cow::Owned(mean.iter().map(|value| value * count).collect()) }
}
