//! Batch normalisation.

use std::sync::{Arc, Once};

use ata_nn::batch_norm::{self as kernel, BatchForward, BatchGeometry, Statistics};
use burn::backend::autodiff::checkpoint::strategy::CheckpointStrategy;
use burn::backend::tensor::FloatTensor;
use burn::backend::{Autodiff, Backend, Dispatch, Flex, backend_extension};
use burn::module::{Flag, Module, Param};
use burn::tensor::activation::relu;
use burn::tensor::module::{batch_norm, batch_norm_train};
use burn::tensor::{FloatDType, Tensor};
use burn_flex::FlexTensor;

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

    /// Normalises images, and applies ReLU.
    pub fn forward_relu(&self, images: Tensor<4>) -> Tensor<4> {
        self.run(images, None, true)
    }

    /// Normalises images, adds `shortcut`, which has the shape of the result, and applies ReLU.
    pub fn forward_add_relu(&self, images: Tensor<4>, shortcut: Tensor<4>) -> Tensor<4> {
        self.run(images, Some(shortcut), true)
    }

    /// Normalises images, adds `shortcut`, if there is one, and applies ReLU if `with_relu` is set.
    pub(crate) fn run(&self, images: Tensor<4>, shortcut: Option<Tensor<4>>, with_relu: bool) -> Tensor<4> {
        let trains = images.device().is_autodiff() && self.training.is_enabled();
        let tasks = if trains { tasks::count(images.dims()[0]) } else { 1 };
        if trains {
            warn_of_few_samples(images.dims()[0] / tasks);
        }
        if !flex::takes(&images) {
            return self.by_burn(images, shortcut, with_relu, trains.then_some(tasks));
        }
        let (samples, size) = flex::sizes(&images);
        let g = BatchGeometry { samples, size, tasks, epsilon: self.epsilon, relu: with_relu };
        let statistics = if trains {
            let x = images.clone().inner().try_into_primitive::<Flex>().expect("a tensor of the CPU device");
            let x = flex::viewable(x);
            let statistics = kernel::statistics(g, &flex::view(&x).images(samples, size));
            let of_tasks = |values| Tensor::<1>::from_floats(&*g.mean_of_tasks(values), &images.device()).inner();
            self.leave(of_tasks(&statistics.means), of_tasks(&statistics.variances), g.pixels());
            statistics
        } else {
            let [means, variances] = [&self.running_mean, &self.running_var]
                .map(|running| running.val().into_data().try_to_vec().expect("averaged parameters are f32"));
            Statistics { means, variances, of_images: false }
        };
        // An empty constant represents no shortcut, so that no gradient is computed for it.
        let shortcut = shortcut.unwrap_or_else(|| Tensor::zeros([0; 4], &images.device()));
        let (gamma, beta) = (self.gamma.val().into_dispatch(), self.beta.val().into_dispatch());
        let (x, shortcut) = (images.into_dispatch(), shortcut.into_dispatch());
        Tensor::from_dispatch(Dispatch::batch_norm_of_tasks(x, gamma, beta, shortcut, g, Arc::new(statistics)))
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
    fn by_burn(
        &self,
        images: Tensor<4>,
        shortcut: Option<Tensor<4>>,
        with_relu: bool,
        tasks: Option<usize>,
    ) -> Tensor<4> {
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
        let normalised = normalised.cast(dtype);
        let sum = match shortcut {
            Some(shortcut) => normalised + shortcut,
            None => normalised,
        };
        if with_relu { relu(sum) } else { sum }
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

#[backend_extension(Flex, Autodiff)]
trait BatchNormOperation: Backend {
    fn batch_norm_of_tasks(
        x: FloatTensor<Self>,
        gamma: FloatTensor<Self>,
        beta: FloatTensor<Self>,
        shortcut: FloatTensor<Self>,
        g: BatchGeometry,
        statistics: Arc<Statistics>,
    ) -> FloatTensor<Self>;
}

impl BatchNormOperation for Flex {
    fn batch_norm_of_tasks(
        x: FlexTensor,
        gamma: FlexTensor,
        beta: FlexTensor,
        shortcut: FlexTensor,
        g: BatchGeometry,
        statistics: Arc<Statistics>,
    ) -> FlexTensor {
        let (x, shortcut) = (flex::viewable(x), flex::viewable(shortcut));
        let (gamma, beta) = (gamma.to_contiguous(), beta.to_contiguous());
        let images = |tensor| flex::view(tensor).images(g.samples, g.size);
        let has_shortcut = shortcut.layout().num_elements() > 0;
        let shortcut = has_shortcut.then(|| images(&shortcut));
        let affine = [flex::numbers(&gamma), flex::numbers(&beta)];
        let output = kernel::forward(g, &images(&x), affine, shortcut.as_deref(), &statistics);
        flex::images(output, g.samples, g.size)
    }
}

impl<C: CheckpointStrategy> BatchNormOperation for Autodiff<Flex, C> {
    fn batch_norm_of_tasks(
        x: FloatTensor<Self>,
        gamma: FloatTensor<Self>,
        beta: FloatTensor<Self>,
        shortcut: FloatTensor<Self>,
        g: BatchGeometry,
        statistics: Arc<Statistics>,
    ) -> FloatTensor<Self> {
        flex::differentiable::<C, _, 4>(
            [x, gamma, beta, shortcut],
            |[x, gamma, beta, shortcut]| Flex::batch_norm_of_tasks(x, gamma, beta, shortcut, g, statistics.clone()),
            |[x, gamma, beta, shortcut]| {
                let (x, gamma) = (flex::viewable(x), gamma.to_contiguous());
                let operands = (x.clone(), gamma.clone());
                let output = Flex::batch_norm_of_tasks(operands.0, operands.1, beta, shortcut, g, statistics.clone());
                (output.clone(), (g, [x, output, gamma], statistics.clone()))
            },
            |(g, [x, output, gamma], statistics), gradient, wanted| {
                let gradient = flex::viewable(gradient);
                let images = |tensor| flex::view(tensor).images(g.samples, g.size);
                let (x, output) = (images(&x), images(&output));
                let saved =
                    BatchForward { x: &x, output: &output, statistics: &statistics, gamma: flex::numbers(&gamma) };
                let found = kernel::gradients(g, saved, &images(&gradient));
                flex::norm_gradients(found, (g.samples, g.size), wanted)
            },
        )
    }
}
