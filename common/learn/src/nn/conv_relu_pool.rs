//! Convolution, ReLU and pooling.

use std::sync::Arc;

use ata_nn::conv_relu_pool::{self as kernel, ForwardState, PoolGeometry};
use ata_nn::conv_relu_pool_gradient;
use burn::backend::autodiff::checkpoint::base::Checkpointer;
use burn::backend::autodiff::checkpoint::strategy::CheckpointStrategy;
use burn::backend::autodiff::grads::Gradients;
use burn::backend::autodiff::ops::{Backward, Ops, OpsKind};
use burn::backend::tensor::FloatTensor;
use burn::backend::{Autodiff, Backend, Dispatch, Flex, backend_extension};
use burn::module::{Module, Param};
use burn::nn::conv::Conv2d;
use burn::tensor::Tensor;
use burn::tensor::activation::relu;
use burn::tensor::module::max_pool2d;
use burn::tensor::ops::MaxPoolOptions;
use burn_flex::FlexTensor;

use super::conv3x3::{burn_convolution, register, stride_of};
use super::flex;

/// A 3×3 convolution with padding 1, stride 1 and bias, then ReLU, then 2×2 max-pooling.
#[derive(Module, Debug)]
pub struct ConvReluPool {
    weight: Param<Tensor<4>>,
    bias: Param<Tensor<1>>,
}

impl ConvReluPool {
    /// Takes over the parameters of burn's layer.
    ///
    /// # Panics
    /// Panics if the layer is not a 3×3 convolution with padding 1, stride 1 and bias.
    pub fn new(layer: Conv2d) -> Self {
        assert_eq!(stride_of(&layer), 1, "the stride of a convolution that pools");
        Self { weight: layer.weight, bias: layer.bias.expect("a convolution with bias") }
    }

    /// Takes images of shape [samples, channels, height, width]; the result has half the height and width, rounded down.
    pub fn forward(&self, images: Tensor<4>) -> Tensor<4> {
        let (weight, bias) = (self.weight.val(), self.bias.val());
        if !flex::takes(&images) || !kernel::takes(flex::size_of(&images)) {
            let convolved = burn_convolution(images, weight, Some(bias), 1);
            return max_pool2d(relu(convolved), MaxPoolOptions::new([2, 2]));
        }
        let (images, weight, bias) = (images.into_dispatch(), weight.into_dispatch(), bias.into_dispatch());
        Tensor::from_dispatch(Dispatch::conv_relu_pool(images, weight, bias))
    }
}

#[backend_extension(Flex, Autodiff)]
trait ConvReluPoolOperation: Backend {
    fn conv_relu_pool(x: FloatTensor<Self>, weight: FloatTensor<Self>, bias: FloatTensor<Self>) -> FloatTensor<Self>;
}

fn geometry(x: &FlexTensor, bias: &FlexTensor) -> PoolGeometry {
    let (samples, input) = flex::sizes(x);
    PoolGeometry { samples, input, outputs: bias.layout().num_elements() }
}

impl ConvReluPoolOperation for Flex {
    fn conv_relu_pool(x: FlexTensor, weight: FlexTensor, bias: FlexTensor) -> FlexTensor {
        let (x, weight, bias) = (flex::viewable(x), weight.to_contiguous(), bias.to_contiguous());
        let g = geometry(&x, &bias);
        let output = kernel::forward_only(g, flex::view(&x), flex::numbers(&weight), flex::numbers(&bias));
        flex::images(output, g.samples, g.output())
    }
}

impl<C: CheckpointStrategy> ConvReluPoolOperation for Autodiff<Flex, C> {
    fn conv_relu_pool(x: FloatTensor<Self>, weight: FloatTensor<Self>, bias: FloatTensor<Self>) -> FloatTensor<Self> {
        let ((x, of_x), (weight, of_weight), (bias, of_bias)) =
            (x.into_parts(), weight.into_parts(), bias.into_parts());
        match ConvReluPoolBackward.prepare::<C>([of_x, of_weight, of_bias]).compute_bound().stateful() {
            OpsKind::UnTracked(prepared) => prepared.finish(Flex::conv_relu_pool(x, weight, bias)),
            OpsKind::Tracked(prepared) => {
                let (x, weight, bias) = (flex::viewable(x), weight.to_contiguous(), bias.to_contiguous());
                let g = geometry(&x, &bias);
                let (output, saved) = kernel::forward(g, flex::view(&x), flex::numbers(&weight), flex::numbers(&bias));
                prepared.finish((Arc::new(saved), weight), flex::images(output, g.samples, g.output()))
            }
        }
    }
}

#[derive(Debug)]
struct ConvReluPoolBackward;

impl Backward<Flex, 3> for ConvReluPoolBackward {
    type State = (Arc<ForwardState>, FlexTensor);

    fn backward(self, ops: Ops<Self::State, 3>, gradients: &mut Gradients, _: &mut Checkpointer) {
        let gradient = flex::viewable(gradients.consume::<Flex>(&ops.node));
        let (saved, weight) = ops.state;
        let with_x = ops.parents[0].is_some();
        let found = conv_relu_pool_gradient::gradients(&saved, flex::numbers(&weight), flex::view(&gradient), with_x);
        let PoolGeometry { samples, input, .. } = saved.geometry;
        let parents = ops.parents.map(|node| Some(node?.id));
        register(gradients, parents, found, (samples, input), &weight);
    }
}
