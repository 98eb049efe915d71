//! The state that a run's events add up to: progress, costs, workers, and its course in curves of bounded size.
//!
//! # Layout
//! - here: [`RunState`], made from a run's events
//! - `allocation`: [`Allocation`], that of the current iteration
//! - `worker`: [`WorkerState`], and the cost of workers; `excluded`: what workers are excluded from
//! - `links`: [`LinkFigures`], the time that vectors take
//! - `course`: [`StepTotals`], and curves of steps and evaluations with a bounded number of points (`curve`)
//! - `heat`: tasks by worker over time
//! - `saved`: the state in checkpoints and in [`RunEvent::Folded`]
//! - `log`: notable events in words; `phase`: [`RunPhase`], and how far a run is

mod allocation;
mod course;
mod curve;
mod excluded;
mod heat;
mod links;
mod log;
mod phase;
mod saved;
mod worker;

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use ata_types::{Iteration, TaskOutcome, WorkerId};
use serde::{Deserialize, Serialize};

use crate::event::{EndState, RefusalKind, RunEvent, RunStart, StepEvent, named_numbers};
use crate::labels::Labels;
pub use allocation::Allocation;
pub use course::{EvaluationCurve, EvaluationPoint, StepCurve, StepPoint, StepTotals};
pub use curve::ReadMark;
pub use excluded::{ExcludedFrom, Exclusion, MAX_EXCLUSIONS};
pub use heat::{HeatColumn, HeatMap};
pub use links::LinkFigures;
pub use log::{Log, LogKind, LogLine};
pub use phase::RunPhase;
pub use worker::{Prices, Spending, Usage, WorkerPrice, WorkerState};

/// The state of a run so far. Its size is bounded by the workers and the budget.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RunState {
    #[serde(skip)]
    identity: Identity,
    #[serde(skip)]
    prices: Arc<Prices>,
    /// Whether it keeps only as many times of each worker as a checkpoint holds.
    #[serde(skip)]
    is_for_checkpoints: bool,
    /// The run's id; empty until it begins.
    pub run_id: String,
    /// The user's name and tags for the run.
    pub labels: Labels,
    /// The model, as `--model` takes it.
    pub model: String,
    /// The policy, as `--policy` takes it.
    pub policy: String,
    /// B, the number of tasks per iteration.
    pub budget: u64,
    /// The most tasks of an iteration, if the number is chosen as the run goes on; then B is the first.
    #[serde(default)]
    pub most_tasks: Option<u64>,
    /// If so, the numbers of tasks so far, each with the number of iterations that had it.
    #[serde(default)]
    pub budgets: Vec<(u64, u64)>,
    /// The number of iterations that the run is to take, or for whose tasks it goes on if their number is chosen.
    pub target_iterations: u64,
    /// The number of samples per task.
    pub task_batch: u32,
    /// The number of training samples, if it is known.
    pub samples: Option<u64>,
    /// The seed of all randomness.
    pub seed: u64,
    /// The phase that the run is in.
    pub phase: RunPhase,
    /// The run's clock at its last event, in seconds.
    pub now_s: f64,
    /// The number of steps taken.
    pub iterations: u64,
    /// The number of the last iteration with a step; 0 if there is none.
    pub last_step: u64,
    /// What the steps add up to.
    #[serde(flatten)]
    pub totals: StepTotals,
    /// The times at which the first iteration began and at which the last step was taken.
    pub span_s: Option<(f64, f64)>,
    /// The allocation of the current iteration.
    pub allocation: Allocation,
    /// The workers by number. A number that was reassigned stands for its last worker.
    pub workers: BTreeMap<WorkerId, WorkerState>,
    /// What workers are excluded from until the operator lifts it, the latest last.
    pub exclusions: VecDeque<Exclusion>,
    /// The number of tasks whose computation took longer than their emulated time.
    pub tasks_outlasted: u64,
    /// The number of refusals by kind.
    pub refused: BTreeMap<RefusalKind, u64>,
    /// Loss and accuracy of the last evaluation; no accuracy if the problem has no classes.
    #[serde(deserialize_with = "saved::evaluation")]
    pub evaluation: Option<(f64, Option<f64>)>,
    /// The problem's own metrics in the last evaluation.
    #[serde(deserialize_with = "named_numbers")]
    pub metrics: BTreeMap<String, f64>,
    /// The iteration after whose step the last evaluation was made.
    pub evaluated: Option<Iteration>,
    /// The number of evaluations that were due, and were left out because one was in progress or failed.
    pub skipped_evaluations: u64,
    /// The lowest loss of an evaluation.
    pub lowest_test_loss: Option<f64>,
    /// The last iteration of the newest checkpoint.
    pub saved: Option<Iteration>,
    /// The state in which the run ended, and the reason.
    pub end: Option<(EndState, String)>,
    /// The course of the steps.
    pub steps: StepCurve,
    /// The course of the evaluations.
    pub evaluations: EvaluationCurve,
    /// The number of tasks by worker over time.
    pub heat: HeatMap,
    /// The last notable events.
    pub log: Log,
    /// The cost of workers whose numbers now belong to other workers.
    departed: Spending,
    /// The applied tasks of the current iteration.
    #[serde(skip)]
    pending: Vec<AppliedTask>,
}

