//! 3×3 convolution, alone and with ReLU and pooling.

use std::sync::Arc;

use ata_nn::conv3x3::{self, Geometry};
use ata_nn::conv3x3_gradient::{self, ConvGradients};
use ata_nn::image::Size;
use ata_nn::{conv_relu_pool, conv_relu_pool_gradient};
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
        Tensor::from_dispatch(Dispatch::conv3x3(images, weight, bias, g))
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
        Tensor::from_dispatch(Dispatch::conv_relu_pool(images, weight, bias, g))
    }
}

#[backend_extension(Flex, Autodiff)]
trait ConvolutionOperations: Backend {
    fn conv3x3(
        x: FloatTensor<Self>,
        weight: FloatTensor<Self>,
        bias: FloatTensor<Self>,
        g: Geometry,
    ) -> FloatTensor<Self>;

    fn conv_relu_pool(
        x: FloatTensor<Self>,
        weight: FloatTensor<Self>,
        bias: FloatTensor<Self>,
        g: Geometry,
    ) -> FloatTensor<Self>;
}

impl ConvolutionOperations for Flex {
    fn conv3x3(x: FlexTensor, weight: FlexTensor, bias: FlexTensor, g: Geometry) -> FlexTensor {
        let (x, weight, bias) = (flex::viewable(x), weight.to_contiguous(), bias.to_contiguous());
        let output = conv3x3::forward_only(g, flex::view(&x), flex::numbers(&weight), flex::numbers(&bias));
        flex::images(output, g.samples, g.output())
    }

    fn conv_relu_pool(x: FlexTensor, weight: FlexTensor, bias: FlexTensor, g: Geometry) -> FlexTensor {
        let (x, weight, bias) = (flex::viewable(x), weight.to_contiguous(), bias.to_contiguous());
        let output = conv_relu_pool::forward_only(g, flex::view(&x), flex::numbers(&weight), flex::numbers(&bias));
        flex::images(output, g.samples, g.pooled())
    }
}

impl<C: CheckpointStrategy> ConvolutionOperations for Autodiff<Flex, C> {
    fn conv3x3(
        x: FloatTensor<Self>,
        weight: FloatTensor<Self>,
        bias: FloatTensor<Self>,
        g: Geometry,
    ) -> FloatTensor<Self> {
        flex::differentiable::<C, _, 3>(
            [x, weight, bias],
            |[x, weight, bias]| Flex::conv3x3(x, weight, bias, g),
            |[x, weight, bias]| {
                let (x, weight, bias) = (flex::viewable(x), weight.to_contiguous(), bias.to_contiguous());
                let (output, saved) = conv3x3::forward(g, flex::view(&x), flex::numbers(&weight), flex::numbers(&bias));
                (flex::images(output, g.samples, g.output()), (Arc::new(saved), g, weight))
            },
            |(images, g, weight), gradient, wanted| {
                let (gradient, [with_x, _, with_bias]) = (flex::viewable(gradient), wanted);
                let (numbers, gradient) = (flex::numbers(&weight), flex::view(&gradient));
                let found = conv3x3_gradient::gradients(g, &images, numbers, gradient, [with_x, with_bias]);
                tensors(found, wanted, (g.samples, g.input), &weight)
            },
        )
    }

    fn conv_relu_pool(
        x: FloatTensor<Self>,
        weight: FloatTensor<Self>,
        bias: FloatTensor<Self>,
        g: Geometry,
    ) -> FloatTensor<Self> {
        flex::differentiable::<C, _, 3>(
            [x, weight, bias],
            |[x, weight, bias]| Flex::conv_relu_pool(x, weight, bias, g),
            |[x, weight, bias]| {
                let (x, weight, bias) = (flex::viewable(x), weight.to_contiguous(), bias.to_contiguous());
                let (numbers, bias) = (flex::numbers(&weight), flex::numbers(&bias));
                let (output, saved) = conv_relu_pool::forward(g, flex::view(&x), numbers, bias);
                (flex::images(output, g.samples, g.pooled()), (Arc::new(saved), weight))
            },
            |(saved, weight), gradient, wanted| {
                let (gradient, numbers) = (flex::viewable(gradient), flex::numbers(&weight));
                let with_x = wanted[0];
                let found = conv_relu_pool_gradient::gradients(&saved, numbers, flex::view(&gradient), with_x);
                let Geometry { samples, input, .. } = saved.geometry;
                tensors(found, wanted, (samples, input), &weight)
            },
        )
    }
}

/// Converts the gradients of a convolution's input, weight and bias, as far as they are wanted.
fn tensors(
    found: ConvGradients,
    [of_x, of_weight, of_bias]: [bool; 3],
    (samples, input): (usize, Size),
    weight: &FlexTensor,
) -> [Option<FlexTensor>; 3] {
    let outputs = found.bias.len();
    [
        of_x.then(|| flex::images(found.x, samples, input)),
        of_weight.then(|| flex::tensor(found.weight, weight.layout().shape().clone())),
        of_bias.then(|| flex::tensor(found.bias, [outputs])),
    ]
}
