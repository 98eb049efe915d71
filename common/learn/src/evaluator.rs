//! The loss and accuracy of parameters on a whole data set.

use std::sync::Arc;

use burn::tensor::Device;

use crate::data::DataError;
use crate::flat;
use crate::model::OpenData;
use crate::problem::{Batch, DeviceSamples, Measurement, Problem, Samples};

/// Evaluates parameters.
pub trait Evaluator: Send {
    /// Evaluates parameters on a whole data set. `go_on` is called every fraction of a second with the number of
    /// samples that are done; if it returns `false`, the evaluation ends, and the result is `None`.
    ///
    /// # Panics
    /// If there is not one `f32` per parameter of the model.
    fn evaluate(
        &mut self,
        parameters: &[f32],
        go_on: &mut dyn FnMut(u32) -> bool,
    ) -> Result<Option<Evaluation>, DataError>;
}

/// Loss and accuracy on a data set.
#[derive(Clone, Debug, PartialEq)]
pub struct Evaluation {
    /// Mean loss; cross-entropies are in nats.
    pub loss: f64,
    /// Share of samples whose largest score is that of the label, from 0 to 1; `None` if the problem has no classes.
    pub accuracy: Option<f64>,
    /// Counts by class.
    pub classes: Vec<ClassCount>,
}

/// Samples of one class.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ClassCount {
    /// Samples of the class.
    pub samples: u32,
    /// Samples whose largest score is that of the label.
    pub correct: u32,
}

/// Samples per evaluation batch: 3 MiB of images, enough to amortise kernel launches.
const EVALUATION_BATCH: u64 = 250;

pub(crate) struct BurnEvaluator<P: Problem> {
    data: Arc<OpenData<P>>,
    /// The samples on the device, if they are kept there.
    on_device: Option<DeviceSamples<Batch<P>>>,
    network: Option<P::Network>,
    device: Device,
}

impl<P: Problem> BurnEvaluator<P> {
    /// An evaluator on `device`, which must not have autodiff enabled.
    pub(crate) fn new(data: Arc<OpenData<P>>, device: Device) -> Self {
        Self { on_device: data.samples_on(&device), network: Some(data.problem.network(&device)), data, device }
    }
}

impl<P: Problem> Evaluator for BurnEvaluator<P> {
    fn evaluate(
        &mut self,
        parameters: &[f32],
        go_on: &mut dyn FnMut(u32) -> bool,
    ) -> Result<Option<Evaluation>, DataError> {
        let OpenData { problem, samples } = &*self.data;
        let network = self.network.take().expect("a network is only taken to be put back");
        let network = self.network.insert(flat::with_parameters(network, parameters, &self.device));
        let count = samples.count();
        let (mut loss, mut classes) = (0.0, Vec::new());
        for first in (0..count).step_by(EVALUATION_BATCH as usize) {
            if !go_on(u32::try_from(first).unwrap_or(u32::MAX)) {
                return Ok(None);
            }
            let indices: Vec<u64> = (first..count.min(first.saturating_add(EVALUATION_BATCH))).collect();
            let batch = match &self.on_device {
                Some(on_device) => on_device.batch(&indices)?,
                None => samples.batch(&indices)?,
            };
            let measured = problem.measure(network, &batch, &self.device);
            loss += measured.loss * indices.len() as f64;
            add(&mut classes, &measured);
        }
        let sum = |of: fn(&ClassCount) -> u32| classes.iter().map(|class| u64::from(of(class))).sum::<u64>() as f64;
        let accuracy = (!classes.is_empty()).then(|| sum(|class| class.correct) / sum(|class| class.samples));
        Ok(Some(Evaluation { loss: loss / count as f64, accuracy, classes }))
    }
}

fn add(classes: &mut Vec<ClassCount>, measured: &Measurement) {
    classes.resize(classes.len().max(measured.classes.len()), ClassCount::default());
    for (sum, class) in classes.iter_mut().zip(&measured.classes) {
        sum.samples += class.samples;
        sum.correct += class.correct;
    }
}
