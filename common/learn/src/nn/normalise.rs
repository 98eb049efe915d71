//! Group and batch normalisation on the CPU device, fused with the next operations of a residual network.

use std::sync::Arc;

use ata_nn::batch_norm::{self, BatchGeometry, Statistics};
use ata_nn::group_norm::{self, Group, GroupGeometry};
use ata_nn::image::Size;
use ata_nn::normalise::NormForward;
use burn::backend::autodiff::checkpoint::strategy::CheckpointStrategy;
use burn::backend::tensor::FloatTensor;
use burn::backend::{Autodiff, Backend, Dispatch, Flex, backend_extension};
use burn::module::Param;
use burn::tensor::Tensor;
use burn::tensor::activation::relu;
use burn_flex::FlexTensor;

use super::flex;

#[derive(Clone, Debug)]
pub(super) enum NormKernel {
    Group(GroupGeometry),
    /// The statistics are those by which the images are normalised.
    Batch(BatchGeometry, Arc<Statistics>),
}

impl NormKernel {
    fn sizes(&self) -> (usize, Size) {
        match self {
            Self::Group(GroupGeometry { samples, size, .. }) | Self::Batch(BatchGeometry { samples, size, .. }, _) => {
                (*samples, *size)
            }
        }
    }
}

pub(super) fn normalise(
    images: Tensor<4>,
    affine: [&Param<Tensor<1>>; 2],
    shortcut: Option<Tensor<4>>,
    kernel: NormKernel,
) -> Tensor<4> {
    // An empty constant represents no shortcut, so that no gradient is computed for it.
    let shortcut = shortcut.unwrap_or_else(|| Tensor::zeros([0; 4], &images.device()));
    let [gamma, beta] = affine.map(|values| values.val().into_dispatch());
    let (x, shortcut) = (images.into_dispatch(), shortcut.into_dispatch());
    Tensor::from_dispatch(Dispatch::normalise(x, gamma, beta, shortcut, kernel))
}

/// Does by burn's operations what follows a normalisation.
pub(super) fn finish_by_burn(normalised: Tensor<4>, shortcut: Option<Tensor<4>>, with_relu: bool) -> Tensor<4> {
    let sum = match shortcut {
        Some(shortcut) => normalised + shortcut,
        None => normalised,
    };
    if with_relu { relu(sum) } else { sum }
}

#[backend_extension(Flex, Autodiff)]
trait NormOperation: Backend {
    fn normalise(
        x: FloatTensor<Self>,
        gamma: FloatTensor<Self>,
        beta: FloatTensor<Self>,
        shortcut: FloatTensor<Self>,
        kernel: NormKernel,
    ) -> FloatTensor<Self>;
}

/// Returns the output and the statistics of groups, which the gradients need.
fn forward(
    x: &FlexTensor,
    [gamma, beta]: [&FlexTensor; 2],
    shortcut: FlexTensor,
    kernel: &NormKernel,
) -> (FlexTensor, Vec<Group>) {
    let (samples, size) = kernel.sizes();
    let shortcut = flex::viewable(shortcut);
    let has_shortcut = shortcut.layout().num_elements() > 0;
    let shortcut = has_shortcut.then(|| flex::view(&shortcut).images(samples, size));
    let x = flex::view(x).images(samples, size);
    let affine = [flex::numbers(gamma), flex::numbers(beta)];
    let (output, groups) = match kernel {
        NormKernel::Group(g) => group_norm::forward(*g, &x, affine, shortcut.as_deref()),
        NormKernel::Batch(g, statistics) => {
            (batch_norm::forward(*g, &x, affine, shortcut.as_deref(), statistics), Vec::new())
        }
    };
    (flex::images(output, samples, size), groups)
}

impl NormOperation for Flex {
    fn normalise(
        x: FlexTensor,
        gamma: FlexTensor,
        beta: FlexTensor,
        shortcut: FlexTensor,
        kernel: NormKernel,
    ) -> FlexTensor {
        let (x, gamma, beta) = (flex::viewable(x), gamma.to_contiguous(), beta.to_contiguous());
        forward(&x, [&gamma, &beta], shortcut, &kernel).0
    }
}

impl<C: CheckpointStrategy> NormOperation for Autodiff<Flex, C> {
    fn normalise(
        x: FloatTensor<Self>,
        gamma: FloatTensor<Self>,
        beta: FloatTensor<Self>,
        shortcut: FloatTensor<Self>,
        kernel: NormKernel,
    ) -> FloatTensor<Self> {
        flex::differentiable::<C, _, 4>(
            [x, gamma, beta, shortcut],
            |[x, gamma, beta, shortcut]| Flex::normalise(x, gamma, beta, shortcut, kernel.clone()),
            |[x, gamma, beta, shortcut]| {
                let (x, gamma, beta) = (flex::viewable(x), gamma.to_contiguous(), beta.to_contiguous());
                let (output, groups) = forward(&x, [&gamma, &beta], shortcut, &kernel);
                (output.clone(), (kernel.clone(), [x, output, gamma], groups))
            },
            |(kernel, [x, output, gamma], groups), gradient, [of_x, of_gamma, of_beta, of_shortcut]| {
                let (samples, size) = kernel.sizes();
                let gradient = flex::viewable(gradient);
                let images = |tensor| flex::view(tensor).images(samples, size);
                let (x, output, gradient) = (images(&x), images(&output), images(&gradient));
                let saved = NormForward { x: &x, output: &output, gamma: flex::numbers(&gamma) };
                let found = match &kernel {
                    NormKernel::Group(g) => group_norm::gradients(*g, saved, &groups, &gradient),
                    NormKernel::Batch(g, statistics) => batch_norm::gradients(*g, saved, statistics, &gradient),
                };
                [
                    of_x.then(|| flex::images(found.x, samples, size)),
                    of_gamma.then(|| flex::tensor(found.gamma, [size.channels])),
                    of_beta.then(|| flex::tensor(found.beta, [size.channels])),
                    of_shortcut.then(|| flex::images(found.shortcut, samples, size)),
                ]
            },
        )
    }
}
