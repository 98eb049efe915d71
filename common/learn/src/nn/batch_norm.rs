//! Batch normalisation.

use std::sync::{Arc, Once};

use ata_nn::batch_norm::{Statistics, statistics};
use ata_nn::normalise::NormGeometry;
use burn::backend::Flex;
use burn::module::{Flag, Module, Param};
use burn::tensor::module::{batch_norm, batch_norm_train};
use burn::tensor::{FloatDType, Tensor};

use super::normalise::{finish_by_burn, normalise};
use super::{flex, tasks};

/// With fewer samples in a task, its statistics are so noisy that a warning says so.
const FEW_SAMPLES: usize = 8;

/// Batch normalisation, fused with the next operations of a residual network.
///
/// Each task is normalised by the means and variances of its own samples, also where a device computes several tasks as one batch. Its running
/// statistics begin at those of the iteration, and a step sets them to the mean of what the tasks leave. Evaluations use the running statistics.
#[derive(Module, Debug)]
pub struct BatchNorm {
    gamma: Param<Tensor<1>>,
    beta: Param<Tensor<1>>,
    running_mean: Param<Tensor<1>>,
    running_var: Param<Tensor<1>>,
    training: Param<Flag>,
    momentum: f64,
    epsilon: f64,
}

impl BatchNorm {
    /// Takes over the parameters of burn's layer. Its momentum is the weight of a task's statistics in the running ones, as in PyTorch.
    pub fn new(layer: burn::nn::BatchNorm) -> Self {
        let burn::nn::BatchNorm { gamma, beta, training, running_mean, running_var, momentum, epsilon } = layer;
        let [running_mean, running_var] =
            [running_mean, running_var].map(|state| Param::from_tensor(state.value()).set_require_grad(false));
        Self { gamma, beta, running_mean, running_var, training, momentum, epsilon }
    }

    /// Takes and returns a tensor of shape [samples, channels, …].
    pub fn forward<const D: usize>(&self, x: Tensor<D>) -> Tensor<D> {
        if D == 4 {
            let images = self.run(Tensor::from_dispatch(x.into_dispatch()), None, false);
            return Tensor::from_dispatch(images.into_dispatch());
        }
        let (shape, [samples, channels]) = (x.shape(), [x.dims()[0], x.dims()[1]]);
        let pixels = shape.num_elements() / (samples * channels).max(1);
        self.run(x.reshape([samples, channels, pixels, 1]), None, false).reshape(shape)
    }

    /// Normalises images, adds `shortcut`, if there is one, and applies ReLU if `with_relu` is set.
    pub(crate) fn run(&self, images: Tensor<4>, shortcut: Option<Tensor<4>>, with_relu: bool) -> Tensor<4> {
        let trains = images.device().is_autodiff() && self.training.is_enabled();
        let tasks = if trains { tasks::count(images.dims()[0]) } else { 1 };
        if trains {
            warn_of_few_samples(images.dims()[0] / tasks);
        }
        if !flex::takes(&images) {
            return finish_by_burn(self.by_burn(images, trains.then_some(tasks)), shortcut, with_relu);
        }
        let (samples, size) = flex::sizes(&images);
        let g = NormGeometry { samples, size, parts: tasks, epsilon: self.epsilon, relu: with_relu };
        let statistics = if trains {
            let x = images.clone().inner().try_into_primitive::<Flex>().expect("a tensor of the CPU device");
            let x = flex::viewable(x);
            let statistics = statistics(g, &flex::view(&x).images(samples, size));
            let of_tasks = |values| Tensor::<1>::from_floats(&*g.mean_of_tasks(values), &images.device()).inner();
            self.leave(of_tasks(&statistics.means), of_tasks(&statistics.variances), g.pixels());
            statistics
        } else {
            let [means, variances] = [&self.running_mean, &self.running_var]
                .map(|running| running.val().into_data().try_to_vec().expect("averaged parameters are f32"));
            Statistics { means, variances, of_images: false }
        };
        normalise(images, [&self.gamma, &self.beta], shortcut, g, Some(Arc::new(statistics)))
    }

    /// Leaves the running statistics after a task with these means and biased variances of so many pixels.
    fn leave(&self, means: Tensor<1>, variances: Tensor<1>, pixels: usize) {
        let unbiased = variances * (pixels as f64 / (pixels as f64 - 1.0).max(1.0));
        for (running, found) in [(&self.running_mean, means), (&self.running_var, unbiased)] {
            let momentum = self.momentum;
            tasks::leave(running.id, running.val().inner(), |value| value * (1.0 - momentum) + found * momentum);
        }
    }

    /// Normalises the tasks of a batch, or, if there is no number of them, by the running statistics.
    fn by_burn(&self, images: Tensor<4>, tasks: Option<usize>) -> Tensor<4> {
        let (dtype, [samples, channels, height, width]) = (images.dtype(), images.dims());
        let [gamma, beta] = [&self.gamma, &self.beta].map(|values| values.val().cast(FloatDType::F32));
        let x = images.cast(FloatDType::F32);
        let normalised = if let Some(tasks) = tasks {
            // The channels of each task become channels of their own.
            let of_task = samples / tasks;
            let apart = x.reshape([tasks, of_task, channels, height * width]).swap_dims(0, 1);
            let apart = apart.reshape([of_task, tasks * channels, height * width]);
            let result = batch_norm_train(apart, gamma.repeat(&[tasks]), beta.repeat(&[tasks]), self.epsilon);
            let of_tasks =
                |values: Tensor<1>| values.inner().reshape([tasks, channels]).mean_dim(0).reshape([channels]);
            self.leave(of_tasks(result.mean), of_tasks(result.variance), of_task * height * width);
            let together = result.output.reshape([of_task, tasks, channels, height * width]).swap_dims(0, 1);
            together.reshape([samples, channels, height, width])
        } else {
            batch_norm(x, gamma, beta, self.running_mean.val(), self.running_var.val(), self.epsilon)
        };
        normalised.cast(dtype)
    }
}

fn warn_of_few_samples(samples: usize) {
    static WARNED: Once = Once::new();
    if samples < FEW_SAMPLES {
        WARNED.call_once(|| {
            tracing::warn!("batch normalisation over the {samples} samples of a task is noisy: --task-batch 8 or more");
        });
    }
}
