//! The loss and accuracy of parameters on batches of a split.

use ata_data::DataError;
use ata_learn::{ClassCount, EvaluationBatches, Evaluator, Measurement};

use super::Raised;
use super::computation::Computation;

/// Samples per call: enough to amortise the call, few enough that the activations of an image model fit in memory.
const BATCH: u32 = 64;

pub(super) struct PythonEvaluator {
    /// The computation, or the reason why every evaluation fails.
    computation: Result<Computation, String>,
    /// The number of samples in the split.
    count: u64,
    /// The reason why the parameters could not be loaded.
    load_failure: Option<String>,
}

impl PythonEvaluator {
    pub(super) fn new(computation: Result<Computation, String>, count: u64) -> Self {
        Self { computation, count, load_failure: None }
    }
}

impl Evaluator for PythonEvaluator {
    fn load(&mut self, parameters: &[f32]) {
        let loaded = self.computation.as_ref().map_or(Ok(()), |computation| computation.load(parameters));
        self.load_failure = loaded.err().map(|raised| raised.text);
    }

    fn batches(&self) -> EvaluationBatches {
        EvaluationBatches { samples: self.count, batch_samples: BATCH }
    }

    fn measure(&mut self, batch: u64) -> Result<Measurement, DataError> {
        let computation = self.computation.as_ref().map_err(|reason| DataError::Problem(reason.clone()))?;
        if let Some(reason) = &self.load_failure {
            return Err(DataError::Problem(reason.clone()));
        }
        let samples = self.batches().samples_of(batch);
        let (loss, labels, predictions, metrics) = computation.measure(samples).map_err(failed)?;
        Measurement::check_metrics(&metrics)?;
        let mut classes = Vec::new();
        for (label, prediction) in labels.into_iter().zip(predictions) {
            count(&mut classes, label, prediction)?;
        }
        Ok(Measurement { loss, classes, metrics })
    }
}

fn failed(raised: Raised) -> DataError {
    DataError::Problem(raised.text)
}

fn count(classes: &mut Vec<ClassCount>, label: i64, prediction: i64) -> Result<(), DataError> {
    /// The largest plausible number of classes: a larger label is a mistake.
    const MOST: usize = 1 << 17;
    let class = usize::try_from(label).ok().filter(|class| *class < MOST);
    let class = class.ok_or_else(|| DataError::Problem(format!("label {label}: expected the number of a class")))?;
    if class >= classes.len() {
        classes.resize(class + 1, ClassCount::default());
    }
    classes[class].samples += 1;
    classes[class].correct += u32::from(label == prediction);
    Ok(())
}
