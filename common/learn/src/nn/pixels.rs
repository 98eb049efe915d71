//! Operations on images without parameters.

use ata_nn::image::Size;
use ata_nn::{average, subsample as kernel};
use burn::backend::autodiff::checkpoint::strategy::CheckpointStrategy;
use burn::backend::tensor::FloatTensor;
use burn::backend::{Autodiff, Backend, Dispatch, Flex, backend_extension};
use burn::tensor::module::max_pool2d;
use burn::tensor::ops::MaxPoolOptions;
use burn::tensor::{FloatDType, Tensor};
use burn_flex::FlexTensor;

use super::flex;

/// Returns the means over the pixels of images of shape [samples, channels, height, width], in shape [samples, channels].
pub fn global_average(images: Tensor<4>) -> Tensor<2> {
    if !flex::takes(&images) {
        let dtype = images.dtype();
        return images.cast(FloatDType::F32).flatten::<3>(2, 3).mean_dim(2).flatten(1, 2).cast(dtype);
    }
    let sizes = flex::sizes(&images);
    Tensor::from_dispatch(Dispatch::global_average(images.into_dispatch(), sizes))
}

/// Takes every other row and column of images of shape [samples, channels, height, width], and appends channels of
/// zeros: the shortcut of a residual network where its images shrink.
///
/// # Panics
/// Panics if the images have more than `channels` channels.
pub fn subsample(images: Tensor<4>, channels: usize) -> Tensor<4> {
    let [samples, own, ..] = images.dims();
    assert!(own <= channels, "{own} channels cannot become {channels}");
    if flex::takes(&images) {
        let sizes = flex::sizes(&images);
        return Tensor::from_dispatch(Dispatch::subsample(images.into_dispatch(), sizes, channels));
    }
    let images = max_pool2d(images, MaxPoolOptions { stride: [2, 2], ..MaxPoolOptions::new([1, 1]) });
    let [_, _, height, width] = images.dims();
    let zeros: Tensor<4> = Tensor::zeros([samples, channels - own, height, width], &images.device());
    let zeros = zeros.cast(images.dtype());
    Tensor::cat(vec![images, zeros], 1)
}

#[backend_extension(Flex, Autodiff)]
trait PixelOperations: Backend {
    fn global_average(x: FloatTensor<Self>, sizes: (usize, Size)) -> FloatTensor<Self>;

    fn subsample(x: FloatTensor<Self>, sizes: (usize, Size), channels: usize) -> FloatTensor<Self>;
}

impl PixelOperations for Flex {
    fn global_average(x: FlexTensor, (samples, size): (usize, Size)) -> FlexTensor {
        let images = flex::viewable(x);
        let images = flex::view(&images).images(samples, size);
        flex::tensor(average::forward(size, &images), [samples, size.channels])
    }

    fn subsample(x: FlexTensor, (samples, size): (usize, Size), channels: usize) -> FlexTensor {
        let images = flex::viewable(x);
        let images = flex::view(&images).images(samples, size);
        flex::images(kernel::forward(size, channels, &images), samples, kernel::output(size, channels))
    }
}

impl<C: CheckpointStrategy> PixelOperations for Autodiff<Flex, C> {
    fn global_average(x: FloatTensor<Self>, sizes: (usize, Size)) -> FloatTensor<Self> {
        flex::differentiable::<C, _, 1>(
            [x],
            |[x]| Flex::global_average(x, sizes),
            |[x]| (Flex::global_average(x, sizes), sizes),
            |(samples, size), gradient, _| {
                let x = average::gradient(size, flex::numbers(&gradient.to_contiguous()));
                [Some(flex::images(x, samples, size))]
            },
        )
    }

    fn subsample(x: FloatTensor<Self>, sizes: (usize, Size), channels: usize) -> FloatTensor<Self> {
        flex::differentiable::<C, _, 1>(
            [x],
            |[x]| Flex::subsample(x, sizes, channels),
            |[x]| (Flex::subsample(x, sizes, channels), (sizes, channels)),
            |((samples, size), channels), gradient, _| {
                let gradient = flex::viewable(gradient);
                let gradient = flex::view(&gradient).images(samples, kernel::output(size, channels));
                let x = kernel::gradient(size, channels, &gradient);
                [Some(flex::images(x, samples, size))]
            },
        )
    }
}
