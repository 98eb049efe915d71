//! 1×1 convolution.

use ata_nn::linear as kernel;
use burn::backend::autodiff::checkpoint::strategy::CheckpointStrategy;
use burn::backend::tensor::FloatTensor;
use burn::backend::{Autodiff, Backend, Dispatch, Flex, backend_extension};
use burn::module::{Module, Param};
use burn::nn::PaddingConfig2d;
use burn::nn::conv::Conv2d;
use burn::tensor::Tensor;
use burn::tensor::module::conv2d;
use burn::tensor::ops::ConvOptions;
use burn_flex::FlexTensor;

use super::flex::{self, matrix};
use super::subsample;

/// A 1×1 convolution without bias, with stride 1 or 2.
#[derive(Module, Debug)]
pub struct Pointwise {
    weight: Param<Tensor<4>>,
    stride: usize,
}

impl Pointwise {
    /// Takes over the parameters of burn's layer.
    ///
    /// # Panics
    /// Panics if the layer is not a 1×1 convolution with stride 1 or 2 and without padding and bias.
    pub fn new(layer: Conv2d) -> Self {
        let is_plain = layer.kernel_size == [1, 1] && layer.groups == 1 && layer.bias.is_none();
        let has_stride = layer.stride == [1, 1] || layer.stride == [2, 2];
        assert!(
            is_plain && has_stride && layer.padding == PaddingConfig2d::Valid,
            "expected a 1×1 convolution with stride 1 or 2, without padding and bias: {layer:?}"
        );
        Self { stride: layer.stride[0], weight: layer.weight }
    }

    /// Takes and returns images of shape [samples, channels, height, width].
    pub fn forward(&self, images: Tensor<4>) -> Tensor<4> {
        let weight = self.weight.val();
        if !flex::takes(&images) {
            return conv2d(images, weight, None, ConvOptions::new([self.stride; 2], [0, 0], [1, 1], 1));
        }
        let [outputs, inputs, ..] = weight.dims();
        let images = if self.stride == 1 { images } else { subsample(images, inputs) };
        let [samples, _, height, width] = images.dims();
        // In memory the channels are innermost, so that no number moves.
        let pixels = images.permute([0, 2, 3, 1]).reshape([samples * height * width, inputs]);
        let (pixels, weight) = (pixels.into_dispatch(), weight.reshape([outputs, inputs]).into_dispatch());
        let pixels: Tensor<2> = Tensor::from_dispatch(Dispatch::pointwise(pixels, weight));
        pixels.reshape([samples, height, width, outputs]).permute([0, 3, 1, 2])
    }
}

#[backend_extension(Flex, Autodiff)]
trait PointwiseOperation: Backend {
    /// Multiplies each pixel by the rows of a weight of shape [outputs, inputs].
    fn pointwise(pixels: FloatTensor<Self>, weight: FloatTensor<Self>) -> FloatTensor<Self>;
}

impl PointwiseOperation for Flex {
    fn pointwise(pixels: FlexTensor, weight: FlexTensor) -> FlexTensor {
        let (pixels, weight) = (pixels.to_contiguous(), weight.to_contiguous());
        let (pixels, weight) = (matrix(&pixels), matrix(&weight));
        // The kernels are those of a fully connected layer whose weight is transposed.
        flex::tensor(kernel::input_gradient(pixels, weight), [pixels.rows, weight.rows])
    }
}

impl<C: CheckpointStrategy> PointwiseOperation for Autodiff<Flex, C> {
    fn pointwise(pixels: FloatTensor<Self>, weight: FloatTensor<Self>) -> FloatTensor<Self> {
        flex::differentiable::<C, _, 2>(
            [pixels, weight],
            |[pixels, weight]| Flex::pointwise(pixels, weight),
            |[pixels, weight]| {
                let (pixels, weight) = (pixels.to_contiguous(), weight.to_contiguous());
                (Flex::pointwise(pixels.clone(), weight.clone()), [pixels, weight])
            },
            |[pixels, weight], gradient, [of_pixels, of_weight]| {
                let gradient = gradient.to_contiguous();
                let (pixels, weight, gradient) = (matrix(&pixels), matrix(&weight), matrix(&gradient));
                let shape = [weight.rows, weight.columns];
                [
                    of_pixels.then(|| {
                        let zeros = vec![0.0; weight.columns];
                        flex::tensor(kernel::forward(gradient, weight, &zeros), [pixels.rows, pixels.columns])
                    }),
                    of_weight.then(|| flex::tensor(kernel::weight_gradient(gradient, pixels).numbers(), shape)),
                ]
            },
        )
    }
}
