//! Global average pooling.

use ata_nn::average;
use ata_nn::image::Size;
use burn::backend::autodiff::checkpoint::base::Checkpointer;
use burn::backend::autodiff::checkpoint::strategy::CheckpointStrategy;
use burn::backend::autodiff::grads::Gradients;
use burn::backend::autodiff::ops::{Backward, Ops, OpsKind};
use burn::backend::tensor::FloatTensor;
use burn::backend::{Autodiff, Backend, Dispatch, Flex, backend_extension};
use burn::tensor::{FloatDType, Tensor};
use burn_flex::FlexTensor;

use super::flex;

/// Returns the means over the pixels of images of shape [samples, channels, height, width], in shape [samples, channels].
pub fn global_average(images: Tensor<4>) -> Tensor<2> {
    if !flex::takes(&images) {
        let dtype = images.dtype();
        return images.cast(FloatDType::F32).flatten::<3>(2, 3).mean_dim(2).flatten(1, 2).cast(dtype);
    }
    Tensor::from_dispatch(Dispatch::global_average(images.into_dispatch()))
}

#[backend_extension(Flex, Autodiff)]
trait AverageOperation: Backend {
    fn global_average(x: FloatTensor<Self>) -> FloatTensor<Self>;
}

impl AverageOperation for Flex {
    fn global_average(x: FlexTensor) -> FlexTensor {
        let x = flex::viewable(x);
        let (samples, size) = flex::sizes(&x);
        let images = flex::view(&x).images(samples, size);
        flex::tensor(average::forward(size, &images), [samples, size.channels])
    }
}

impl<C: CheckpointStrategy> AverageOperation for Autodiff<Flex, C> {
    fn global_average(x: FloatTensor<Self>) -> FloatTensor<Self> {
        let (x, of_x) = x.into_parts();
        let sizes = flex::sizes(&x);
        let output = Flex::global_average(x);
        match AverageBackward.prepare::<C>([of_x]).compute_bound().stateful() {
            OpsKind::UnTracked(prepared) => prepared.finish(output),
            OpsKind::Tracked(prepared) => prepared.finish(sizes, output),
        }
    }
}

#[derive(Debug)]
struct AverageBackward;

impl Backward<Flex, 1> for AverageBackward {
    /// The number of images, and their size.
    type State = (usize, Size);

    fn backward(self, ops: Ops<Self::State, 1>, gradients: &mut Gradients, _: &mut Checkpointer) {
        let gradient = gradients.consume::<Flex>(&ops.node).to_contiguous();
        let ([of_x], (samples, size)) = (ops.parents, ops.state);
        if let Some(node) = of_x {
            let x = average::gradient(size, flex::numbers(&gradient));
            gradients.register::<Flex>(node.id, flex::images(x, samples, size));
        }
    }
}
