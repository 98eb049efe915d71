//! The course of a run: points for its steps and evaluations, and what the steps add up to.

use serde::{Deserialize, Serialize};

use super::curve::{Curve, Merge};
use super::{LinkFigures, RunState};
use crate::event::{RunEvent, StepEvent};

/// What the steps of a run add up to, and the figures of the last one.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct StepTotals {
    /// Sum of total worker times over iterations, in seconds.
    pub total_worker_time_s: f64,
    /// Sum of C_k, in seconds.
    pub iteration_time_s: f64,
    /// The number of tasks that entered a step.
    pub tasks_applied: u64,
    /// The number of wasted tasks, which were begun but entered no step.
    pub tasks_wasted: u64,
    /// The number of worker-iterations with at least one task.
    pub employments: u64,
    /// The number of results that workers sent, each the gradient of one task or the sum of several.
    pub results: u64,
    /// The number of gradient values that were too large for their unit and were clamped.
    pub saturated: u64,
    /// The number of gradient values that were not 0 and that the wire format `compact` rounded to 0.
    #[serde(default)]
    pub vanished: u64,
    /// The number of steps whose vectors were exchanged in shards.
    #[serde(default)]
    pub sharded_steps: u64,
    /// The time that vectors take on the links, if it was measured.
    pub links: Option<LinkFigures>,
    /// Mean loss of the first step's tasks.
    pub first_loss: Option<f64>,
    /// Mean loss of the last step's tasks.
    pub last_loss: Option<f64>,
    /// Learning rate of the last step.
    pub learning_rate: Option<f64>,
    /// Euclidean norm of the last mean gradient before it was clipped, if gradients are clipped.
    pub gradient_norm: Option<f64>,
    /// The gradient noise scale after the last step, in tasks, if it is measured and known.
    pub noise_scale: Option<f64>,
}

impl StepTotals {
    pub(super) fn add(&mut self, step: &StepEvent) {
        self.iteration_time_s += step.runtime_s;
        self.total_worker_time_s += step.total_worker_time_s;
        self.tasks_applied += step.tasks;
        self.tasks_wasted += step.wasted;
        self.employments += step.employments;
        self.results += step.results;
        // The worker counts them, and may send any number.
        self.saturated = self.saturated.saturating_add(step.saturated);
        self.vanished = self.vanished.saturating_add(step.vanished);
        self.sharded_steps += u64::from(step.shards > 0);
        self.first_loss.get_or_insert(step.loss);
        self.last_loss = Some(step.loss);
        self.learning_rate = Some(step.learning_rate);
        (self.gradient_norm, self.noise_scale) = (step.gradient_norm, step.noise_scale);
    }
}

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
            total_worker_time_s: self.totals.total_worker_time_s,
            loss,
            accuracy: accuracy.unwrap_or(f64::NAN),
        });
    }
}
