//! 3×3 convolution, alone and with ReLU and pooling.

use std::sync::Arc;

use ata_nn::conv_relu_pool::{self, ForwardState};
use ata_nn::conv3x3::{self, Geometry};
use ata_nn::{Aligned, conv_relu_pool_gradient, conv3x3_gradient};
use burn::backend::autodiff::checkpoint::strategy::CheckpointStrategy;
use burn::backend::tensor::FloatTensor;
use burn::backend::{Autodiff, Backend, Dispatch, Flex, backend_extension};
use burn::module::{Module, Param};
use burn::nn::PaddingConfig2d;
use burn::nn::conv::Conv2d;
use burn::tensor::Tensor;
use burn::tensor::activation::relu;
use burn::tensor::module::{conv2d, max_pool2d};
use burn::tensor::ops::{ConvOptions, MaxPoolOptions};
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
        Self { stride: layer.stride[0], weight: layer.weight, bias: layer.bias }
    }

    /// Takes and returns images of shape [samples, channels, height, width].
    pub fn forward(&self, images: Tensor<4>) -> Tensor<4> {
        let (weight, bias) = (self.weight.val(), self.bias.as_ref().map(Param::val));
        if !flex::takes(&images) {
            return conv2d(images, weight, bias, ConvOptions::new([self.stride; 2], [1, 1], [1, 1], 1));
        }
        let ((samples, input), outputs) = (flex::sizes(&images), weight.dims()[0]);
        let g = Geometry { samples, input, outputs, stride: self.stride };
        // The missing bias is a constant, so that no gradient is computed for it.
        let bias = bias.unwrap_or_else(|| Tensor::zeros([outputs], &images.device()));
        let (images, weight, bias) = (images.into_dispatch(), weight.into_dispatch(), bias.into_dispatch());
        Tensor::from_dispatch(Dispatch::convolve(images, weight, bias, g, false))
    }
}

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
        let Conv3x3 { weight, bias, stride } = Conv3x3::new(layer);
        assert_eq!(stride, 1, "the stride of a convolution that pools");
        Self { weight, bias: bias.expect("a convolution with bias") }
    }

    /// Takes images of shape [samples, channels, height, width]; the result has half the height and width, rounded down.
    pub fn forward(&self, images: Tensor<4>) -> Tensor<4> {
        let (weight, bias) = (self.weight.val(), self.bias.val());
        let (samples, input) = flex::sizes(&images);
        if !flex::takes(&images) || !conv_relu_pool::takes(input) {
            let convolved = conv2d(images, weight, Some(bias), ConvOptions::new([1, 1], [1, 1], [1, 1], 1));
            return max_pool2d(relu(convolved), MaxPoolOptions::new([2, 2]));
        }
        let g = Geometry { samples, input, outputs: weight.dims()[0], stride: 1 };
        let (images, weight, bias) = (images.into_dispatch(), weight.into_dispatch(), bias.into_dispatch());
        Tensor::from_dispatch(Dispatch::convolve(images, weight, bias, g, true))
    }
}

#[backend_extension(Flex, Autodiff)]
trait ConvolutionOperation: Backend {
    /// Convolves images; if `pools` is set, ReLU and pooling follow.
    fn convolve(
        x: FloatTensor<Self>,
        weight: FloatTensor<Self>,
        bias: FloatTensor<Self>,
        g: Geometry,
        pools: bool,
    ) -> FloatTensor<Self>;
}

impl ConvolutionOperation for Flex {
    fn convolve(x: FlexTensor, weight: FlexTensor, bias: FlexTensor, g: Geometry, pools: bool) -> FlexTensor {
        let (x, weight, bias) = (flex::viewable(x), weight.to_contiguous(), bias.to_contiguous());
        let (x, weight, bias) = (flex::view(&x), flex::numbers(&weight), flex::numbers(&bias));
        if pools {
            flex::images(conv_relu_pool::forward_only(g, x, weight, bias), g.samples, g.pooled())
        } else {
            flex::images(conv3x3::forward_only(g, x, weight, bias), g.samples, g.output())
        }
    }
}

/// What the gradients need of the forward pass.
#[derive(Debug)]
enum Saved {
    Dense(Aligned),
    Pooled(ForwardState),
}

impl<C: CheckpointStrategy> ConvolutionOperation for Autodiff<Flex, C> {
    fn convolve(
        x: FloatTensor<Self>,
        weight: FloatTensor<Self>,
        bias: FloatTensor<Self>,
        g: Geometry,
        pools: bool,
    ) -> FloatTensor<Self> {
        flex::differentiable::<C, _, 3>(
            [x, weight, bias],
            |[x, weight, bias]| Flex::convolve(x, weight, bias, g, pools),
            |[x, weight, bias]| {
                let (x, weight, bias) = (flex::viewable(x), weight.to_contiguous(), bias.to_contiguous());
                let (x, numbers, bias) = (flex::view(&x), flex::numbers(&weight), flex::numbers(&bias));
                let (output, size, saved) = if pools {
                    let (output, saved) = conv_relu_pool::forward(g, x, numbers, bias);
                    (output, g.pooled(), Saved::Pooled(saved))
                } else {
                    let (output, images) = conv3x3::forward(g, x, numbers, bias);
                    (output, g.output(), Saved::Dense(images))
                };
                (flex::images(output, g.samples, size), (Arc::new(saved), g, weight))
            },
            |(saved, g, weight), gradient, [of_x, of_weight, of_bias]| {
                let (gradient, numbers) = (flex::viewable(gradient), flex::numbers(&weight));
                let gradient = flex::view(&gradient);
                let found = match &*saved {
                    Saved::Dense(images) => conv3x3_gradient::gradients(g, images, numbers, gradient, [of_x, of_bias]),
                    Saved::Pooled(state) => conv_relu_pool_gradient::gradients(state, numbers, gradient, of_x),
                };
                [
                    of_x.then(|| flex::images(found.x, g.samples, g.input)),
                    of_weight.then(|| flex::tensor(found.weight, weight.layout().shape().clone())),
                    of_bias.then(|| flex::tensor(found.bias, [g.outputs])),
                ]
            },
        )
    }
}
