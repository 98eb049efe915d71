//! Cross-entropy.

use ata_nn::cross_entropy as kernel;
use burn::backend::autodiff::checkpoint::base::Checkpointer;
use burn::backend::autodiff::checkpoint::strategy::CheckpointStrategy;
use burn::backend::autodiff::grads::Gradients;
use burn::backend::autodiff::ops::{Backward, Ops, OpsKind};
use burn::backend::tensor::FloatTensor;
use burn::backend::{Autodiff, Backend, Dispatch, Flex, backend_extension};
use burn::nn::loss::CrossEntropyLossConfig;
use burn::tensor::{Device, FloatDType, Tensor, TensorData};
use burn_flex::FlexTensor;

use super::flex;

/// Mean cross-entropy in nats of scores (logits), shape [samples, classes], against one label per sample.
pub fn cross_entropy(scores: Tensor<2>, labels: &[i32], device: &Device) -> Tensor<1> {
    smoothed_cross_entropy(scores, labels, 0.0, device)
}

/// The same with label smoothing, from 0 to below 1: so much of each label is spread over all classes.
pub fn smoothed_cross_entropy(scores: Tensor<2>, labels: &[i32], smoothing: f64, device: &Device) -> Tensor<1> {
    assert_eq!(scores.dims()[0], labels.len(), "rows of scores, and labels");
    if flex::takes(&scores) {
        return Tensor::from_dispatch(Dispatch::mean_cross_entropy(scores.into_dispatch(), labels.to_vec(), smoothing));
    }
    let labels = Tensor::from_data(TensorData::new(labels.to_vec(), [labels.len()]), device);
    let smoothing = (smoothing > 0.0).then_some(smoothing as f32);
    CrossEntropyLossConfig::new().with_smoothing(smoothing).init(device).forward(scores.cast(FloatDType::F32), labels)
}

/// The same for numbers in host memory, row by row.
pub(crate) fn mean_cross_entropy(scores: &[f32], classes: usize, labels: &[i32]) -> f64 {
    kernel::forward(scores, classes, labels, 0.0).0
}

#[backend_extension(Flex, Autodiff)]
trait Operation: Backend {
    fn mean_cross_entropy(scores: FloatTensor<Self>, labels: Vec<i32>, smoothing: f64) -> FloatTensor<Self>;
}

/// The loss, and the probabilities.
fn forward(scores: &FlexTensor, labels: &[i32], smoothing: f64) -> (FlexTensor, Vec<f32>) {
    let (loss, probabilities) =
        kernel::forward(flex::numbers(&scores.to_contiguous()), scores.layout().shape()[1], labels, smoothing);
    (flex::tensor(vec![loss as f32], [1]), probabilities)
}

impl Operation for Flex {
    fn mean_cross_entropy(scores: FlexTensor, labels: Vec<i32>, smoothing: f64) -> FlexTensor {
        forward(&scores, &labels, smoothing).0
    }
}

impl<C: CheckpointStrategy> Operation for Autodiff<Flex, C> {
    fn mean_cross_entropy(scores: FloatTensor<Self>, labels: Vec<i32>, smoothing: f64) -> FloatTensor<Self> {
        let (scores, of_scores) = scores.into_parts();
        let (loss, probabilities) = forward(&scores, &labels, smoothing);
        match BackwardPass.prepare::<C>([of_scores]).compute_bound().stateful() {
            OpsKind::UnTracked(prepared) => prepared.finish(loss),
            OpsKind::Tracked(prepared) => prepared.finish((probabilities, labels, smoothing), loss),
        }
    }
}

#[derive(Debug)]
struct BackwardPass;

impl Backward<Flex, 1> for BackwardPass {
    /// Probabilities, labels, and their smoothing.
    type State = (Vec<f32>, Vec<i32>, f64);

    fn backward(self, ops: Ops<Self::State, 1>, gradients: &mut Gradients, _: &mut Checkpointer) {
        let gradient = flex::numbers(&gradients.consume::<Flex>(&ops.node).to_contiguous())[0];
        let ([of_scores], (probabilities, labels, smoothing)) = (ops.parents, ops.state);
        if let Some(node) = of_scores {
            let classes = probabilities.len() / labels.len();
            let found = kernel::gradient(probabilities, classes, &labels, smoothing, gradient);
            gradients.register::<Flex>(node.id, flex::tensor(found, [labels.len(), classes]));
        }
    }
}
