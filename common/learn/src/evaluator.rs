//! Measures the loss and accuracy of parameters on a whole data set, batch by batch.

use std::collections::BTreeMap;
use std::sync::Arc;

use burn::tensor::Device;

use crate::flat;
use crate::model::OpenData;
use crate::problem::{Batch, DeviceSamples, Measurement, Metrics, Problem, Samples};
use ata_data::DataError;

/// Measures parameters on the batches of a data set.
///
/// A batch's measurement depends on the parameters and the batch only, so any machine may measure it.
pub trait Evaluator: Send {
    /// Puts parameters on the device.
    ///
    /// # Panics
    /// Panics if there is not one `f32` per parameter of the model.
    fn load(&mut self, parameters: &[f32]);

    /// Returns the division of the data set into batches.
    fn batches(&self) -> EvaluationBatches;

    /// Measures a batch, by its number from 0, at the loaded parameters.
    fn measure(&mut self, batch: u64) -> Result<Measurement, DataError>;

    /// Evaluates parameters on all batches. `go_on` is called before each batch with the number of samples already
    /// measured; if it returns `false`, the evaluation stops, and the result is `None`.
    fn evaluate(
        &mut self,
        parameters: &[f32],
        go_on: &mut dyn FnMut(u64) -> bool,
    ) -> Result<Option<Evaluation>, DataError> {
        self.load(parameters);
        let batches = self.batches();
        let mut sum = EvaluationSum::new(batches);
        for batch in 0..batches.count() {
            if !go_on(batches.samples_of(batch).start) {
                return Ok(None);
            }
            sum.add(batch, &self.measure(batch)?);
        }
        Ok(sum.evaluation())
    }
}

/// The batches of an evaluation: each has `batch_samples` samples, except the last, which has the rest.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EvaluationBatches {
    /// The number of samples in the data set, at least one.
    pub samples: u64,
    /// The number of samples per batch, at least one.
    pub batch_samples: u32,
}

impl EvaluationBatches {
    /// Returns the number of batches.
    pub fn count(self) -> u64 {
        self.samples.div_ceil(self.batch_samples.into())
    }

    /// Returns the samples of a batch.
    pub fn samples_of(self, batch: u64) -> std::ops::Range<u64> {
        let first = batch.saturating_mul(self.batch_samples.into()).min(self.samples);
        first..first.saturating_add(self.batch_samples.into()).min(self.samples)
    }
}

/// Adds up the measurements of batches. They may come in any order; the losses are added in the order of the batches,
/// so that the result is bit-identical.
#[derive(Debug)]
pub struct EvaluationSum {
    batches: EvaluationBatches,
    /// The sum of the losses over the samples of all batches before `next`.
    loss: f64,
    /// The sum of each metric, and the number of samples in the batches that have it.
    metrics: BTreeMap<String, (f64, f64)>,
    next: u64,
    /// Losses and metrics of batches after `next`.
    early: BTreeMap<u64, (f64, Metrics)>,
    classes: Vec<ClassCount>,
}

impl EvaluationSum {
    /// Creates a sum without measurements.
    pub fn new(batches: EvaluationBatches) -> Self {
        let (metrics, early) = (BTreeMap::new(), BTreeMap::new());
        Self { batches, loss: 0.0, metrics, next: 0, early, classes: Vec::new() }
    }

    /// Returns the division of the data set into batches.
    pub fn batches(&self) -> EvaluationBatches {
        self.batches
    }

    /// Adds the measurement of a batch, unless the batch was added before.
    pub fn add(&mut self, batch: u64, measured: &Measurement) {
        if batch < self.next || batch >= self.batches.count() || self.early.contains_key(&batch) {
            return;
        }
        self.early.insert(batch, (measured.loss, measured.metrics.clone()));
        self.classes.resize(self.classes.len().max(measured.classes.len()), ClassCount::default());
        for (sum, class) in self.classes.iter_mut().zip(&measured.classes) {
            sum.samples = sum.samples.saturating_add(class.samples);
            sum.correct = sum.correct.saturating_add(class.correct);
        }
        while let Some((loss, metrics)) = self.early.remove(&self.next) {
            let samples = self.batches.samples_of(self.next);
            let samples = (samples.end - samples.start) as f64;
            self.loss += loss * samples;
            for (name, value) in metrics {
                let (sum, of) = self.metrics.entry(name).or_default();
                (*sum, *of) = (*sum + value * samples, *of + samples);
            }
            self.next += 1;
        }
    }

