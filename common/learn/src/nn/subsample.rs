//! Takes every other pixel, and adds channels.

use ata_nn::image::Size;
use ata_nn::subsample as kernel;
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

/// Takes every other row and column of images of shape [samples, channels, height, width], and appends channels of
/// zeros: the shortcut of a residual network where its images shrink.
///
/// # Panics
/// Panics if the images have more than `channels` channels.
pub fn subsample(images: Tensor<4>, channels: usize) -> Tensor<4> {
    let [samples, own, ..] = images.dims();
    assert!(own <= channels, "{own} channels cannot become {channels}");
    if flex::takes(&images) {
        return Tensor::from_dispatch(Dispatch::subsample(images.into_dispatch(), channels));
    }
    let images = max_pool2d(images, MaxPoolOptions { stride: [2, 2], ..MaxPoolOptions::new([1, 1]) });
    let [_, _, height, width] = images.dims();
    let zeros: Tensor<4> = Tensor::zeros([samples, channels - own, height, width], &images.device());
    let zeros = zeros.cast(images.dtype());
    Tensor::cat(vec![images, zeros], 1)
}

#[backend_extension(Flex, Autodiff)]
trait SubsampleOperation: Backend {
    fn subsample(x: FloatTensor<Self>, channels: usize) -> FloatTensor<Self>;
}

impl SubsampleOperation for Flex {
    fn subsample(x: FlexTensor, channels: usize) -> FlexTensor {
        let x = flex::viewable(x);
        let (samples, size) = flex::sizes(&x);
        let images = flex::view(&x).images(samples, size);
        flex::images(kernel::forward(size, channels, &images), samples, kernel::output(size, channels))
    }
}

impl<C: CheckpointStrategy> SubsampleOperation for Autodiff<Flex, C> {
    fn subsample(x: FloatTensor<Self>, channels: usize) -> FloatTensor<Self> {
        let (x, of_x) = x.into_parts();
        let sizes = flex::sizes(&x);
        let result = Flex::subsample(x, channels);
        match SubsampleBackward.prepare::<C>([of_x]).compute_bound().stateful() {
            OpsKind::UnTracked(prepared) => prepared.finish(result),
            OpsKind::Tracked(prepared) => prepared.finish((sizes.0, sizes.1, channels), result),
        }
    }
}

#[derive(Debug)]
struct SubsampleBackward;

impl Backward<Flex, 1> for SubsampleBackward {
    /// The number of images, their size, and the number of channels of the result.
    type State = (usize, Size, usize);

    fn backward(self, ops: Ops<Self::State, 1>, gradients: &mut Gradients, _: &mut Checkpointer) {
        let gradient = flex::viewable(gradients.consume::<Flex>(&ops.node));
        let ([of_x], (samples, size, channels)) = (ops.parents, ops.state);
        if let Some(node) = of_x {
            let gradient = flex::view(&gradient).images(samples, kernel::output(size, channels));
            let x = kernel::gradient(size, channels, &gradient);
            gradients.register::<Flex>(node.id, flex::images(x, samples, size));
        }
    }
}
