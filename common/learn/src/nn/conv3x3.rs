//! 3×3 convolution.

use std::sync::Arc;

use ata_nn::Aligned;
use ata_nn::conv3x3::{self as kernel, Geometry};
use ata_nn::conv3x3_gradient;
use ata_nn::image::Size;
use burn::backend::autodiff::NodeId;
use burn::backend::autodiff::checkpoint::base::Checkpointer;
use burn::backend::autodiff::checkpoint::strategy::CheckpointStrategy;
use burn::backend::autodiff::grads::Gradients;
use burn::backend::autodiff::ops::{Backward, Ops, OpsKind};
use burn::backend::tensor::FloatTensor;
use burn::backend::{Autodiff, Backend, Dispatch, Flex, backend_extension};
use burn::module::{Module, Param};
use burn::nn::PaddingConfig2d;
use burn::nn::conv::Conv2d;
use burn::tensor::Tensor;
use burn::tensor::module::conv2d;
use burn::tensor::ops::ConvOptions;
use burn_flex::FlexTensor;

use super::flex;

/// A 3×3 convolution with padding 1 and stride 1 or 2.
#[derive(Module, Debug)]
pub struct Conv3x3 {
    weight: Param<Tensor<4>>,
    bias: Option<Param<Tensor<1>>>,
    stride: usize,
}

impl Conv3x3 {
    /// Takes over the parameters of burn's layer.
    ///
    /// # Panics
    /// Panics if the layer is not a 3×3 convolution with padding 1 and stride 1 or 2.
    pub fn new(layer: Conv2d) -> Self {
        let stride = stride_of(&layer);
        Self { weight: layer.weight, bias: layer.bias, stride }
    }

    /// Takes and returns images of shape [samples, channels, height, width].
    pub fn forward(&self, images: Tensor<4>) -> Tensor<4> {
        let (weight, bias) = (self.weight.val(), self.bias.as_ref().map(Param::val));
        if !flex::takes(&images) {
            return burn_convolution(images, weight, bias, self.stride);
        }
        // The missing bias is a constant, so that no gradient is computed for it.
        let bias = bias.unwrap_or_else(|| Tensor::zeros([weight.dims()[0]], &images.device()));
        let (images, weight, bias) = (images.into_dispatch(), weight.into_dispatch(), bias.into_dispatch());
        Tensor::from_dispatch(Dispatch::conv3x3(images, weight, bias, self.stride))
    }
}

/// Returns the stride of a layer.
///
/// # Panics
/// Panics if the layer is not a 3×3 convolution with padding 1 and stride 1 or 2.
pub(super) fn stride_of(layer: &Conv2d) -> usize {
    let is_padded = match layer.padding {
        PaddingConfig2d::Explicit(top, left, bottom, right) => [top, left, bottom, right] == [1; 4],
        PaddingConfig2d::Same => layer.stride == [1, 1],
        PaddingConfig2d::Valid => false,
    };
    let is_plain = layer.kernel_size == [3, 3] && layer.dilation == [1, 1] && layer.groups == 1;
    let has_stride = layer.stride == [1, 1] || layer.stride == [2, 2];
    assert!(
        is_padded && is_plain && has_stride,
        "expected a 3×3 convolution with padding 1 and stride 1 or 2: {layer:?}"
    );
    layer.stride[0]
}

/// Computes the convolution with burn's operation.
pub(super) fn burn_convolution(
    images: Tensor<4>,
    weight: Tensor<4>,
    bias: Option<Tensor<1>>,
    stride: usize,
) -> Tensor<4> {
    conv2d(images, weight, bias, ConvOptions::new([stride; 2], [1, 1], [1, 1], 1))
}

#[backend_extension(Flex, Autodiff)]
trait ConvOperation: Backend {
    fn conv3x3(
        x: FloatTensor<Self>,
        weight: FloatTensor<Self>,
        bias: FloatTensor<Self>,
        stride: usize,
    ) -> FloatTensor<Self>;
}

fn geometry(x: &FlexTensor, bias: &FlexTensor, stride: usize) -> Geometry {
    let (samples, input) = flex::sizes(x);
    Geometry { samples, input, outputs: bias.layout().num_elements(), stride }
}

impl ConvOperation for Flex {
    fn conv3x3(x: FlexTensor, weight: FlexTensor, bias: FlexTensor, stride: usize) -> FlexTensor {
        let (x, weight, bias) = (flex::viewable(x), weight.to_contiguous(), bias.to_contiguous());
        let g = geometry(&x, &bias, stride);
        let output = kernel::forward_only(g, flex::view(&x), flex::numbers(&weight), flex::numbers(&bias));
        flex::images(output, g.samples, g.output())
    }
}

impl<C: CheckpointStrategy> ConvOperation for Autodiff<Flex, C> {
    fn conv3x3(
        x: FloatTensor<Self>,
        weight: FloatTensor<Self>,
        bias: FloatTensor<Self>,
        stride: usize,
    ) -> FloatTensor<Self> {
        let ((x, of_x), (weight, of_weight), (bias, of_bias)) =
            (x.into_parts(), weight.into_parts(), bias.into_parts());
        match ConvBackward.prepare::<C>([of_x, of_weight, of_bias]).compute_bound().stateful() {
            OpsKind::UnTracked(prepared) => prepared.finish(Flex::conv3x3(x, weight, bias, stride)),
            OpsKind::Tracked(prepared) => {
                let (x, weight, bias) = (flex::viewable(x), weight.to_contiguous(), bias.to_contiguous());
                let g = geometry(&x, &bias, stride);
                let (output, saved) = kernel::forward(g, flex::view(&x), flex::numbers(&weight), flex::numbers(&bias));
                prepared.finish((Arc::new(saved), g, weight), flex::images(output, g.samples, g.output()))
            }
        }
    }
}

#[derive(Debug)]
struct ConvBackward;

impl Backward<Flex, 3> for ConvBackward {
    type State = (Arc<Aligned>, Geometry, FlexTensor);

    fn backward(self, ops: Ops<Self::State, 3>, gradients: &mut Gradients, _: &mut Checkpointer) {
        let gradient = flex::viewable(gradients.consume::<Flex>(&ops.node));
        let (images, g, weight) = ops.state;
        let [with_x, _, with_bias] = ops.parents.each_ref().map(Option::is_some);
        let (numbers, gradient) = (flex::numbers(&weight), flex::view(&gradient));
        let found = conv3x3_gradient::gradients(g, &images, numbers, gradient, [with_x, with_bias]);
        let parents = ops.parents.map(|node| Some(node?.id));
        register(gradients, parents, found, (g.samples, g.input), &weight);
    }
}

/// Registers the gradients of a convolution's input, weight and bias.
pub(super) fn register(
    gradients: &mut Gradients,
    [x, weight, bias]: [Option<NodeId>; 3],
    found: conv3x3_gradient::ConvGradients,
    (samples, input): (usize, Size),
    weight_value: &FlexTensor,
) {
    if let Some(node) = x {
        gradients.register::<Flex>(node, flex::images(found.x, samples, input));
    }
    if let Some(node) = weight {
        gradients.register::<Flex>(node, flex::tensor(found.weight, weight_value.layout().shape().clone()));
    }
    if let Some(node) = bias {
        let outputs = found.bias.len();
        gradients.register::<Flex>(node, flex::tensor(found.bias, [outputs]));
    }
}
