//! Group normalisation.

use ata_nn::group_norm::{self as kernel, Group, GroupGeometry};
use ata_nn::group_norm_gradient::{self, GroupForward};
use burn::backend::autodiff::checkpoint::base::Checkpointer;
use burn::backend::autodiff::checkpoint::strategy::CheckpointStrategy;
use burn::backend::autodiff::grads::Gradients;
use burn::backend::autodiff::ops::{Backward, Ops, OpsKind};
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

    fn run(&self, images: Tensor<4>, shortcut: Option<Tensor<4>>, with_relu: bool) -> Tensor<4> {
        if !flex::takes(&images) {
            let sum = self.by_burn(images, shortcut);
            return if with_relu { relu(sum) } else { sum };
        }
        // An empty constant represents no shortcut, so that no gradient is computed for it.
        let shortcut = shortcut.unwrap_or_else(|| Tensor::zeros([0; 4], &images.device()));
        let (gamma, beta) = (self.gamma.val().into_dispatch(), self.beta.val().into_dispatch());
        let (x, shortcut) = (images.into_dispatch(), shortcut.into_dispatch());
        Tensor::from_dispatch(Dispatch::group_norm(x, gamma, beta, shortcut, self.groups, self.epsilon, with_relu))
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
        groups: usize,
        epsilon: f64,
        relu: bool,
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

fn geometry(x: &FlexTensor, groups: usize, epsilon: f64, relu: bool) -> GroupGeometry {
    let (samples, size) = flex::sizes(x);
    GroupGeometry { samples, size, groups, epsilon, relu }
}

impl GroupNormOperation for Flex {
    fn group_norm(
        x: FlexTensor,
        gamma: FlexTensor,
        beta: FlexTensor,
        shortcut: FlexTensor,
        groups: usize,
        epsilon: f64,
        relu: bool,
    ) -> FlexTensor {
        let (x, gamma, beta) = (flex::viewable(x), gamma.to_contiguous(), beta.to_contiguous());
        forward(geometry(&x, groups, epsilon, relu), &x, [&gamma, &beta], shortcut).0
    }
}

impl<C: CheckpointStrategy> GroupNormOperation for Autodiff<Flex, C> {
    fn group_norm(
        x: FloatTensor<Self>,
        gamma: FloatTensor<Self>,
        beta: FloatTensor<Self>,
        shortcut: FloatTensor<Self>,
        groups: usize,
        epsilon: f64,
        relu: bool,
    ) -> FloatTensor<Self> {
        let ((x, of_x), (shortcut, of_shortcut)) = (x.into_parts(), shortcut.into_parts());
        let ((gamma, of_gamma), (beta, of_beta)) = (gamma.into_parts(), beta.into_parts());
        let (x, gamma, beta) = (flex::viewable(x), gamma.to_contiguous(), beta.to_contiguous());
        let g = geometry(&x, groups, epsilon, relu);
        let (output, statistics) = forward(g, &x, [&gamma, &beta], shortcut);
        match GroupNormBackward(g).prepare::<C>([of_x, of_gamma, of_beta, of_shortcut]).compute_bound().stateful() {
            OpsKind::UnTracked(prepared) => prepared.finish(output),
            OpsKind::Tracked(prepared) => {
                prepared.finish(GroupNormState { x, output: output.clone(), gamma, groups: statistics }, output)
            }
        }
    }
}

#[derive(Debug)]
struct GroupNormBackward(GroupGeometry);

#[derive(Clone, Debug)]
struct GroupNormState {
    x: FlexTensor,
    output: FlexTensor,
    gamma: FlexTensor,
    groups: Vec<Group>,
}

impl Backward<Flex, 4> for GroupNormBackward {
    type State = GroupNormState;

    fn backward(self, ops: Ops<GroupNormState, 4>, gradients: &mut Gradients, _: &mut Checkpointer) {
        let (g, GroupNormState { x, output, gamma, groups }) = (self.0, ops.state);
        let gradient = flex::viewable(gradients.consume::<Flex>(&ops.node));
        let images = |tensor| flex::view(tensor).images(g.samples, g.size);
        let (x, output) = (images(&x), images(&output));
        let saved = GroupForward { x: &x, output: &output, groups: &groups, gamma: flex::numbers(&gamma) };
        let found = group_norm_gradient::gradients(g, saved, &images(&gradient));
        let [of_x, of_gamma, of_beta, of_shortcut] = ops.parents;
        for (node, numbers) in [(of_x, found.x), (of_shortcut, found.shortcut)] {
            if let Some(node) = node {
                gradients.register::<Flex>(node.id, flex::images(numbers, g.samples, g.size));
            }
        }
        for (node, numbers) in [(of_gamma, found.gamma), (of_beta, found.beta)] {
            if let Some(node) = node {
                gradients.register::<Flex>(node.id, flex::tensor(numbers, [g.size.channels]));
            }
        }
    }
}