    /// Returns the evaluation once all batches are measured.
    pub fn evaluation(&self) -> Option<Evaluation> {
        if self.next < self.batches.count() {
            return None;
        }
        let sum =
            |of: fn(&ClassCount) -> u32| self.classes.iter().map(|class| u64::from(of(class))).sum::<u64>() as f64;
        let counted = sum(|class| class.samples);
        let accuracy = (counted > 0.0).then(|| sum(|class| class.correct) / counted);
        let metrics = self.metrics.iter().map(|(name, (sum, samples))| (name.clone(), sum / samples)).collect();
        let loss = self.loss / self.batches.samples as f64;
        Some(Evaluation { loss, accuracy, metrics, classes: self.classes.clone() })
    }
}

/// The loss and accuracy on a data set.
#[derive(Clone, Debug, PartialEq)]
pub struct Evaluation {
    /// The mean loss; cross-entropies are in nats.
    pub loss: f64,
    /// The share of samples whose largest score is that of the label, from 0 to 1; `None` if the problem has no classes.
    pub accuracy: Option<f64>,
    /// The problem's own metrics, as means over the samples.
    pub metrics: Metrics,
    /// The counts of each class.
    pub classes: Vec<ClassCount>,
}

/// The counts of one class.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ClassCount {
    /// The number of samples of the class.
    pub samples: u32,
    /// The number of samples whose largest score is that of the label.
    pub correct: u32,
}

/// The number of samples per evaluation batch, if samples are small: 3 MiB of CIFAR-100 images, enough to amortise kernel launches.
const EVALUATION_BATCH: u32 = 250;

pub(crate) struct BurnEvaluator<P: Problem> {
    data: Arc<OpenData<P>>,
    on_device: Option<DeviceSamples<Batch<P>>>,
    network: Option<P::Network>,
    device: Device,
}

impl<P: Problem> BurnEvaluator<P> {
    /// Creates an evaluator on `device`, which must not have autodiff enabled.
    pub(crate) fn new(data: Arc<OpenData<P>>, device: Device) -> Self {
        Self { on_device: data.samples_on(&device), network: Some(data.problem.network(&device)), data, device }
    }
}

impl<P: Problem> Evaluator for BurnEvaluator<P> {
    fn load(&mut self, parameters: &[f32]) {
        self.network = self.network.take().map(|network| flat::with_parameters(network, parameters, &self.device));
    }

    fn batches(&self) -> EvaluationBatches {
        let samples = &self.data.samples;
        // If samples are large, a batch has as many as fit on a device at once.
        let batch_samples = samples.fused().clamp(1, EVALUATION_BATCH.into()) as u32;
        EvaluationBatches { samples: samples.count(), batch_samples }
    }

    fn measure(&mut self, batch: u64) -> Result<Measurement, DataError> {
        let OpenData { problem, samples } = &*self.data;
        let network = self.network.as_ref().expect("a network is only taken to be put back");
        let indices: Vec<u64> = self.batches().samples_of(batch).collect();
        let batch = match &self.on_device {
            Some(on_device) => on_device.batch(&indices)?,
            None => samples.batch(&indices)?,
        };
        let measured = problem.measure(network, &batch, &self.device);
        Measurement::check_metrics(&measured.metrics)?;
        Ok(measured)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_order_in_which_batches_come_does_not_matter() {
        let batches = EvaluationBatches { samples: 23, batch_samples: 5 };
        let measured = |batch: u64| Measurement {
            loss: 0.1 + (batch as f64).exp(),
            classes: vec![ClassCount { samples: 2, correct: (batch % 2) as u32 }; 1 + batch as usize % 2],
            // Only one of these metrics is in the last batch.
            metrics: [("error", batch as f64), ("some", 1.0)]
                .into_iter()
                .take(if batch == 4 { 1 } else { 2 })
                .map(|(name, value)| (name.to_owned(), value))
                .collect(),
        };
        let total = |order: [u64; 5]| {
            let mut sum = EvaluationSum::new(batches);
            for (at, batch) in order.into_iter().enumerate() {
                assert_eq!(sum.evaluation(), None, "{at} of 5 are measured");
                sum.add(batch, &measured(batch));
                // This batch is measured twice, and the other one is not in the data set.
                sum.add(batch, &Measurement::of_loss(9.0));
                sum.add(5, &Measurement::of_loss(9.0));
            }
            sum.evaluation().unwrap()
        };
        let in_order = total([0, 1, 2, 3, 4]);
        assert_eq!(total([4, 2, 0, 3, 1]), in_order);
        let samples = [5.0, 5.0, 5.0, 5.0, 3.0];
        let loss: f64 = samples.iter().zip(0..).map(|(samples, batch)| samples * measured(batch).loss).sum();
        assert_eq!(in_order.loss.to_bits(), (loss / 23.0).to_bits());
        assert_eq!(in_order.accuracy, Some(4.0 / 14.0));
        let metrics = [("error".to_owned(), (5.0 * (1.0 + 2.0 + 3.0) + 3.0 * 4.0) / 23.0), ("some".to_owned(), 1.0)];
        assert_eq!(in_order.metrics, metrics.into());
    }
}
