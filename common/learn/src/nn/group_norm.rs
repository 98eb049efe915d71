//! Group normalisation.

use ata_nn::group_norm::{self as kernel, Group, GroupForward, GroupGeometry};
use burn::backend::autodiff::checkpoint::strategy::CheckpointStrategy;
use burn::backend::tensor::FloatTensor;
use burn::backend::{Autodiff, Backend, Dispatch, Flex, backend_extension};
use burn::module::{Module, Param};
use burn::tensor::activation::relu;
use burn::tensor::{FloatDType, Tensor};
use burn_flex::FlexTensor;

use super::flex;

/// Group normalisation of images, fused with the next operations of a residual network.
#[derive(Module, Debug)]
pub struct GroupNorm {
    gamma: Param<Tensor<1>>,
    beta: Param<Tensor<1>>,
    groups: usize,
    epsilon: f64,
}

impl GroupNorm {
    /// Takes over the parameters of burn's layer.
    ///
    /// # Panics
    /// Panics if the layer has no parameters.
    pub fn new(layer: burn::nn::GroupNorm) -> Self {
        let [gamma, beta] = [layer.gamma, layer.beta].map(|values| values.expect("a layer with parameters"));
        Self { gamma, beta, groups: layer.num_groups, epsilon: layer.epsilon }
    }

    /// Takes and returns images of shape [samples, channels, height, width].
    pub fn forward(&self, images: Tensor<4>) -> Tensor<4> {
        self.run(images, None, false)
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
        if !flex::takes(&images) {
            let sum = self.by_burn(images, shortcut);
            return if with_relu { relu(sum) } else { sum };
        }
        let (samples, size) = flex::sizes(&images);
        let g = GroupGeometry { samples, size, groups: self.groups, epsilon: self.epsilon, relu: with_relu };
        // An empty constant represents no shortcut, so that no gradient is computed for it.
        let shortcut = shortcut.unwrap_or_else(|| Tensor::zeros([0; 4], &images.device()));
        let (gamma, beta) = (self.gamma.val().into_dispatch(), self.beta.val().into_dispatch());
        let (x, shortcut) = (images.into_dispatch(), shortcut.into_dispatch());
        Tensor::from_dispatch(Dispatch::group_norm(x, gamma, beta, shortcut, g))
    }

    fn by_burn(&self, images: Tensor<4>, shortcut: Option<Tensor<4>>) -> Tensor<4> {
        let (num_groups, num_channels, epsilon) = (self.groups, images.dims()[1], self.epsilon);
        let layer = burn::nn::GroupNorm { gamma: None, beta: None, num_groups, num_channels, epsilon, affine: false };
        let of_channels =
            |values: &Param<Tensor<1>>| values.val().cast(FloatDType::F32).reshape([1, num_channels, 1, 1]);
        let dtype = images.dtype();
        let normalised = layer.forward(images.cast(FloatDType::F32));
        let normalised = (normalised * of_channels(&self.gamma) + of_channels(&self.beta)).cast(dtype);
        match shortcut {
            Some(shortcut) => normalised + shortcut,
            None => normalised,
        }
    }
}

#[backend_extension(Flex, Autodiff)]
trait GroupNormOperation: Backend {
    fn group_norm(
        x: FloatTensor<Self>,
        gamma: FloatTensor<Self>,
        beta: FloatTensor<Self>,
        shortcut: FloatTensor<Self>,
        g: GroupGeometry,
    ) -> FloatTensor<Self>;
}

/// Returns the output and the statistics, which the gradients need.
fn forward(
    g: GroupGeometry,
    x: &FlexTensor,
    [gamma, beta]: [&FlexTensor; 2],
    shortcut: FlexTensor,
) -> (FlexTensor, Vec<Group>) {
    let shortcut = flex::viewable(shortcut);
    let has_shortcut = shortcut.layout().num_elements() > 0;
    let shortcut = has_shortcut.then(|| flex::view(&shortcut).images(g.samples, g.size));
    let x = flex::view(x).images(g.samples, g.size);
    let affine = [flex::numbers(gamma), flex::numbers(beta)];
    let (output, groups) = kernel::forward(g, &x, affine, shortcut.as_deref());
    (flex::images(output, g.samples, g.size), groups)
}

impl GroupNormOperation for Flex {
    fn group_norm(
        x: FlexTensor,
        gamma: FlexTensor,
        beta: FlexTensor,
        shortcut: FlexTensor,
        g: GroupGeometry,
    ) -> FlexTensor {
        let (x, gamma, beta) = (flex::viewable(x), gamma.to_contiguous(), beta.to_contiguous());
        forward(g, &x, [&gamma, &beta], shortcut).0
    }
}

impl<C: CheckpointStrategy> GroupNormOperation for Autodiff<Flex, C> {
    fn group_norm(
        x: FloatTensor<Self>,
        gamma: FloatTensor<Self>,
        beta: FloatTensor<Self>,
        shortcut: FloatTensor<Self>,
        g: GroupGeometry,
    ) -> FloatTensor<Self> {
        flex::differentiable::<C, _, 4>(
            [x, gamma, beta, shortcut],
            |[x, gamma, beta, shortcut]| Flex::group_norm(x, gamma, beta, shortcut, g),
            |[x, gamma, beta, shortcut]| {
                let (x, gamma, beta) = (flex::viewable(x), gamma.to_contiguous(), beta.to_contiguous());
                let (output, groups) = forward(g, &x, [&gamma, &beta], shortcut);
                (output.clone(), (g, [x, output, gamma], groups))
            },
            |(g, [x, output, gamma], groups), gradient, wanted| {
                let gradient = flex::viewable(gradient);
                let images = |tensor| flex::view(tensor).images(g.samples, g.size);
                let (x, output) = (images(&x), images(&output));
                let saved = GroupForward { x: &x, output: &output, groups: &groups, gamma: flex::numbers(&gamma) };
                let found = kernel::gradients(g, saved, &images(&gradient));
                flex::norm_gradients(found, (g.samples, g.size), wanted)
            },
        )
    }
}
