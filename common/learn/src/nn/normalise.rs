//! Group and batch normalisation on the CPU device, fused with the next operations of a residual network.

use std::sync::Arc;

use ata_nn::batch_norm::{self, Statistics};
use ata_nn::group_norm::{self, Group};
use ata_nn::normalise::{NormForward, NormGeometry};
use burn::backend::autodiff::checkpoint::strategy::CheckpointStrategy;
use burn::backend::tensor::FloatTensor;
use burn::backend::{Autodiff, Backend, Dispatch, Flex, backend_extension};
use burn::module::Param;
use burn::tensor::Tensor;
use burn::tensor::activation::relu;
use burn_flex::FlexTensor;

use super::flex;

/// The statistics of batch normalisation; `None` for group normalisation, which computes its own.
type GivenStatistics = Option<Arc<Statistics>>;

/// Normalises images, adds `shortcut`, if there is one, and applies ReLU if `g` says so.
pub(super) fn normalise(
    images: Tensor<4>,
    affine: [&Param<Tensor<1>>; 2],
    shortcut: Option<Tensor<4>>,
    g: NormGeometry,
    statistics: GivenStatistics,
) -> Tensor<4> {
    // An empty constant represents no shortcut, so that no gradient is computed for it.
    let shortcut = shortcut.unwrap_or_else(|| Tensor::zeros([0; 4], &images.device()));
    let [gamma, beta] = affine.map(|values| values.val().into_dispatch());
    let (x, shortcut) = (images.into_dispatch(), shortcut.into_dispatch());
    Tensor::from_dispatch(Dispatch::normalise(x, gamma, beta, shortcut, g, statistics))
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
        g: NormGeometry,
        statistics: GivenStatistics,
    ) -> FloatTensor<Self>;
}

/// Returns the output and the statistics of groups, which the gradients need.
fn forward(
    x: &FlexTensor,
    [gamma, beta]: [&FlexTensor; 2],
    shortcut: FlexTensor,
    g: NormGeometry,
    statistics: Option<&Statistics>,
) -> (FlexTensor, Vec<Group>) {
    let shortcut = flex::viewable(shortcut);
    let has_shortcut = shortcut.layout().num_elements() > 0;
    let shortcut = has_shortcut.then(|| flex::view(&shortcut).images(g.samples, g.size));
    let x = flex::view(x).images(g.samples, g.size);
    let affine = [flex::numbers(gamma), flex::numbers(beta)];
    let (output, groups) = match statistics {
        None => group_norm::forward(g, &x, affine, shortcut.as_deref()),
        Some(statistics) => (batch_norm::forward(g, &x, affine, shortcut.as_deref(), statistics), Vec::new()),
    };
    (flex::images(output, g.samples, g.size), groups)
}

impl NormOperation for Flex {
    fn normalise(
        x: FlexTensor,
        gamma: FlexTensor,
        beta: FlexTensor,
        shortcut: FlexTensor,
        g: NormGeometry,
        statistics: GivenStatistics,
    ) -> FlexTensor {
        let (x, gamma, beta) = (flex::viewable(x), gamma.to_contiguous(), beta.to_contiguous());
        forward(&x, [&gamma, &beta], shortcut, g, statistics.as_deref()).0
    }
}

impl<C: CheckpointStrategy> NormOperation for Autodiff<Flex, C> {
    fn normalise(
        x: FloatTensor<Self>,
        gamma: FloatTensor<Self>,
        beta: FloatTensor<Self>,
        shortcut: FloatTensor<Self>,
        g: NormGeometry,
        statistics: GivenStatistics,
    ) -> FloatTensor<Self> {
        flex::differentiable::<C, _, 4>(
            [x, gamma, beta, shortcut],
            |[x, gamma, beta, shortcut]| Flex::normalise(x, gamma, beta, shortcut, g, statistics.clone()),
            |[x, gamma, beta, shortcut]| {
                let (x, gamma, beta) = (flex::viewable(x), gamma.to_contiguous(), beta.to_contiguous());
                let (output, groups) = forward(&x, [&gamma, &beta], shortcut, g, statistics.as_deref());
                (output.clone(), (g, statistics.clone(), [x, output, gamma], groups))
            },
            |(g, statistics, [x, output, gamma], groups), gradient, [of_x, of_gamma, of_beta, of_shortcut]| {
                let gradient = flex::viewable(gradient);
                let images = |tensor| flex::view(tensor).images(g.samples, g.size);
                let (x, output, gradient) = (images(&x), images(&output), images(&gradient));
                let saved = NormForward { x: &x, output: &output, gamma: flex::numbers(&gamma) };
                let found = match &statistics {
                    None => group_norm::gradients(g, saved, &groups, &gradient),
                    Some(statistics) => batch_norm::gradients(g, saved, statistics, &gradient),
                };
                [
                    of_x.then(|| flex::images(found.x, g.samples, g.size)),
                    of_gamma.then(|| flex::tensor(found.gamma, [g.size.channels])),
                    of_beta.then(|| flex::tensor(found.beta, [g.size.channels])),
                    of_shortcut.then(|| flex::images(found.shortcut, g.samples, g.size)),
                ]
            },
        )
    }
}
