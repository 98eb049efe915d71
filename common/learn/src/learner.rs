//! The gradient of a task.

use burn::nn::loss::{CrossEntropyLoss, CrossEntropyLossConfig};
use burn::optim::GradientsParams;
use burn::tensor::{Device, ExecutionError, Int, Tensor, TensorData};

use crate::data::Batch;
use crate::flat;
use crate::model::Network;

/// Computes gradients at given parameters.
pub trait Learner: Send {
    /// Puts parameters on the device.
    ///
    /// # Panics
    /// If there is not one `f32` per parameter of the model.
    fn load(&mut self, parameters: &[f32]);

    /// The mean loss over `batch` and its gradient at the loaded parameters, in host memory.
    fn gradient(&mut self, batch: &Batch) -> Result<TaskGradient, LearnerError>;
}

/// The result of a task.
#[derive(Clone, Debug, PartialEq)]
pub struct TaskGradient {
    /// One `f32` per parameter, in flat order.
    pub gradient: Vec<f32>,
    /// Mean cross-entropy over the batch, in nats.
    pub loss: f64,
}

/// The device failed.
#[derive(Debug, thiserror::Error)]
#[error("the device failed: {0}")]
pub struct LearnerError(String);

impl From<ExecutionError> for LearnerError {
    fn from(error: ExecutionError) -> Self {
        Self(format!("{error:?}"))
    }
}

pub(crate) struct BurnLearner<N> {
    network: Option<N>,
    loss: CrossEntropyLoss,
    device: Device,
}

impl<N: Network> BurnLearner<N> {
    /// A learner on `device`, which must have autodiff enabled.
    pub(crate) fn new(network: N, device: Device) -> Self {
        Self { network: Some(network), loss: CrossEntropyLossConfig::new().init(&device), device }
    }
}

impl<N: Network> Learner for BurnLearner<N> {
    fn load(&mut self, parameters: &[f32]) {
        self.network = self.network.take().map(|network| flat::with_parameters(network, parameters, &self.device));
    }

    fn gradient(&mut self, batch: &Batch) -> Result<TaskGradient, LearnerError> {
        let network = self.network.as_ref().expect("a network is only taken to be put back");
        let (images, labels) = on_device(batch, &self.device);
        let loss = self.loss.forward(network.forward(images), labels);
        let gradients = GradientsParams::from_grads(loss.backward(), network);
        let (loss, gradient) = flat::scalar_and_gradient(network, loss.inner(), gradients);
        Ok(TaskGradient { gradient, loss: f64::from(loss) })
    }
}

/// A batch's images, shape [samples, 3, 32, 32], and labels, shape [samples].
pub(crate) fn on_device(batch: &Batch, device: &Device) -> (Tensor<4>, Tensor<1, Int>) {
    let samples = batch.labels.len();
    let images = TensorData::new(batch.images.clone(), [samples, 3, 32, 32]);
    let labels = TensorData::new(batch.labels.clone(), [samples]);
    (Tensor::from_data(images, device), Tensor::from_data(labels, device))
}
