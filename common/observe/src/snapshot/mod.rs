//! The view of a run that all outputs use: the page, `ata status`, `/metrics` and JSON.
//!
//! # Layout
//! - here: [`Snapshot`] and its parts; JSON has the same names
//! - `worker`: [`WorkerSnapshot`], a worker at one moment
//! - `rule`: the rules of allocations in words

mod rule;
mod worker;

use std::collections::BTreeMap;
use std::fmt;
use std::hash::{DefaultHasher, Hash, Hasher};

use ata_record::{
    EndState, EvaluationPoint, ExcludedFrom, Exclusion, HeatColumn, Labels, LogLine, ReadMark, RefusalKind, RunPhase,
    RunState, Spending, StepPoint, StepTotals, WorkerState,
};
use ata_types::{Iteration, WorkerId, seconds};
use rule::rule_in_words;
use serde::{Deserialize, Serialize};

use crate::efficiency::{Efficiency, ReleasedWorkers, releases};

pub use worker::{WorkerActivity, WorkerSnapshot};

/// A run at one moment, or the changes since an earlier one.
///
/// Each growing part states the position from which it replaces the part that a reader has; in a complete snapshot all parts begin at 0.
/// Times are in seconds, losses are the problem's own (cross-entropies in nats), and accuracies are from 0 to 1.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Snapshot {
    /// The run's position among the runs on the same page.
    pub index: usize,
    /// The run's settings.
    pub run: RunDescription,
    /// The phase of the run.
    pub phase: SnapshotPhase,
    /// A description of the phase; may be empty.
    pub detail: String,
    /// The run's clock at its last event.
    pub time_s: f64,
    /// The run's sums and last values.
    pub totals: Totals,
    /// The curve of the steps.
    pub steps: Course<StepPoint>,
    /// The curve of the evaluations.
    pub evaluations: Course<EvaluationPoint>,
    /// The workers that changed, in the order of their numbers.
    pub workers: Vec<WorkerSnapshot>,
    /// The applied tasks by worker over time.
    pub heat: HeatPart,
    /// The costs of policies on the times so far: first this run's policy, then others in its place.
    pub costs: Vec<PolicyCost>,
    /// The allocation of the current iteration.
    pub allocation: AllocationSummary,
    /// The last notable events.
    pub log: LogPart,
    /// What workers are excluded from, rests included. Only a complete snapshot has it.
    #[serde(default)]
    pub exclusions: Vec<Exclusion>,
}

/// The settings of a run, which [`RunState`] describes.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct RunDescription {
    pub run_id: String,
    #[serde(default, skip_serializing_if = "Labels::is_empty")]
    pub labels: Labels,
    pub policy: String,
    pub budget: u64,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub most_tasks: Option<u64>,
    /// The number of iterations of the whole run.
    pub iterations: u64,
    pub task_batch: u32,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub samples: Option<u64>,
    pub seed: u64,
    pub model: String,
}

/// The phase of a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum SnapshotPhase {
    /// The run has not begun, or waits for workers.
    Waiting,
    /// The run iterates.
    Training,
    /// The run evaluates on the test data, after the last step.
    Evaluating,
    /// All iterations are done, or a limit is reached.
    Finished,
    /// The run was stopped before it was done.
    Stopped,
    /// The run failed.
    Failed,
}

/// The sums over a run, and its last values, which [`RunState`] describes.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Totals {
    pub iterations: u64,
    /// How many of [`RunDescription::iterations`] are done: if their number of tasks is chosen, as many as have the tasks so far.
    pub progress: u64,
    /// The seconds from the first assignment to the last step.
    pub runtime_s: f64,
    #[serde(flatten)]
    pub steps: StepTotals,
    pub efficiency: Option<Efficiency>,
    /// The mean loss of the last evaluation.
    pub test_loss: Option<f64>,
    /// The accuracy of the last evaluation, if the problem has classes.
    pub test_accuracy: Option<f64>,
    /// The problem's own metrics in the last evaluation, by name; null stands for NaN.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub metrics: BTreeMap<String, Option<f64>>,
    #[serde(default)]
    pub skipped_evaluations: u64,
    pub saved: Option<Iteration>,
    #[serde(flatten)]
    pub spent: Spending,
    /// The workers that could be released, those that cost most for what they compute first, if they have prices.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub releases: Vec<ReleasedWorkers>,
    pub refused: BTreeMap<RefusalKind, u64>,
}

/// The points of a curve from a position on. Each point is one step or evaluation or, in a long run, several.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Course<P> {
    pub from: usize,
    pub points: Vec<P>,
}

/// The columns of the heat map from a position on.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct HeatPart {
    pub from: usize,
    pub columns: Vec<HeatColumn>,
}

/// The lines of the log from a number on, counted from the beginning of the run.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct LogPart {
    pub from: usize,
    pub lines: Vec<LogLine>,
}

/// The allocation of an iteration. The workers contain their shares.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct AllocationSummary {
    /// The iteration; 0 if none has begun.
    pub iteration: Iteration,
    pub rule: String,
    /// The rule in words.
    #[serde(default)]
    pub about: String,
}

