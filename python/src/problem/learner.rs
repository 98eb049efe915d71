//! The worker's use of a computation: gradients of tasks.

use ata_learn::{DataError, Learner, LearnerError, TaskGradient, TaskSampler};
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

    fn compute(&self, samples: &[u32], iteration: Iteration, task: u64) -> Result<TaskGradient, LearnerError> {
        let computation = self.computation.as_ref().map_err(|reason| LearnerError::Device(reason.clone()))?;
        if let Some(reason) = &self.load_failure {
            return Err(LearnerError::Device(reason.clone()));
        }
        let computed = computation.gradient(samples, self.seed, (iteration, task));
        // An exception fails this task. Others, and other workers, may fare better.
        let (loss, gradient) = computed.map_err(DataError::Problem)?;
        Ok(TaskGradient { gradient, loss })
    }
}

impl Learner for PythonLearner {
    fn load(&mut self, parameters: &[f32]) {
        self.load_failure = self.computation.as_ref().ok().and_then(|computation| computation.load(parameters).err());
    }

    fn gradient(&mut self, iteration: Iteration, index: u64) -> Result<TaskGradient, LearnerError> {
        let samples = self.tasks.samples(iteration, index);
        self.compute(&samples, iteration, index)
    }

    /// As one batch: all tasks have as many samples, so the sum of their means is their number times the mean of all.
    fn fused(&mut self, iteration: Iteration, tasks: TaskRange) -> Result<TaskGradient, LearnerError> {
        let samples: Vec<u32> = tasks.indices().flat_map(|index| self.tasks.samples(iteration, index)).collect();
        let TaskGradient { mut gradient, loss } = self.compute(&samples, iteration, tasks.first)?;
        let count = tasks.count as f32;
        for value in &mut gradient {
            *value *= count;
        }
        Ok(TaskGradient { gradient, loss: loss * f64::from(count) })
    }
}
