//! The coordinator's part of training: initial parameters, optimizer steps, evaluation.

use std::sync::{Mutex, PoisonError};

use burn::nn::loss::CrossEntropyLossConfig;
use burn::optim::{AdamConfig, ModuleOptimizer};
use burn::tensor::{Device, Tensor};

use crate::data::{DataError, Dataset};
use crate::flat;
use crate::learner::on_device;
use crate::model::Network;

/// How to train.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct TrainerConfig {
    /// Adam's step size.
    pub learning_rate: f64,
    /// Seed of the initial parameters.
    pub seed: u64,
}

/// Holds the parameters and updates them.
pub trait Trainer: Send {
    /// The parameters as one flat vector.
    fn parameters(&self) -> Vec<f32>;

    /// Takes one Adam step (β1 = 0.9, β2 = 0.999, ε = 1e-8) along the flat mean gradient of an iteration, at
    /// `lr_factor` times the learning rate.
    ///
    /// # Panics
    /// If there is not one `f32` per parameter of the model.
    fn step(&mut self, gradient: &[f32], lr_factor: f64);

    /// Mean loss and accuracy over a whole data set.
    fn evaluate(&self, data: &Dataset) -> Result<Evaluation, DataError>;
}

/// How good the parameters are on a data set.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Evaluation {
    /// Mean cross-entropy, in nats.
    pub loss: f64,
    /// Share of samples whose largest score is that of the label, from 0 to 1.
    pub accuracy: f64,
}

/// Samples per evaluation batch: 3 MiB of images, enough to amortise kernel launches.
const EVALUATION_BATCH: u32 = 250;

pub(crate) struct BurnTrainer<N> {
    network: Option<N>,
    adam: ModuleOptimizer,
    learning_rate: f64,
    device: Device,
}

impl<N: Network> BurnTrainer<N> {
    pub(crate) fn new(new: impl Fn(&Device) -> N, config: &TrainerConfig, device: Device) -> Self {
        let device = device.autodiff();
        let initial = initial_parameters(&new, config.seed);
        let network = flat::with_parameters(new(&device), &initial, &device);
        let adam = AdamConfig::new().with_epsilon(1e-8).init();
        Self { network: Some(network), adam, learning_rate: config.learning_rate, device }
    }

    fn network(&self) -> &N {
        self.network.as_ref().expect("a network is only taken to be put back")
    }
}

/// Makes the initial parameters, always on the CPU, so that they are the same on every device.
fn initial_parameters<N: Network>(new: impl Fn(&Device) -> N, seed: u64) -> Vec<f32> {
    // burn has one random state per process.
    static RANDOM_STATE: Mutex<()> = Mutex::new(());
    let _guard = RANDOM_STATE.lock().unwrap_or_else(PoisonError::into_inner);
    let cpu = Device::flex();
    cpu.seed(seed);
    flat::parameters(&new(&cpu))
}

impl<N: Network> Trainer for BurnTrainer<N> {
    fn parameters(&self) -> Vec<f32> {
        flat::parameters(self.network())
    }

    fn step(&mut self, gradient: &[f32], lr_factor: f64) {
        let gradients = flat::gradients(self.network(), gradient, &self.device);
        let network = self.network.take().expect("a network is only taken to be put back");
        self.network = Some(self.adam.step(self.learning_rate * lr_factor, network, gradients));
    }

    fn evaluate(&self, data: &Dataset) -> Result<Evaluation, DataError> {
        let device = self.device.clone().without_autodiff();
        let network = self.network().valid();
        let cross_entropy = CrossEntropyLossConfig::new().init(&device);
        let (mut loss, mut correct) = (0.0, 0.0);
        for first in (0..data.len()).step_by(EVALUATION_BATCH as usize) {
            let samples = first..data.len().min(first + EVALUATION_BATCH);
            let batch = data.batch(samples.clone())?;
            let (images, labels) = on_device(&batch, &device);
            let scores = network.forward(images);
            let hits = scores.clone().argmax(1).flatten::<1>(0, 1).equal(labels.clone()).int().sum().float();
            let mean: Tensor<1> = cross_entropy.forward(scores, labels);
            loss += f64::from(mean.into_scalar::<f32>()) * samples.len() as f64;
            correct += f64::from(hits.into_scalar::<f32>());
        }
        let total = f64::from(data.len());
        Ok(Evaluation { loss: loss / total, accuracy: correct / total })
    }
}
