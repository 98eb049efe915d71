//! Evaluations on the test data: when they are due, and what comes of them.

use std::pin::Pin;

use ata_record::RunEvent;
use ata_types::Iteration;
use tokio::sync::mpsc;

use super::{Command, Owner};
use crate::evaluation::{Evaluated, EvaluationError, EvaluationThread};
use crate::report::RunError;

/// The evaluations of a run. At most one takes place at a time.
pub(super) struct Evaluations {
    thread: EvaluationThread,
    /// Iterations between two of them; the final parameters are always evaluated.
    every: Option<u64>,
    /// The last iteration of the parameters that are being evaluated.
    under_way: Option<u64>,
    /// The last iteration of the parameters that were evaluated last.
    last: Option<u64>,
    pub(super) last_accuracy: Option<f64>,
    pub(super) best: Best,
    /// Why there are no more of them.
    failed: Option<RunError>,
}

/// The best of the evaluations so far.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Best {
    /// The highest accuracy, which decides where there is one.
    pub(super) accuracy: Option<f64>,
    /// The lowest loss.
    pub(super) loss: Option<f64>,
}

impl Best {
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
    pub(super) fn new(thread: EvaluationThread, every: Option<u64>, best: Best) -> Self {
        Self { thread, every, under_way: None, last: None, last_accuracy: None, best, failed: None }
    }
}

impl Owner {
    /// Begins an evaluation after an iteration, if one is due and none is under way.
    pub(super) fn evaluate_if_due(&mut self, iteration: u64) {
        let is_due = iteration > 0 && self.evaluations.every.is_some_and(|every| iteration.is_multiple_of(every));
        if is_due && self.evaluations.under_way.is_none() {
            self.evaluate();
        }
    }

    /// Begins an evaluation of the current parameters.
    fn evaluate(&mut self) {
        let parameters = self.parameters.clone();
        self.evaluations.under_way = Some(parameters.steps());
        self.trace.evaluation_begins(parameters.steps());
        self.evaluations.thread.evaluate(parameters);
    }

    /// Records an evaluation. The best model so far is kept. If it failed, the run goes on without evaluations, and fails
    /// at its end.
    pub(super) fn evaluated(&mut self, evaluated: Evaluated) {
        let Evaluated { parameters, result } = evaluated;
        let iteration = parameters.steps();
        self.evaluations.under_way = None;
        self.trace.evaluation_ends(result.as_ref().ok().map(|found| (found.loss, found.accuracy)));
        let evaluation = match result {
            Ok(evaluation) => evaluation,
            Err(EvaluationError::Cancelled) => return,
            Err(error) => {
                let error = match error {
                    EvaluationError::Data(error) => error.into(),
                    _ => RunError::Training,
                };
                tracing::warn!("the evaluation after iteration {iteration} failed: {error}");
                (self.evaluations.every, self.evaluations.failed) = (None, Some(error));
                return;
            }
        };
        let (loss, accuracy) = (evaluation.loss, evaluation.accuracy);
        self.publisher.publish(RunEvent::Evaluation {
            time_s: self.now_s,
            iteration: Iteration(iteration),
            loss,
            accuracy,
        });
        self.evaluations.last = Some(iteration);
        self.evaluations.last_accuracy = accuracy;
        if self.evaluations.best.update(loss, accuracy) {
            self.keep_best(parameters, loss, accuracy);
        }
    }

    /// Evaluates the final parameters, unless that was done. Returns `false` if `stop` resolves before.
    pub(super) async fn evaluate_last(
        &mut self,
        commands: &mut mpsc::Receiver<Command>,
        stop: Pin<&mut impl Future<Output = ()>>,
    ) -> Result<bool, RunError> {
        let iteration = self.parameters.steps();
        self.publisher.publish(RunEvent::Evaluating { time_s: self.now_s, iteration: Iteration(iteration) });
        let is_idle = |owner: &Self| owner.evaluations.under_way.is_none();
        let evaluate = async {
            // An earlier one may be under way.
            self.settle(commands, is_idle).await;
            if self.evaluations.last != Some(iteration) && self.evaluations.failed.is_none() {
                self.evaluate();
                self.settle(commands, is_idle).await;
            }
        };
        let is_done = tokio::select! {
            () = evaluate => true,
            () = stop => false,
        };
        self.evaluations.failed.take().map_or(Ok(is_done), Err)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn accuracy_decides_where_there_is_one_and_loss_elsewhere() {
        let mut classes = Best::default();
        let found = [(2.0, 0.5), (1.0, 0.4), (3.0, 0.6), (1.0, 0.6)].map(|(loss, x)| classes.update(loss, Some(x)));
        assert_eq!(found, [true, false, true, false]);
        let mut regression = Best::default();
        let found = [f64::NAN, 2.0, 3.0, 1.0, 1.0].map(|loss| regression.update(loss, None));
        assert_eq!(found, [false, true, false, true, false]);
    }
}
