//! The gradient of a task.

use std::sync::Arc;

use burn::optim::GradientsParams;
use burn::tensor::{Device, ExecutionError};

use crate::data::{DataError, TaskSampler, Tasks};
use crate::flat;
use crate::model::OpenData;
use crate::problem::{Problem, Samples};
use crate::reduction::{Partial, reduce_in_order};

/// Computes the gradients of a run's tasks at given parameters.
pub trait Learner: Send {
    /// Puts parameters on the device.
    ///
    /// # Panics
    /// If there is not one `f32` per parameter of the model.
    fn load(&mut self, parameters: &[f32]);

    /// The mean loss over a task's samples and its gradient at the loaded parameters, in host memory.
    fn gradient(&mut self, iteration: u64, index: u64) -> Result<TaskGradient, LearnerError>;

    /// The sums, over `count` tasks from `first` on, of what [`Learner::gradient`] returns. They may be computed as one
    /// batch, which is faster on a GPU, and then not in the order of the reduction tree.
    fn fused(&mut self, iteration: u64, first: u64, count: u64) -> Result<TaskGradient, LearnerError> {
        let mut task = |index| self.gradient(iteration, index).map(|task| (task.gradient, task.loss));
        let Partial { gradient, loss, .. } = reduce_in_order(0, count, |index| task(first + index))?;
        Ok(TaskGradient { gradient, loss })
    }
}

/// The result of a task.
#[derive(Clone, Debug, PartialEq)]
pub struct TaskGradient {
    /// One `f32` per parameter, in flat order.
    pub gradient: Vec<f32>,
    /// Mean loss over the task's samples; cross-entropies are in nats.
    pub loss: f64,
}

/// Why a gradient could not be computed.
#[derive(Debug, thiserror::Error)]
pub enum LearnerError {
    /// The task's samples cannot be read.
    #[error(transparent)]
    Data(#[from] DataError),
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
    tasks: TaskSampler,
    network: Option<P::Network>,
    device: Device,
}

impl<P: Problem> BurnLearner<P> {
    /// A learner on `device`, which must have autodiff enabled.
    pub(crate) fn new(data: Arc<OpenData<P>>, tasks: Tasks, device: Device) -> Self {
        let tasks = TaskSampler::new(tasks, data.samples.count());
        Self { tasks, network: Some(data.problem.network(&device)), data, device }
    }
}

impl<P: Problem> Learner for BurnLearner<P> {
    fn load(&mut self, parameters: &[f32]) {
        self.network = self.network.take().map(|network| flat::with_parameters(network, parameters, &self.device));
    }

    fn gradient(&mut self, iteration: u64, index: u64) -> Result<TaskGradient, LearnerError> {
        self.fused(iteration, index, 1)
    }

    fn fused(&mut self, iteration: u64, first: u64, count: u64) -> Result<TaskGradient, LearnerError> {
        let OpenData { problem, samples } = &*self.data;
        let indices: Vec<u32> = (first..first + count).flat_map(|task| self.tasks.samples(iteration, task)).collect();
        let batch = samples.batch(&indices)?;
        let network = self.network.as_ref().expect("a network is only taken to be put back");
        // Tasks are of equal size: the sum of their mean losses is `count` times the mean over all their samples.
        let loss = problem.loss(network, &batch, &self.device);
        let loss = if count == 1 { loss } else { loss * count as f64 };
        let gradients = GradientsParams::from_grads(loss.backward(), network);
        let (loss, gradient) = flat::scalar_and_gradient(network, loss.inner(), gradients);
        Ok(TaskGradient { gradient, loss: f64::from(loss) })
    }
}
