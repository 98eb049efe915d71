//! The picture of a run that everything shows: the page, `ata status`, `/metrics` and JSON.
//!
//! # Layout
//! - here: [`Snapshot`] and its parts; JSON has the same names
//! - `worker`: [`WorkerSnapshot`]
//! - `cost`: [`PolicyCost`]
//! - `cursor`: [`Cursor`], by which a reader gets only what changed

mod cost;
mod cursor;
mod worker;

use std::collections::BTreeMap;
use std::fmt;

use ata_record::{
    EndState, EvaluationPoint, HeatColumn, Labels, LinkFigures, LogLine, RefusalKind, RunPhase, RunState, StepPoint,
};
use ata_types::Iteration;
use serde::{Deserialize, Serialize};

pub use cost::PolicyCost;
pub use cursor::Cursor;
pub use worker::{WorkerActivity, WorkerSnapshot};

/// A run at one moment, or the changes since an earlier one.
///
/// Each part that grows says from where on it replaces the part that a reader has; a complete snapshot has all parts from 0.
/// Times are in seconds, losses the problem's own (cross-entropies in nats), and accuracies from 0 to 1.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Snapshot {
    /// The run's place among those that are shown together.
    pub index: usize,
    /// The run's settings.
    pub run: RunDescription,
    /// What it is doing.
    pub phase: SnapshotPhase,
    /// Details of the phase, in words; may be empty.
    pub detail: String,
    /// The run's clock at its last event.
    pub time_s: f64,
    /// Sums and last values.
    pub totals: Totals,
    /// The course of the steps.
    pub steps: Course<StepPoint>,
    /// The course of the evaluations.
    pub evaluations: Course<EvaluationPoint>,
    /// The workers that changed, by number.
    pub workers: Vec<WorkerSnapshot>,
    /// Applied tasks by worker over time.
    pub heat: HeatPart,
    /// What policies cost on the times so far: this run first, then others in its place.
    pub costs: Vec<PolicyCost>,
    /// The allocation of the iteration under way.
    pub allocation: AllocationSummary,
    /// The last notable events.
    pub log: LogPart,
}

/// The settings of a run.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct RunDescription {
    /// Its name.
    pub run_id: String,
    /// Its user's name and tags for it.
    #[serde(default, skip_serializing_if = "Labels::is_empty")]
    pub labels: Labels,
    /// The policy, as `--policy` takes it.
    pub policy: String,
    /// B, the number of tasks per iteration.
    pub budget: u64,
    /// Number of iterations that it is to take.
    pub iterations: u64,
    /// Samples per task.
    pub task_batch: u32,
    /// Seed of everything random.
    pub seed: u64,
    /// The model, as `--model` takes it.
    pub model: String,
}

/// What a run is doing.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum SnapshotPhase {
    /// It has not begun, or waits for workers.
    Waiting,
    /// It iterates.
    Training,
    /// It evaluates on the test data, after the last step.
    Evaluating,
    /// All iterations are done, or a limit is reached.
    Finished,
    /// It was stopped before it was done.
    Stopped,
    /// Something went wrong.
    Failed,
}

/// Sums over a run, and last values.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Totals {
    /// Steps taken.
    pub iterations: u64,
    /// From the first assignment to the last step.
    pub runtime_s: f64,
    /// Time that workers spent on all iterations.
    pub total_worker_time_s: f64,
    /// Sum over iterations of the time from the assignment to the last result that the step needed.
    pub iteration_time_s: f64,
    /// Tasks that entered a step.
    pub tasks_applied: u64,
    /// Wasted tasks: begun, but in no step.
    pub tasks_wasted: u64,
    /// Worker-iterations with at least one task.
    pub employments: u64,
    /// Results that workers sent, each the gradient of one task or the sum of several.
    pub results: u64,
    /// Values of gradients that were too large for their unit, and were clamped.
    pub saturated: u64,
    /// Values of gradients that were not 0, and that the wire format `compact` rounded to 0.
    #[serde(default)]
    pub vanished: u64,
    /// Steps whose vectors were exchanged in shards.
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
    /// Mean loss of the last evaluation.
    pub test_loss: Option<f64>,
    /// Accuracy of the last evaluation, if the problem has classes.
    pub test_accuracy: Option<f64>,
    /// The problem's own metrics in it, by name; null is not a number.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub metrics: BTreeMap<String, Option<f64>>,
    /// The last iteration of the newest checkpoint.
    pub saved: Option<Iteration>,
    /// Price of the workers' presence, if any price is known.
    pub price: Option<f64>,
    /// Energy of the workers' work in watt-hours, if any power is known.
    pub energy_wh: Option<f64>,
    /// Refused results by kind.
    pub refused: BTreeMap<RefusalKind, u64>,
}

/// Points of a curve, each of one step or evaluation or, in a long run, of several.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Course<P> {
    /// Position of the first point.
    pub from: usize,
    /// The points.
    pub points: Vec<P>,
}