/// The cost of a policy per iteration, measured in a run, or computed for the run's times.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct PolicyCost {
    /// The policy, in the form of `--policy`.
    pub policy: String,
    /// The policy's label in comparisons.
    pub label: String,
    /// The seconds from the assignment to the last result.
    pub iteration_s: f64,
    /// The seconds that workers spend on tasks.
    pub worker_time_s: f64,
    /// The number of wasted tasks.
    pub wasted: f64,
    /// The share of tasks whose time was resampled because the run recorded fewer tasks of the worker; 0 if the cost was measured.
    pub bootstrapped: f64,
    /// A remark on the comparison with the run's own policy; may be empty.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub note: String,
}

impl PolicyCost {
    /// Returns the cost of a run so far; `None` before the first step.
    pub fn of_run(run: &RunState) -> Option<Self> {
        let iterations = run.iterations as f64;
        (run.iterations > 0).then(|| Self {
            policy: run.policy.clone(),
            label: format!("{} (this run)", run.policy),
            iteration_s: run.totals.iteration_time_s / iterations,
            worker_time_s: run.totals.total_worker_time_s / iterations,
            wasted: run.totals.tasks_wasted as f64 / iterations,
            bootstrapped: 0.0,
            note: String::new(),
        })
    }
}

/// The position of a reader in a run: [`Snapshot::since`] returns the rest.
#[derive(Debug, Default)]
pub(crate) struct Cursor {
    /// The identity of the state that was read. A new state is read from its beginning.
    state: u64,
    steps: ReadMark,
    evaluations: ReadMark,
    heat: ReadMark,
    lines: usize,
    /// A digest of each worker's row.
    workers: BTreeMap<WorkerId, u64>,
}

impl Cursor {
    /// Starts from the beginning if the reader has read another state.
    fn enter(&mut self, run: &RunState) {
        if self.state != run.identity() {
            *self = Self { state: run.identity(), ..Self::default() };
        }
    }

    /// Returns the workers that have changed since the reader's last read.
    fn changed_workers(&mut self, run: &RunState) -> Vec<WorkerSnapshot> {
        let mut workers = WorkerSnapshot::all(run);
        workers.retain(|worker| {
            let mut hasher = DefaultHasher::new();
            serde_json::to_vec(worker).unwrap_or_default().hash(&mut hasher);
            let digest = hasher.finish();
            self.workers.insert(worker.share.number, digest) != Some(digest)
        });
        workers
    }
}

impl Snapshot {
    /// Returns the complete snapshot of a run. `others` are the costs of other policies.
    pub fn of(run: &RunState, others: &[PolicyCost]) -> Self {
        Self { exclusions: exclusions(run), ..Self::since(&mut Cursor::default(), run, others) }
    }

    /// Returns the changes since `cursor`, and advances it.
    pub(crate) fn since(cursor: &mut Cursor, run: &RunState, others: &[PolicyCost]) -> Self {
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
            costs: PolicyCost::of_run(run).into_iter().flat_map(|own| [&[own], others].concat()).collect(),
            allocation: AllocationSummary {
                iteration: run.allocation.iteration,
                rule: run.allocation.rule.clone(),
                about: rule_in_words(&run.allocation.rule),
            },
            log: LogPart { from: log_from, lines },
            exclusions: Vec::new(),
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
            most_tasks: run.most_tasks,
            iterations: run.target_iterations,
            task_batch: run.task_batch,
            samples: run.samples,
            seed: run.seed,
            model: run.model.clone(),
        }
    }
}

/// The text is the name in JSON.
impl fmt::Display for SnapshotPhase {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.serialize(f)
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

/// Returns what workers are excluded from: those that rest first, then the others, the earliest first.
fn exclusions(run: &RunState) -> Vec<Exclusion> {
    let rest = |worker: &WorkerState| {
        let left_s = worker.rests_until_s? - run.now_s;
        let why = format!("failures in a row: {}; it gets tasks again in {}", worker.strikes, seconds(left_s));
        let (name, machine) = (worker.name.clone(), worker.machine.clone());
        (left_s > 0.0).then_some(Exclusion { name, machine, from: ExcludedFrom::Tasks, why })
    };
    run.workers.values().filter_map(rest).chain(run.exclusions.iter().cloned()).collect()
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
        Self {
            iterations: run.iterations,
            progress: run.progress(),
            runtime_s: run.runtime_s(),
            steps: run.totals,
            efficiency: Efficiency::of(run),
            test_loss: run.evaluation.map(|(loss, _)| loss),
            test_accuracy: run.evaluation.and_then(|(_, accuracy)| accuracy),
            metrics: run
                .metrics
                .iter()
                .map(|(name, value)| (name.clone(), value.is_finite().then_some(*value)))
                .collect(),
            skipped_evaluations: run.skipped_evaluations,
            saved: run.saved,
            spent: run.spent(),
            releases: releases(run),
            refused: run.refused.clone(),
        }
    }
}

#[cfg(test)]
mod tests;