/// Distinguishes states: a reader that has read another state reads a new one from its beginning.
#[derive(Clone, Debug)]
struct Identity(u64);

impl Default for Identity {
    fn default() -> Self {
        static COUNT: AtomicU64 = AtomicU64::new(1);
        Self(COUNT.fetch_add(1, Ordering::Relaxed))
    }
}

#[derive(Clone, Copy, Debug)]
struct AppliedTask {
    worker: WorkerId,
    busy_s: f64,
    overhead_s: f64,
}

impl RunState {
    /// Creates the state of a run without any event. `prices` are those of its workers.
    pub fn new(prices: Prices) -> Self {
        Self { prices: Arc::new(prices), ..Self::default() }
    }

    /// Identifies this state and its clones in this process.
    pub fn identity(&self) -> u64 {
        self.identity.0
    }

    /// Records that the run's process is gone without having given a reason.
    pub fn abandon(&mut self) {
        let reason = "its process ended without a word; --resume goes on from its last checkpoint";
        (self.phase, self.end) = (RunPhase::Over(EndState::Failed), Some((EndState::Failed, reason.into())));
    }

    /// Returns the number of workers present.
    pub fn present(&self) -> usize {
        self.workers.values().filter(|worker| worker.present).count()
    }

    /// Returns the largest number that a worker has had.
    pub fn last_worker(&self) -> u32 {
        self.workers.last_key_value().map_or(0, |(id, _)| id.number())
    }

    /// Returns the price of a worker's presence for an hour, if it has one.
    pub fn price_per_hour(&self, worker: &WorkerState) -> Option<f64> {
        self.prices.get(&worker.name)?.price_per_hour
    }

    /// Returns what a worker has cost so far.
    pub fn spent_on(&self, worker: &WorkerState) -> Spending {
        Spending::of(worker, &self.prices, self.now_s)
    }

    /// Returns what all workers have cost so far.
    pub fn spent(&self) -> Spending {
        let mut sum = self.departed;
        if !self.prices.is_empty() {
            self.workers.values().for_each(|worker| sum.add(self.spent_on(worker)));
        }
        sum
    }

