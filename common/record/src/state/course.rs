//! The course of a run, as points for its steps and evaluations.

use serde::{Deserialize, Serialize};

use super::RunState;
use super::curve::{Curve, Merge};
use crate::event::RunEvent;

/// A step, or the mean of several successive ones. In JSON it is an array of its fields in this order, and an unknown number, NaN, is null.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(into = "[f64; 7]", from = "[Option<f64>; 7]")]
pub struct StepPoint {
    /// The iteration's number; for several steps, the last one's.
    pub iteration: f64,
    /// Runtime of the run up to this point, in seconds.
    pub runtime_s: f64,
    /// Total worker time of the run up to this point, in seconds.
    pub total_worker_time_s: f64,
    /// Mean loss of the step's tasks.
    pub loss: f64,
    /// Time from the assignment to the last result that the step needed, in seconds.
    pub iteration_s: f64,
    /// The learning rate.
    pub learning_rate: f64,
    /// The number of wasted tasks.
    pub wasted: f64,
}

/// An evaluation, or the mean of several successive ones, in the same form as a [`StepPoint`].
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(into = "[f64; 5]", from = "[Option<f64>; 5]")]
pub struct EvaluationPoint {
    /// The iteration whose parameters were evaluated.
    pub iteration: f64,
    /// Runtime of the run up to this point, in seconds.
    pub runtime_s: f64,
    /// Total worker time of the run up to this point, in seconds.
    pub total_worker_time_s: f64,
    /// Mean loss on the test data.
    pub loss: f64,
    /// The share of samples that were classified correctly, from 0 to 1.
    pub accuracy: f64,
}

impl From<[f64; 7]> for StepPoint {
    fn from([iteration, runtime_s, total_worker_time_s, loss, iteration_s, learning_rate, wasted]: [f64; 7]) -> Self {
        Self { iteration, runtime_s, total_worker_time_s, loss, iteration_s, learning_rate, wasted }
    }
}

impl From<StepPoint> for [f64; 7] {
    fn from(of: StepPoint) -> Self {
        [of.iteration, of.runtime_s, of.total_worker_time_s, of.loss, of.iteration_s, of.learning_rate, of.wasted]
    }
}

impl From<[Option<f64>; 7]> for StepPoint {
    fn from(numbers: [Option<f64>; 7]) -> Self {
        numbers.map(|number| number.unwrap_or(f64::NAN)).into()
    }
}

impl From<[f64; 5]> for EvaluationPoint {
    fn from([iteration, runtime_s, total_worker_time_s, loss, accuracy]: [f64; 5]) -> Self {
        Self { iteration, runtime_s, total_worker_time_s, loss, accuracy }
    }
}

impl From<EvaluationPoint> for [f64; 5] {
    fn from(of: EvaluationPoint) -> Self {
        [of.iteration, of.runtime_s, of.total_worker_time_s, of.loss, of.accuracy]
    }
}

impl From<[Option<f64>; 5]> for EvaluationPoint {
    fn from(numbers: [Option<f64>; 5]) -> Self {
        numbers.map(|number| number.unwrap_or(f64::NAN)).into()
    }
}

/// The steps of a run.
pub type StepCurve = Curve<StepPoint, 7>;

/// The evaluations of a run.
pub type EvaluationCurve = Curve<EvaluationPoint, 5>;

impl Default for StepCurve {
    fn default() -> Self {
        use Merge::{Last, Mean};
        Self::new([Last, Last, Last, Mean, Mean, Last, Mean])
    }
}

impl Default for EvaluationCurve {
    fn default() -> Self {
        use Merge::{Last, Mean};
        Self::new([Last, Last, Last, Mean, Mean])
    }
}

impl RunState {
    pub(super) fn evaluate(&mut self, event: &RunEvent) {
        let &RunEvent::Evaluation { iteration, loss, accuracy, ref metrics, skipped, .. } = event else { return };
        self.evaluation = Some((loss, accuracy));
        self.metrics.clone_from(metrics);
        self.evaluated = Some(iteration);
        self.skipped_evaluations = self.skipped_evaluations.saturating_add(skipped);
        self.lowest_test_loss = Some(self.lowest_test_loss.map_or(loss, |lowest| lowest.min(loss)));
        self.evaluations.add(EvaluationPoint {
            iteration: iteration.number() as f64,
            runtime_s: self.runtime_s(),
            total_worker_time_s: self.total_worker_time_s,
            loss,
            accuracy: accuracy.unwrap_or(f64::NAN),
        });
    }
}
