//! Evaluations on the test data: when they are due, and which one was best.

use ata_learn::Metadata;
use ata_record::RunEvent;
use ata_types::Iteration;
use tracing::Span;

use crate::evaluation::{EvaluationError, EvaluationResult, EvaluationThread};
use crate::parameters::TrainedParameters;
use crate::report::RunError;

/// The evaluations of a run. At most one takes place at a time.
pub(super) struct Evaluations {
    thread: EvaluationThread,
    /// Iterations between two of them; the final parameters are always evaluated.
    every: Option<u64>,
    /// The span of the evaluation that is under way.
    under_way: Option<Span>,
    /// The last step of the parameters that were evaluated last.
    last: Option<Iteration>,
    last_accuracy: Option<f64>,
    best: BestEvaluation,
    /// Why there are no more of them.
    failed: Option<RunError>,
}

/// The best of the evaluations so far.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct BestEvaluation {
    /// The highest accuracy, which decides if the problem has one.
    pub(super) accuracy: Option<f64>,
    /// The lowest loss.
    pub(super) loss: Option<f64>,
}

/// What follows from an evaluation.
pub(super) struct EvaluationRecord {
    pub(super) event: RunEvent,
    /// The model to keep, if it is the best so far: its parameters, and what its file says about them.
    pub(super) best_model: Option<(TrainedParameters, Metadata)>,
}

impl BestEvaluation {
    /// Takes in an evaluation. Returns whether it is the best.
    fn update(&mut self, loss: f64, accuracy: Option<f64>) -> bool {
        let has_lowest_loss = loss.is_finite() && self.loss.is_none_or(|lowest| loss < lowest);
        if has_lowest_loss {
            self.loss = Some(loss);
        }
        let Some(accuracy) = accuracy else { return has_lowest_loss };
        let is_best = self.accuracy.is_none_or(|best| accuracy > best);
        if is_best {
            self.accuracy = Some(accuracy);
        }
        is_best
    }
}

impl Evaluations {
    pub(super) fn new(thread: EvaluationThread, every: Option<u64>, best: BestEvaluation) -> Self {
        Self { thread, every, under_way: None, last: None, last_accuracy: None, best, failed: None }
    }

    /// Whether an evaluation of these parameters is due. None is due while another one is under way.
    pub(super) fn is_due(&self, last_step: Iteration) -> bool {
        let steps = last_step.number();
        let is_due = steps > 0 && self.every.is_some_and(|every| steps.is_multiple_of(every));
        is_due && self.is_idle()
    }

    /// Whether the final parameters have to be evaluated still.
    pub(super) fn lack(&self, last_step: Iteration) -> bool {
        self.last != Some(last_step) && self.failed.is_none()
    }

    /// Whether no evaluation is under way.
    pub(super) fn is_idle(&self) -> bool {
        self.under_way.is_none()
    }

    /// Begins an evaluation, which lasts as long as `span`.
    pub(super) fn begin(&mut self, parameters: TrainedParameters, span: Span) {
        self.under_way = Some(span);
        self.thread.evaluate(parameters);
    }

    /// Takes in the result of an evaluation. If it failed, the run goes on without evaluations, and fails at its end.
    pub(super) fn finish(&mut self, now_s: f64, result: EvaluationResult) -> Option<EvaluationRecord> {
        let EvaluationResult { parameters, outcome } = result;
        let (iteration, span) = (parameters.last_step(), self.under_way.take());
        let evaluation = match outcome {
            Ok(evaluation) => evaluation,
            Err(EvaluationError::Cancelled) => return None,
            Err(error) => {
                let error = match error {
                    EvaluationError::Data(error) => error.into(),
                    _ => RunError::Training,
                };
                tracing::warn!("the evaluation after iteration {iteration} failed: {error}");
                (self.every, self.failed) = (None, Some(error));
                return None;
            }
        };
        let (loss, accuracy) = (evaluation.loss, evaluation.accuracy);
        if let Some(span) = span {
            span.record("loss", loss).record("accuracy", accuracy);
        }
        (self.last, self.last_accuracy) = (Some(iteration), accuracy);
        let figures = [("test_loss", Some(loss)), ("test_accuracy", accuracy)];
        let metadata = || figures.into_iter().filter_map(|(key, value)| Some((key.to_owned(), value?.to_string())));
        let best_model = self.best.update(loss, accuracy).then(|| (parameters, metadata().collect()));
        let event = RunEvent::Evaluation { time_s: now_s, iteration, loss, accuracy };
        Some(EvaluationRecord { event, best_model })
    }

    /// The accuracy of the last evaluation.
    pub(super) fn last_accuracy(&self) -> Option<f64> {
        self.last_accuracy
    }

    /// The highest accuracy so far.
    pub(super) fn best_accuracy(&self) -> Option<f64> {
        self.best.accuracy
    }

    /// Why an evaluation failed, if one did.
    pub(super) fn take_error(&mut self) -> Option<RunError> {
        self.failed.take()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn accuracy_decides_if_there_is_one_and_loss_otherwise() {
        let mut classes = BestEvaluation::default();
        let found = [(2.0, 0.5), (1.0, 0.4), (3.0, 0.6), (1.0, 0.6)].map(|(loss, x)| classes.update(loss, Some(x)));
        assert_eq!(found, [true, false, true, false]);
        let mut regression = BestEvaluation::default();
        let found = [f64::NAN, 2.0, 3.0, 1.0, 1.0].map(|loss| regression.update(loss, None));
        assert_eq!(found, [false, true, false, true, false]);
    }
}
