//! The coordinator's use of a computation: the loss and accuracy of parameters on a split.

use ata_learn::{ClassCount, DataError, Evaluation, Evaluator};

use super::Raised;
use super::computation::Computation;

/// Samples per call: enough to amortise it, and few enough for the activations of a model of images.
const BATCH: u32 = 64;

pub(super) struct PythonEvaluator {
    /// Without one, every evaluation fails for that reason.
    computation: Result<Computation, String>,
    /// Samples of the split.
    count: u32,
}

impl PythonEvaluator {
    pub(super) fn new(computation: Result<Computation, String>, count: u32) -> Self {
        Self { computation, count }
    }
}

impl Evaluator for PythonEvaluator {
    fn evaluate(
        &mut self,
        parameters: &[f32],
        go_on: &mut dyn FnMut(u32) -> bool,
    ) -> Result<Option<Evaluation>, DataError> {
        let computation = self.computation.as_ref().map_err(|reason| DataError::Problem(reason.clone()))?;
        computation.load(parameters).map_err(failed)?;
        let (mut sum, mut classes) = (0.0, Vec::new());
        for first in (0..self.count).step_by(BATCH as usize) {
            if !go_on(first) {
                return Ok(None);
            }
            let last = self.count.min(first.saturating_add(BATCH));
            let (loss, labels, predictions) = computation.measure(first..last).map_err(failed)?;
            sum += loss * f64::from(last - first);
            for (label, prediction) in labels.into_iter().zip(predictions) {
                count(&mut classes, label, prediction)?;
            }
        }
        let total = |of: fn(&ClassCount) -> u32| classes.iter().map(|class| f64::from(of(class))).sum::<f64>();
        let accuracy = (!classes.is_empty()).then(|| total(|class| class.correct) / total(|class| class.samples));
        Ok(Some(Evaluation { loss: sum / f64::from(self.count), accuracy, classes }))
    }
}

fn failed(raised: Raised) -> DataError {
    DataError::Problem(raised.text)
}

fn count(classes: &mut Vec<ClassCount>, label: i64, prediction: i64) -> Result<(), DataError> {
    /// More are a mistake: labels are the numbers of classes.
    const MOST: usize = 1 << 20;
    let class = usize::try_from(label).ok().filter(|class| *class < MOST);
    let class = class.ok_or_else(|| DataError::Problem(format!("label {label}: expected the number of a class")))?;
    if class >= classes.len() {
        classes.resize(class + 1, ClassCount::default());
    }
    classes[class].samples += 1;
    classes[class].correct += u32::from(label == prediction);
    Ok(())
}
