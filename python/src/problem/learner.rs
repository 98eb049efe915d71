//! The worker's use of a computation: gradients of tasks.

use std::borrow::Cow;

use ata_learn::{DataError, GradientSum, Learner, LearnerError, Quantizer, TaskGradient, TaskSampler};
use ata_types::{Iteration, TaskRange};

use super::computation::Computation;

pub(super) struct PythonLearner {
    /// Without one, every task fails for that reason.
    computation: Result<Computation, String>,
    tasks: TaskSampler,
    seed: u64,
    /// Why the parameters could not be loaded.
    load_failure: Option<String>,
}

impl PythonLearner {
    pub(super) fn new(computation: Result<Computation, String>, tasks: TaskSampler, seed: u64) -> Self {
        Self { computation, tasks, seed, load_failure: None }
    }

    /// Computes the samples of tasks as one batch, and passes on their mean loss and its gradient.
    fn compute<T>(
        &mut self,
        iteration: Iteration,
        tasks: TaskRange,
        take: impl FnOnce(f64, &[f32]) -> T,
    ) -> Result<T, LearnerError> {
        let computation = self.computation.as_ref().map_err(|reason| LearnerError::Device(reason.clone()))?;
        if let Some(reason) = &self.load_failure {
            return Err(LearnerError::Device(reason.clone()));
        }
        let samples: Vec<u64> = tasks.indices().flat_map(|index| self.tasks.samples(iteration, index)).collect();
        let computed = computation.gradient(&samples, self.seed, (iteration, tasks.first), take);
        // An exception fails these tasks. Others, and other workers, may fare better.
        Ok(computed.map_err(DataError::Problem)?)
    }
}

impl Learner for PythonLearner {
    fn load(&mut self, parameters: &[f32]) {
        self.load_failure = self.computation.as_ref().ok().and_then(|computation| computation.load(parameters).err());
    }

    fn gradient(&mut self, iteration: Iteration, index: u64) -> Result<TaskGradient, LearnerError> {
        self.fused(iteration, TaskRange { first: index, count: 1 })
    }

    fn fused(&mut self, iteration: Iteration, tasks: TaskRange) -> Result<TaskGradient, LearnerError> {
        self.compute(iteration, tasks, |loss, gradient| TaskGradient {
            gradient: summed(gradient, tasks).into_owned(),
            loss: loss * tasks.count as f64,
        })
    }

    /// A single task's gradient is added from where Python left it.
    fn add(
        &mut self,
        iteration: Iteration,
        tasks: TaskRange,
        sum: &mut GradientSum,
        quantizer: &Quantizer,
    ) -> Result<f64, LearnerError> {
        let added = self.compute(iteration, tasks, |loss, gradient| {
            sum.add(&summed(gradient, tasks), tasks.count, quantizer).map(|()| loss * tasks.count as f64)
        })?;
        Ok(added?)
    }
}

/// The sum of the tasks' gradients, given the mean over the samples of all: all tasks have as many samples.
fn summed(mean: &[f32], tasks: TaskRange) -> Cow<'_, [f32]> {
    let count = tasks.count as f32;
    if tasks.count == 1 { Cow::Borrowed(mean) } else { Cow::Owned(mean.iter().map(|value| value * count).collect()) }
}
