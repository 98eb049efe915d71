//! Every other pixel, in more channels.

use burn::backend::autodiff::checkpoint::base::Checkpointer;
use burn::backend::autodiff::checkpoint::strategy::CheckpointStrategy;
use burn::backend::autodiff::grads::Gradients;
use burn::backend::autodiff::ops::{Backward, Ops, OpsKind};
use burn::backend::tensor::FloatTensor;
use burn::backend::{Autodiff, Backend, Dispatch, Flex, backend_extension};
use burn::tensor::Tensor;
use burn::tensor::module::max_pool2d;
use burn::tensor::ops::MaxPoolOptions;
use burn_flex::FlexTensor;

use super::flex;
use super::kernels::image::Size;

/// Of images of shape [samples, channels, height, width] the pixels in every other row and column, with channels of zeros after
/// their own: what the shortcut of a residual network adds where its images shrink.
///
/// # Panics
/// If the images have more channels than wanted.
pub fn subsample(images: Tensor<4>, channels: usize) -> Tensor<4> {
    let [samples, own, ..] = images.dims();
    assert!(own <= channels, "{own} channels cannot become {channels}");
    if flex::takes(&images) {
        return Tensor::from_dispatch(Dispatch::subsample(images.into_dispatch(), channels));
    }
    let images = max_pool2d(images, MaxPoolOptions { stride: [2, 2], ..MaxPoolOptions::new([1, 1]) });
    let [_, _, height, width] = images.dims();
    let zeros = Tensor::zeros([samples, channels - own, height, width], &images.device());
    Tensor::cat(vec![images, zeros], 1)
}

#[backend_extension(Flex, Autodiff)]
trait Operation: Backend {
    fn subsample(x: FloatTensor<Self>, channels: usize) -> FloatTensor<Self>;
}

fn half(size: Size, channels: usize) -> Size {
    Size { channels, height: size.height.div_ceil(2), width: size.width.div_ceil(2) }
}

/// Where the pixels of the smaller image begin in it, and in the larger one.
fn pixels(size: Size, half: Size) -> impl Iterator<Item = (usize, usize)> {
    let place = move |at: usize| (2 * (at / half.width) * size.width + 2 * (at % half.width)) * size.channels;
    (0..half.pixels()).map(move |at| (at * half.channels, place(at)))
}

impl Operation for Flex {
    fn subsample(x: FlexTensor, channels: usize) -> FlexTensor {
        let x = flex::viewable(x);
        let (samples, size) = flex::sizes(&x);
        let half = half(size, channels);
        let mut result = vec![0.0; samples * half.numbers()];
        let images = flex::view(&x).images(samples, size);
        for (result, image) in result.chunks_exact_mut(half.numbers()).zip(images.chunks_exact(size.numbers())) {
            for (to, from) in pixels(size, half) {
                result[to..][..size.channels].copy_from_slice(&image[from..][..size.channels]);
            }
        }
        flex::images(result, samples, half)
    }
}

impl<C: CheckpointStrategy> Operation for Autodiff<Flex, C> {
    fn subsample(x: FloatTensor<Self>, channels: usize) -> FloatTensor<Self> {
        let (x, of_x) = x.into_parts();
        let sizes = flex::sizes(&x);
        let result = Flex::subsample(x, channels);
        match Recorded.prepare::<C>([of_x]).compute_bound().stateful() {
            OpsKind::UnTracked(prepared) => prepared.finish(result),
            OpsKind::Tracked(prepared) => prepared.finish((sizes.0, sizes.1, channels), result),
        }
    }
}

#[derive(Debug)]
struct Recorded;

impl Backward<Flex, 1> for Recorded {
    /// How many images, their size, and the channels of the result.
    type State = (usize, Size, usize);

    fn backward(self, ops: Ops<Self::State, 1>, gradients: &mut Gradients, _: &mut Checkpointer) {
        let gradient = flex::viewable(gradients.consume::<Flex>(&ops.node));
        let ([of_x], (samples, size, channels)) = (ops.parents, ops.state);
        let half = half(size, channels);
        let from_half = flex::view(&gradient).images(samples, half);
        let mut x = vec![0.0; samples * size.numbers()];
        for (image, gradient) in x.chunks_exact_mut(size.numbers()).zip(from_half.chunks_exact(half.numbers())) {
            for (from, to) in pixels(size, half) {
                image[to..][..size.channels].copy_from_slice(&gradient[from..][..size.channels]);
            }
        }
        if let Some(node) = of_x {
            gradients.register::<Flex>(node.id, flex::images(x, samples, size));
        }
    }
}