/// Columns of the heat map.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct HeatPart {
    /// Position of the first column.
    pub from: usize,
    /// The columns.
    pub columns: Vec<HeatColumn>,
}

/// Lines of the log.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct LogPart {
    /// Number of the first line, counted since the run began.
    pub from: usize,
    /// The lines.
    pub lines: Vec<LogLine>,
}

/// The allocation of an iteration, of which the workers have their shares.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct AllocationSummary {
    /// The iteration; 0 if none has begun.
    pub iteration: Iteration,
    /// The rule that made it.
    pub rule: String,
}

impl Snapshot {
    /// The complete picture of a run. `others` are the costs of other policies.
    pub fn of(run: &RunState, others: &[PolicyCost]) -> Self {
        Self::since(&mut Cursor::default(), run, others)
    }

    /// What a reader lacks whose position is `cursor`, which moves on.
    pub fn since(cursor: &mut Cursor, run: &RunState, others: &[PolicyCost]) -> Self {
        cursor.enter(run);
        let (steps_from, steps) = run.steps.since(&mut cursor.steps);
        let (evaluations_from, evaluations) = run.evaluations.since(&mut cursor.evaluations);
        let (heat_from, columns) = run.heat.since(&mut cursor.heat);
        let (log_from, lines) = run.log.since(&mut cursor.lines);
        Self {
            index: 0,
            run: RunDescription::of(run),
            phase: run.phase.into(),
            detail: detail(run),
            time_s: run.now_s,
            totals: Totals::of(run),
            steps: Course { from: steps_from, points: steps },
            evaluations: Course { from: evaluations_from, points: evaluations },
            workers: cursor.changed_workers(run),
            heat: HeatPart { from: heat_from, columns: columns.to_vec() },
            costs: costs(run, others),
            allocation: AllocationSummary { iteration: run.allocation.iteration, rule: run.allocation.rule.clone() },
            log: LogPart { from: log_from, lines },
        }
    }
}

impl RunDescription {
    fn of(run: &RunState) -> Self {
        Self {
            run_id: run.run_id.clone(),
            labels: run.labels.clone(),
            policy: run.policy.clone(),
            budget: run.budget,
            iterations: run.target_iterations,
            task_batch: run.task_batch,
            seed: run.seed,
            model: run.model.clone(),
        }
    }
}

impl SnapshotPhase {
    /// Its name, as in JSON.
    pub fn name(self) -> &'static str {
        match self {
            Self::Waiting => "waiting",
            Self::Training => "training",
            Self::Evaluating => "evaluating",
            Self::Finished => "finished",
            Self::Stopped => "stopped",
            Self::Failed => "failed",
        }
    }
}

impl fmt::Display for SnapshotPhase {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl From<RunPhase> for SnapshotPhase {
    fn from(phase: RunPhase) -> Self {
        match phase {
            RunPhase::Waiting { .. } => Self::Waiting,
            RunPhase::Training => Self::Training,
            RunPhase::Evaluating => Self::Evaluating,
            RunPhase::Over(EndState::Finished) => Self::Finished,
            RunPhase::Over(EndState::Stopped) => Self::Stopped,
            RunPhase::Over(EndState::Failed) => Self::Failed,
        }
    }
}

fn costs(run: &RunState, others: &[PolicyCost]) -> Vec<PolicyCost> {
    PolicyCost::of_run(run).map_or_else(Vec::new, |own| std::iter::once(own).chain(others.iter().cloned()).collect())
}

fn detail(run: &RunState) -> String {
    match (run.phase, &run.end) {
        (RunPhase::Waiting { present, needed }, _) if needed > 0 => format!("{present} of {needed} workers present"),
        (RunPhase::Over(_), Some((_, reason))) => reason.clone(),
        _ => String::new(),
    }
}

impl Totals {
    fn of(run: &RunState) -> Self {
        let spent = run.spent();
        Self {
            iterations: run.iterations,
            runtime_s: run.runtime_s(),
            total_worker_time_s: run.total_worker_time_s,
            iteration_time_s: run.iteration_time_s,
            tasks_applied: run.tasks_applied,
            tasks_wasted: run.tasks_wasted,
            employments: run.employments,
            results: run.results,
            saturated: run.saturated,
            vanished: run.vanished,
            sharded_steps: run.sharded_steps,
            links: run.links,
            first_loss: run.first_loss,
            last_loss: run.last_loss,
            learning_rate: run.learning_rate,
            gradient_norm: run.gradient_norm,
            test_loss: run.evaluation.map(|(loss, _)| loss),
            test_accuracy: run.evaluation.and_then(|(_, accuracy)| accuracy),
            metrics: run
                .metrics
                .iter()
                .map(|(name, value)| (name.clone(), value.is_finite().then_some(*value)))
                .collect(),
            saved: run.saved,
            price: spent.price,
            energy_wh: spent.energy_wh,
            refused: run.refused.clone(),
        }
    }
}

#[cfg(test)]
mod tests;
