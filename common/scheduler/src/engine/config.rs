//! Settings of an engine, and the limits that end a run.

use serde::{Deserialize, Serialize};

use super::TaskChoice;
use super::random::draw;
use crate::ledger::Ledger;
use crate::policy::StepOutcome;
use ata_types::Iteration;

/// Settings of an [`super::Engine`].
#[derive(Clone, Debug)]
pub struct EngineConfig {
    /// The number of tasks per iteration, B; at least 1.
    pub budget: u64,
    /// How the engine chooses the number of tasks of each iteration, if it does; B is the first one.
    pub choice: Option<TaskChoice>,
    /// The number of iterations until [`super::Effect::Finish`]; if the number of tasks is chosen, that of iterations of B tasks that have
    /// as many.
    pub iterations: u64,
    /// The number of workers to wait for before the first iteration; at least 1. Later iterations start with the workers present.
    pub min_workers: usize,
    /// Seconds within which a worker that was never timed must report its first result, or it is evicted. A worker that was
    /// timed has ten times its expected time (more if its times are noisy), and at least a tenth of this. `None` means no
    /// limit.
    pub lease_timeout_s: Option<f64>,
    /// The shortest rest of a worker that failed, in seconds; it doubles with each further failure.
    pub rest_s: f64,
    /// The number of failures in a row, without a result in between, after which a worker is expelled. `None` means never.
    pub expel_after: Option<u32>,
    /// Seconds for which tasks must keep failing, without a result, before the run is given up. It should exceed any outage that the run
    /// is to survive. If the workers report that the tasks are to blame, a twelfth of it is enough.
    pub outage_s: f64,
    /// Spot checks. They require a policy that waits for all of its tasks.
    pub verify: Option<Verify>,
    /// The seed of all randomness in the scheduler.
    pub seed: u64,
    /// Overcommitment, at least 0: the share of tasks that a barrier policy allocates beyond B. The first B results
    /// make the step and the rest is cancelled, which trades wasted work for speed.
    pub overcommit: f64,
    /// Whether tasks are local steps. No task is then computed by a second worker, since its step would be another one.
    pub takes_local_steps: bool,
    /// Whether workers that take local steps go on with the next iteration while the differences of the last one travel.
    pub overlap: bool,
    /// Limits that end the run earlier.
    pub limits: Limits,
}

impl EngineConfig {
    /// Returns the number of tasks of a run before its next iteration, if `applied` have entered its steps. Without a choice, each iteration
    /// counts B.
    pub(super) fn position(&self, next: Iteration, applied: u64) -> u64 {
        if self.choice.is_some() { applied } else { next.since(Iteration::FIRST).saturating_mul(self.budget) }
    }

    pub(super) fn is_over(&self, position: u64) -> bool {
        position >= self.iterations.saturating_mul(self.budget)
    }
}

impl Default for EngineConfig {
    /// Runs one iteration of one task, as soon as there is a worker.
    fn default() -> Self {
        Self {
            budget: 1,
            choice: None,
            iterations: 1,
            min_workers: 1,
            lease_timeout_s: None,
            rest_s: 0.0,
            expel_after: None,
            outage_s: 0.0,
            verify: None,
            seed: 0,
            overcommit: 0.0,
            takes_local_steps: false,
            overlap: true,
            limits: Limits::default(),
        }
    }
}

/// Settings of spot checks.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Verify {
    /// The share of leases that are checked, from 0 to 1.
    pub share: f64,
    /// Determines, together with the iteration, which leases are checked. Workers must not know it.
    pub secret: u64,
}

impl Verify {
    /// Returns whether a part of an iteration is checked: a lease, by its first task, or a batch of an evaluation.
    pub fn draws(&self, iteration: Iteration, part: u64) -> bool {
        draw(self.secret, iteration, part) < self.share
    }
}

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

/// The rule that ended a run: all iterations are committed, or one of its [`Limits`] was reached.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[expect(missing_docs, reason = "each limit has the name of its reason")]
pub enum FinishReason {
    Iterations,
    TargetLoss,
    TargetAccuracy,
    Runtime,
    TotalWorkerTime,
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
