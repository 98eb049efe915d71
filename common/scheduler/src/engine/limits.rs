//! Limits that end a run.

use serde::{Deserialize, Serialize};

use crate::ledger::Ledger;
use crate::policy::StepOutcome;

/// Ends a run before its last iteration. Each limit is checked after a step, so a run may exceed it by one iteration.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Limits {
    /// Mean loss of a step's tasks, in nats, at or below which training has succeeded.
    pub target_loss: Option<f64>,
    /// Accuracy of an evaluation, from 0 to 1, at or above which training has succeeded.
    pub target_accuracy: Option<f64>,
    /// Seconds since the first assignment.
    pub runtime_s: Option<f64>,
    /// Seconds of total worker time.
    pub total_worker_time_s: Option<f64>,
    /// The number of worker-iterations with at least one task, which the bandit paper (arXiv 2202.08302) limits.
    pub employments: Option<u64>,
}

/// The rule that ended a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum FinishReason {
    /// All iterations are committed.
    Iterations,
    /// [`Limits::target_loss`] was reached.
    TargetLoss,
    /// [`Limits::target_accuracy`] was reached.
    TargetAccuracy,
    /// [`Limits::runtime_s`] was reached.
    Runtime,
    /// [`Limits::total_worker_time_s`] was reached.
    TotalWorkerTime,
    /// [`Limits::employments`] was reached.
    Employments,
}

impl FinishReason {
    /// Returns the rule's name, as in summaries.
    pub fn name(self) -> &'static str {
        match self {
            Self::Iterations => "iterations",
            Self::TargetLoss => "target_loss",
            Self::TargetAccuracy => "target_accuracy",
            Self::Runtime => "runtime",
            Self::TotalWorkerTime => "total_worker_time",
            Self::Employments => "employments",
        }
    }
}

impl Limits {
    /// Returns the first limit that is reached, if any.
    pub(super) fn reached(&self, runtime_s: f64, ledger: &Ledger, outcome: &StepOutcome) -> Option<FinishReason> {
        let over = |value: f64, limit: Option<f64>| limit.is_some_and(|limit| value >= limit);
        let good = matches!((outcome.loss, self.target_loss), (Some(loss), Some(target)) if loss <= target);
        let accurate = outcome.accuracy.is_some_and(|accuracy| over(accuracy, self.target_accuracy));
        [
            (good, FinishReason::TargetLoss),
            (accurate, FinishReason::TargetAccuracy),
            (over(runtime_s, self.runtime_s), FinishReason::Runtime),
            (over(ledger.total_worker_time_s, self.total_worker_time_s), FinishReason::TotalWorkerTime),
            (self.employments.is_some_and(|limit| ledger.employments >= limit), FinishReason::Employments),
        ]
        .into_iter()
        .find_map(|(reached, reason)| reached.then_some(reason))
    }
}
