//! Dropout.

use burn::module::{Flag, Module, Param};
use burn::tensor::{Tensor, TensorData};
use rand::RngExt;

use super::tasks;

/// Dropout whose zeros depend on (seed, iteration, task), the place of a sample in its task, and the number of layers before, on every device
/// and in batches of any number of tasks: of each number, 32 random bits of ChaCha8 decide. In evaluations it changes nothing.
///
/// Source: Srivastava, Hinton, Krizhevsky, Sutskever, Salakhutdinov, "Dropout: A Simple Way to Prevent Neural Networks from Overfitting",
/// JMLR 2014; the numbers that remain are divided by the probability of that.
#[derive(Module, Debug)]
pub struct Dropout {
    /// The probability of a zero.
    probability: f64,
    training: Param<Flag>,
}

impl Dropout {
    /// Replaces burn's layer.
    pub fn new(layer: burn::nn::Dropout) -> Self {
        Self { probability: layer.prob, training: layer.training }
    }

    /// Takes and returns a tensor whose first dimension is that of the samples, or has equally many successive rows of each of them.
    ///
    /// # Panics
    /// Panics if the samples of the batch do not have equally many rows.
    pub fn forward<const D: usize>(&self, x: Tensor<D>) -> Tensor<D> {
        if !x.device().is_autodiff() || !self.training.is_enabled() || self.probability == 0.0 {
            return x;
        }
        let (rows, numbers) = (x.dims()[0], x.shape().num_elements());
        let mut generators = tasks::generators();
        let samples = generators.len();
        assert!(rows.is_multiple_of(samples), "{rows} rows of {samples} samples: expected equally many of each sample");
        let (zeros, kept) = ((self.probability * 2_f64.powi(32)) as u32, (1.0 / (1.0 - self.probability)) as f32);
        let mut factors = Vec::with_capacity(numbers);
        for generator in &mut generators {
            let factor = || if generator.random::<u32>() < zeros { 0.0 } else { kept };
            factors.extend(std::iter::repeat_with(factor).take(numbers / samples));
        }
        let factors = Tensor::<D>::from_data(TensorData::new(factors, x.shape()), &x.device());
        let dtype = x.dtype();
        x * factors.cast(dtype)
    }
}
