//! Cross-entropy.

use ata_nn::cross_entropy::{self as kernel, MixedLabels, Targets};
use burn::backend::autodiff::checkpoint::strategy::CheckpointStrategy;
use burn::backend::tensor::FloatTensor;
use burn::backend::{Autodiff, Backend, Dispatch, Flex, backend_extension};
use burn::tensor::activation::log_softmax;
use burn::tensor::{Device, FloatDType, Int, Tensor, TensorData};
use burn_flex::FlexTensor;

use super::flex;

/// Returns the mean cross-entropy, in nats, of scores (logits) of shape [samples, classes], with one label per sample.
pub fn cross_entropy(scores: Tensor<2>, labels: &[i32], device: &Device) -> Tensor<1> {
    cross_entropy_of_targets(scores, Targets::of_labels(labels), device)
}

/// Returns the mean cross-entropy for targets other than plain labels.
pub fn cross_entropy_of_targets(scores: Tensor<2>, targets: Targets, device: &Device) -> Tensor<1> {
    assert_eq!(scores.dims()[0], targets.labels.len(), "rows of scores, and labels");
    if flex::takes(&scores) {
        return Tensor::from_dispatch(Dispatch::mean_cross_entropy(scores.into_dispatch(), targets));
    }
    let [rows, classes] = scores.dims();
    let Targets { labels, mixed, smoothing } = targets;
    let logs = log_softmax(scores.cast(FloatDType::F32), 1);
    let of_labels = |labels: Vec<i32>| {
        let labels: Tensor<2, Int> = Tensor::from_data(TensorData::new(labels, [rows, 1]), device);
        logs.clone().gather(1, labels)
    };
    let mut of_targets = of_labels(labels);
    if let Some(MixedLabels { labels, weights }) = mixed {
        let weights: Tensor<2> = Tensor::from_data(TensorData::new(weights, [rows, 1]), device);
        of_targets = of_targets * weights.clone() + of_labels(labels) * (weights * -1.0 + 1.0);
    }
    if smoothing > 0.0 {
        of_targets = of_targets * (1.0 - smoothing) + logs.sum_dim(1) * (smoothing / classes as f64);
    }
    of_targets.mean().neg()
}

#[backend_extension(Flex, Autodiff)]
trait CrossEntropyOperation: Backend {
    fn mean_cross_entropy(scores: FloatTensor<Self>, targets: Targets) -> FloatTensor<Self>;
}

fn forward(scores: &FlexTensor, targets: &Targets) -> (FlexTensor, Vec<f32>) {
    let classes = scores.layout().shape()[1];
    let (loss, probabilities) = kernel::forward(flex::numbers(&scores.to_contiguous()), classes, targets);
    (flex::tensor(vec![loss as f32], [1]), probabilities)
}

impl CrossEntropyOperation for Flex {
    fn mean_cross_entropy(scores: FlexTensor, targets: Targets) -> FlexTensor {
        forward(&scores, &targets).0
    }
}

impl<C: CheckpointStrategy> CrossEntropyOperation for Autodiff<Flex, C> {
    fn mean_cross_entropy(scores: FloatTensor<Self>, targets: Targets) -> FloatTensor<Self> {
        let plain_targets = targets.clone();
        flex::differentiable::<C, _, 1>(
            [scores],
            move |[scores]| forward(&scores, &plain_targets).0,
            move |[scores]| {
                let (loss, probabilities) = forward(&scores, &targets);
                (loss, (probabilities, targets))
            },
            |(probabilities, targets), gradient, _| {
                let gradient = flex::numbers(&gradient.to_contiguous())[0];
                let rows = targets.labels.len();
                let classes = probabilities.len() / rows;
                let found = kernel::gradient(probabilities, classes, &targets, gradient);
                [Some(flex::tensor(found, [rows, classes]))]
            },
        )
    }
}
