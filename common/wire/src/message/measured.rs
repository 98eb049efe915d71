//! The measurement of a batch of the test data.

use std::collections::BTreeMap;

use ata_types::{Iteration, MAX_METRIC_NAME_BYTES, MAX_METRICS};

use super::{WireError, at_most, in_range, invalid, truncated};
use crate::limits::{MAX_CLASSES, MAX_EVALUATION_BATCH};
use crate::proto;

/// The measurement of a batch of the test data, or the reason why there is none.
#[derive(Clone, Debug, PartialEq)]
pub struct MeasuredBatch {
    /// The step after which the parameters are measured.
    pub step: Iteration,
    /// The index of the batch.
    pub batch: u64,
    /// The measurement; an error holds a human-readable reason.
    pub outcome: Result<BatchFigures, String>,
}

/// The figures measured on a batch.
#[derive(Clone, Debug, PartialEq)]
pub struct BatchFigures {
    /// The number of samples in the whole test data.
    pub samples: u64,
    /// The number of samples in every batch except the last.
    pub batch_samples: u32,
    /// The mean loss over the samples of the batch.
    pub loss: f64,
    /// For each class, the number of samples, and the number of samples whose largest score is that of the label.
    pub classes: Vec<(u32, u32)>,
    /// Means of other metrics over the samples of the batch.
    pub metrics: BTreeMap<String, f64>,
}

impl From<MeasuredBatch> for proto::Measured {
    fn from(measured: MeasuredBatch) -> Self {
        let MeasuredBatch { step, batch, outcome } = measured;
        let message = Self { step: step.number(), batch, ..Self::default() };
        match outcome {
            Ok(BatchFigures { samples, batch_samples, loss, classes, metrics }) => {
                let (class_samples, class_correct) = classes.into_iter().unzip();
                let (metric_names, metric_values) = metrics.into_iter().unzip();
                let message = Self { metric_names, metric_values, ..message };
                Self { samples, batch_samples, loss, class_samples, class_correct, ..message }
            }
            Err(failure) => Self { failure: truncated(failure), ..message },
        }
    }
}

impl TryFrom<proto::Measured> for MeasuredBatch {
    type Error = WireError;

    fn try_from(message: proto::Measured) -> Result<Self, WireError> {
        let proto::Measured {
            step, batch, failure, samples, batch_samples, loss, class_samples, class_correct, ..
        } = message;
        let step = Iteration(in_range("step", step, u64::MAX - 1)?);
        if !failure.is_empty() {
            return Ok(Self { step, batch, outcome: Err(truncated(failure)) });
        }
        in_range("samples", samples, u64::MAX)?;
        in_range("batch_samples", batch_samples.into(), MAX_EVALUATION_BATCH.into())?;
        at_most("number of classes", class_samples.len() as u64, MAX_CLASSES as u64)?;
        let (found, expected) = (class_correct.len(), class_samples.len());
        if found != expected {
            return Err(invalid("class_correct", format!("{found} counts"), format!("{expected} counts")));
        }
        let classes = class_samples.into_iter().zip(class_correct).collect();
        let metrics = metrics(message.metric_names, message.metric_values)?;
        Ok(Self { step, batch, outcome: Ok(BatchFigures { samples, batch_samples, loss, classes, metrics }) })
    }
}

fn metrics(names: Vec<String>, values: Vec<f64>) -> Result<BTreeMap<String, f64>, WireError> {
    at_most("number of metrics", names.len() as u64, MAX_METRICS as u64)?;
    let (found, expected) = (values.len(), names.len());
    if found != expected {
        return Err(invalid("metric_values", format!("{found} values"), format!("{expected} values")));
    }
    for name in &names {
        in_range("length of a metric's name", name.len() as u64, MAX_METRIC_NAME_BYTES as u64)?;
    }
    let metrics: BTreeMap<String, f64> = names.into_iter().zip(values).collect();
    if metrics.len() < expected {
        return Err(invalid("metric_names", format!("{} names", metrics.len()), format!("{expected} different names")));
    }
    Ok(metrics)
}