    /// Applies the next event.
    pub fn apply(&mut self, event: &RunEvent) {
        self.now_s = event.time_s().map_or(self.now_s, |time_s| self.now_s.max(time_s));
        match event {
            RunEvent::Run(run) => self.begin(run),
            RunEvent::Resume { .. } => self.resume(event),
            RunEvent::Folded { state, .. } => self.replace(state),
            RunEvent::Wait { present, needed, .. } => {
                self.phase = RunPhase::Waiting { present: *present, needed: *needed };
            }
            RunEvent::Join { .. } => self.join(event),
            RunEvent::Loss { worker, .. } => {
                let worker = self.worker(*worker);
                (worker.present, worker.resources) = (false, None);
                worker.usage.apply(event);
            }
            RunEvent::Rest { time_s, worker, rest_s, strikes } => {
                let worker = self.worker(*worker);
                (worker.rests_until_s, worker.strikes) = (Some(time_s + rest_s), *strikes);
                worker.usage.apply(event);
            }
            RunEvent::Expulsion { worker: id, why, .. } => {
                let worker = self.worker(*id);
                worker.expelled = Some(why.clone());
                worker.usage.apply(event);
                self.exclude(*id, ExcludedFrom::Run, why);
            }
            RunEvent::Forgive { name, .. } => self.forgive(name),
            RunEvent::Allocation { .. } => self.allocate(event),
            RunEvent::Task { .. } => self.end_task(event),
            RunEvent::Step(step) => self.step(step),
            RunEvent::Links { .. } => self.measure_links(event),
            RunEvent::Resources { workers, .. } => {
                for of in workers {
                    self.worker(of.worker).resources = Some(*of);
                }
            }
            RunEvent::Refusal { .. } => self.refuse(event),
            RunEvent::Evaluating { .. } => self.phase = RunPhase::Evaluating,
            RunEvent::Evaluation { .. } => self.evaluate(event),
            RunEvent::End { state, reason, .. } => {
                self.phase = RunPhase::Over(*state);
                self.end = Some((*state, reason.clone()));
            }
            RunEvent::Checkpoint { iteration, .. } => self.saved = Some(*iteration),
            RunEvent::CheckpointFailed { .. } => {}
        }
        if let Some((kind, text)) = log::describe(event, self) {
            self.log.add(LogLine { time_s: self.now_s, kind, text });
        }
    }

    fn worker(&mut self, id: WorkerId) -> &mut WorkerState {
        self.workers.entry(id).or_default()
    }

    fn begin(&mut self, run: &RunStart) {
        self.samples = run.samples;
        self.run_id.clone_from(&run.run_id);
        self.labels.clone_from(&run.labels);
        self.model.clone_from(&run.model);
        self.policy.clone_from(&run.policy);
        (self.budget, self.most_tasks, self.target_iterations) = (run.budget, run.most_tasks, run.iterations);
        (self.task_batch, self.seed) = (run.task_batch, run.seed);
    }

    fn join(&mut self, event: &RunEvent) {
        let RunEvent::Join { time_s, worker: id, name, device, machine } = event else { return };
        let id = *id;
        if let Some(former) = self.workers.get(&id).filter(|known| known.name != *name) {
            let spent = self.spent_on(former);
            self.departed.add(spent);
            self.workers.remove(&id);
        }
        let worker = self.worker(id);
        (worker.name, worker.device, worker.machine) = (name.clone(), device.clone(), machine.clone());
        worker.present = true;
        worker.usage.arrive(*time_s);
    }

    fn end_task(&mut self, event: &RunEvent) {
        let &RunEvent::Task { worker: id, busy_s, overhead_s, outlasted, outcome, .. } = event else { return };
        let kept = self.times_kept();
        let worker = self.worker(id);
        worker.usage.apply(event);
        let Some(busy_s) = busy_s else { return };
        worker.completed(busy_s, overhead_s, kept);
        self.tasks_outlasted += outlasted;
        if outcome == TaskOutcome::Applied {
            self.pending.push(AppliedTask { worker: id, busy_s, overhead_s: overhead_s.unwrap_or(0.0) });
        }
    }

    fn step(&mut self, step: &StepEvent) {
        self.iterations += 1;
        self.last_step = step.iteration.number();
        if self.most_tasks.is_some() {
            match self.budgets.last_mut() {
                Some((last, iterations)) if *last == step.tasks => *iterations += 1,
                _ => self.budgets.push((step.tasks, 1)),
            }
        }
        self.totals.add(step);
        let (_, last) = self.span_s.get_or_insert((step.time_s - step.runtime_s, step.time_s));
        *last = step.time_s;
        let mut applied = BTreeMap::new();
        for AppliedTask { worker: id, busy_s, overhead_s } in std::mem::take(&mut self.pending) {
            *applied.entry(id).or_default() += 1;
            let worker = self.worker(id);
            worker.tasks_applied += 1;
            worker.busy_s += busy_s;
            worker.overhead_s += overhead_s;
        }
        self.heat.add(step.iteration, applied);
        self.steps.add(StepPoint {
            iteration: step.iteration.number() as f64,
            runtime_s: self.runtime_s(),
            total_worker_time_s: self.totals.total_worker_time_s,
            loss: step.loss,
            iteration_s: step.runtime_s,
            learning_rate: step.learning_rate,
            wasted: step.wasted as f64,
        });
    }
}

#[cfg(test)]
mod tests;
