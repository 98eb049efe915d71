//! The loss and accuracy of parameters on a whole data set.

use burn::nn::loss::{CrossEntropyLoss, CrossEntropyLossConfig};
use burn::tensor::{Device, Tensor};

use crate::data::{DataError, Dataset};
use crate::flat;
use crate::learner::on_device;
use crate::model::Network;

/// Evaluates parameters.
pub trait Evaluator: Send {
    /// Evaluates parameters on a whole data set. `go_on` hears every fraction of a second how many samples are done; if
    /// it returns `false`, the evaluation ends, and the result is `None`.
    ///
    /// # Panics
    /// If there is not one `f32` per parameter of the model.
    fn evaluate(
        &mut self,
        parameters: &[f32],
        data: &Dataset,
        go_on: &mut dyn FnMut(u32) -> bool,
    ) -> Result<Option<Evaluation>, DataError>;
}

/// How good parameters are on a data set.
#[derive(Clone, Debug, PartialEq)]
pub struct Evaluation {
    /// Mean cross-entropy, in nats.
    pub loss: f64,
    /// Share of samples whose largest score is that of the label, from 0 to 1.
    pub accuracy: f64,
    /// By class.
    pub classes: Vec<ClassCount>,
}

/// Samples of one class.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ClassCount {
    /// How many there are.
    pub samples: u32,
    /// How many of them have their largest score at the label.
    pub correct: u32,
}

/// Samples per evaluation batch: 3 MiB of images, enough to amortise kernel launches.
const EVALUATION_BATCH: u32 = 250;

pub(crate) struct BurnEvaluator<N> {
    network: Option<N>,
    cross_entropy: CrossEntropyLoss,
    device: Device,
}

impl<N: Network> BurnEvaluator<N> {
    /// An evaluator on `device`, which must not have autodiff enabled.
    pub(crate) fn new(network: N, device: Device) -> Self {
        Self { network: Some(network), cross_entropy: CrossEntropyLossConfig::new().init(&device), device }
    }
}

impl<N: Network> Evaluator for BurnEvaluator<N> {
    fn evaluate(
        &mut self,
        parameters: &[f32],
        data: &Dataset,
        go_on: &mut dyn FnMut(u32) -> bool,
    ) -> Result<Option<Evaluation>, DataError> {
        let network = self.network.take().expect("a network is only taken to be put back");
        let network = self.network.insert(flat::with_parameters(network, parameters, &self.device));
        let (mut loss, mut classes) = (0.0, Vec::new());
        for first in (0..data.len()).step_by(EVALUATION_BATCH as usize) {
            if !go_on(first) {
                return Ok(None);
            }
            let samples = first..data.len().min(first + EVALUATION_BATCH);
            let batch = data.batch(samples.clone())?;
            let (images, labels) = on_device(&batch, &self.device);
            let scores = network.forward(images);
            let found = scores.clone().argmax(1).flatten::<1>(0, 1).into_data().convert::<i32>();
            let mean: Tensor<1> = self.cross_entropy.forward(scores, labels);
            loss += f64::from(mean.into_scalar::<f32>()) * samples.len() as f64;
            let found = found.as_slice::<i32>().expect("just converted");
            for (found, label) in found.iter().zip(&batch.labels) {
                let class = *label as usize;
                if classes.len() <= class {
                    classes.resize(class + 1, ClassCount::default());
                }
                classes[class].samples += 1;
                classes[class].correct += u32::from(found == label);
            }
        }
        let total = f64::from(data.len());
        let correct: u32 = classes.iter().map(|class| class.correct).sum();
        Ok(Some(Evaluation { loss: loss / total, accuracy: f64::from(correct) / total, classes }))
    }
}
