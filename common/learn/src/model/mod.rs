//! Models: what a burn module needs in order to be trained, and the built-in one.

mod cnn;

pub use cnn::{Cnn, CnnWidths};

use std::sync::{Arc, Mutex, PoisonError};

use burn::module::Module;
use burn::tensor::{Device, Tensor};

use crate::device::OpenDevice;
use crate::evaluator::{BurnEvaluator, Evaluator};
use crate::flat;
use crate::learner::{BurnLearner, Learner};
use crate::table::ParameterTable;

/// A burn module that classifies images. Implement this for your own module; [`model`] then makes it trainable.
pub trait Network: Module + 'static {
    /// Class scores (logits) of a batch of images.
    ///
    /// `images` has shape [samples, 3, 32, 32], normalised per channel; the result has shape [samples, classes].
    fn forward(&self, images: Tensor<4>) -> Tensor<2>;
}

/// A network that can be put on a device, as a worker's learner or as the coordinator's evaluator.
pub trait Model: Send + Sync {
    /// Number of parameters: the length of every flat parameter and gradient vector.
    fn parameter_count(&self) -> usize;

    /// The worker's side: gradients of tasks.
    fn learner(&self, device: &OpenDevice) -> Box<dyn Learner>;

    /// The coordinator's side: loss and accuracy.
    fn evaluator(&self, device: &OpenDevice) -> Box<dyn Evaluator>;

    /// The names and shapes of the parameters.
    fn table(&self) -> ParameterTable;

    /// Fresh random parameters: the same for the same seed on every machine and device.
    fn initial_parameters(&self, seed: u64) -> Vec<f32>;
}

/// Finds the model that a specification such as `cnn` names; coordinator and workers must use the same resolver.
pub type ModelResolver = fn(&str) -> Result<Arc<dyn Model>, ModelError>;

/// Why a model specification names no model.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ModelError {
    /// There is no such model.
    #[error("unknown model '{0}': expected cnn, or cnn:widths=C1/C2/C3/H")]
    Unknown(String),
    /// The widths of the CNN do not parse.
    #[error("model 'cnn': widths '{0}' must be four whole numbers from 1 to {max}, as in 16/32/64/120", max = CnnWidths::MAX)]
    Widths(String),
}

/// Makes a model from a function that creates a network with fresh random parameters on a device.
pub fn model<N: Network>(new: impl Fn(&Device) -> N + Send + Sync + 'static) -> Arc<dyn Model> {
    Arc::new(BurnModel { new })
}

/// The models that come with ata: `cnn`, and `cnn:widths=C1/C2/C3/H`.
pub fn builtin_model(specification: &str) -> Result<Arc<dyn Model>, ModelError> {
    let widths = match specification.split_once(':').unwrap_or((specification, "")) {
        ("cnn", "") => CnnWidths::default(),
        ("cnn", parameters) => match parameters.split_once('=') {
            Some(("widths", widths)) => widths.parse()?,
            _ => return Err(ModelError::Unknown(specification.into())),
        },
        _ => return Err(ModelError::Unknown(specification.into())),
    };
    Ok(model(move |device| Cnn::new(widths, device)))
}

struct BurnModel<F> {
    new: F,
}

impl<N: Network, F: Fn(&Device) -> N + Send + Sync> Model for BurnModel<F> {
    fn parameter_count(&self) -> usize {
        (self.new)(&Device::flex()).num_params()
    }

    fn learner(&self, device: &OpenDevice) -> Box<dyn Learner> {
        let device = device.device.clone().autodiff();
        Box::new(BurnLearner::new((self.new)(&device), device))
    }

    fn evaluator(&self, device: &OpenDevice) -> Box<dyn Evaluator> {
        let device = device.device.clone().without_autodiff();
        Box::new(BurnEvaluator::new((self.new)(&device), device))
    }

    fn table(&self) -> ParameterTable {
        ParameterTable::of(&(self.new)(&Device::flex()))
    }

    fn initial_parameters(&self, seed: u64) -> Vec<f32> {
        // burn has one random state per process.
        static RANDOM_STATE: Mutex<()> = Mutex::new(());
        let _guard = RANDOM_STATE.lock().unwrap_or_else(PoisonError::into_inner);
        let cpu = Device::flex();
        cpu.seed(seed);
        flat::parameters(&(self.new)(&cpu))
    }
}
