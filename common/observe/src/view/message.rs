//! What a page is sent: first everything, then what changed.

use std::collections::BTreeMap;
use std::hash::{DefaultHasher, Hash, Hasher};

use ata_record::{RefusalKind, RunPhase, WorkerState};
use ata_types::{Iteration, WorkerId};
use serde::Serialize;

use super::heat::Column;
use super::thin::Seen;
use super::{Attendance, View};
use crate::explain::{Explained, explain};

/// What a page lacks of a run. Each part that grows says from where on it replaces what the page has.
#[derive(Debug, Serialize)]
pub struct Message {
    /// Which run it is, of those that the page shows.
    pub index: usize,
    run: Run,
    phase: &'static str,
    detail: String,
    /// The run's clock at its last event.
    time_s: f64,
    totals: Totals,
    steps: Points<7>,
    evaluations: Points<5>,
    /// Those that changed.
    workers: Vec<Worker>,
    heat: Columns,
    /// What other policies would have cost; those of this run come first.
    costs: Vec<CostRow>,
    allocation: Allocation,
    log: Lines,
}

#[derive(Debug, Serialize)]
#[expect(clippy::struct_field_names, reason = "as in the journal")]
struct Run {
    run_id: String,
    policy: String,
    budget: u64,
    iterations: u64,
    task_batch: u32,
    seed: u64,
    model: Option<String>,
}

#[derive(Debug, Serialize)]
struct Totals {
    iterations: u64,
    runtime_s: f64,
    total_worker_time_s: f64,
    iteration_time_s: f64,
    tasks_applied: u64,
    tasks_wasted: u64,
    employments: u64,
    results: u64,
    first_loss: Option<f64>,
    last_loss: Option<f64>,
    test_loss: Option<f64>,
    test_accuracy: Option<f64>,
    saved: Option<Iteration>,
    price: Option<f64>,
    energy_wh: Option<f64>,
    refused: BTreeMap<RefusalKind, u64>,
}

#[derive(Debug, Serialize)]
struct Points<const N: usize> {
    from: usize,
    #[serde(serialize_with = "rows")]
    points: Vec<[f64; N]>,
}

/// What is not a number becomes null.
fn rows<S: serde::Serializer, const N: usize>(points: &[[f64; N]], serializer: S) -> Result<S::Ok, S::Error> {
    serializer.collect_seq(points.iter().map(|point| &point[..]))
}

#[derive(Debug, Serialize)]
struct Columns {
    from: usize,
    columns: Vec<Column>,
}

#[derive(Debug, Serialize)]
struct Lines {
    from: usize,
    lines: Vec<(f64, &'static str, String)>,
}

#[derive(Debug, Serialize)]
struct Allocation {
    iteration: Iteration,
    rule: String,
}

/// What a policy costs, per iteration.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct CostRow {
    /// What it is called.
    pub label: String,
    /// The policy.
    pub policy: String,
    /// Seconds from the assignment to the last result.
    pub iteration_s: f64,
    /// Seconds that workers spend.
    pub worker_time_s: f64,
    /// Wasted tasks.
    pub wasted: f64,
    /// Whether it is that of the run itself.
    pub is_this: bool,
}

#[derive(Debug, Serialize)]
pub(crate) struct Worker {
    pub(crate) number: WorkerId,
    pub(crate) name: String,
    device: String,
    pub(crate) state: &'static str,
    pub(crate) tasks: u64,
    probe: bool,
    observed: u64,
    pub(crate) mean_s: Option<f64>,
    low_s: Option<f64>,
    high_s: Option<f64>,
    pub(crate) bound_s: Option<f64>,
    pub(crate) applied: u64,
    probes: u64,
    busy_share: f64,
    overhead_share: f64,
    idle_share: f64,
    failures: u64,
    rests: u64,
    losses: u64,
    rest_left_s: f64,
    price: Option<f64>,
    energy_wh: Option<f64>,
    why: String,
}

/// How much of a run a page has seen.
#[derive(Debug, Default)]
pub struct Cursor {
    /// Which view it was that the page has seen.
    view: u64,
    steps: Seen,
    evaluations: Seen,
    heat: Seen,
    lines: usize,
    /// A digest of each worker's row.
    workers: BTreeMap<WorkerId, u64>,
}

impl View {
    /// What a page lacks that has seen up to `cursor`, which moves on. `costs` are those of other policies.
    pub fn message(&self, index: usize, cursor: &mut Cursor, costs: &[CostRow]) -> Message {
        if cursor.view != self.identity {
            *cursor = Cursor { view: self.identity, ..Cursor::default() };
        }
        let (steps_from, steps) = self.steps.since(&mut cursor.steps);
        let (evaluations_from, evaluations) = self.evaluations.since(&mut cursor.evaluations);
        let (heat_from, columns) = self.heat.since(&mut cursor.heat);
        let (phase, detail) = self.phase();
        Message {
            index,
            run: self.run(),
            phase,
            detail,
            time_s: self.now_s,
            totals: self.totals(),
            steps: Points { from: steps_from, points: steps },
            evaluations: Points { from: evaluations_from, points: evaluations },
            workers: self.changed_workers(&mut cursor.workers),
            heat: Columns { from: heat_from, columns: columns.to_vec() },
            costs: self.costs(costs),
            allocation: Allocation { iteration: self.decided.iteration, rule: self.decided.rule.clone() },
            log: self.lines(&mut cursor.lines),
        }
    }

    fn run(&self) -> Run {
        Run {
            run_id: self.run_id.clone(),
            policy: self.state.policy.clone(),
            budget: self.state.budget,
            iterations: self.iterations,
            task_batch: self.task_batch,
            seed: self.state.seed,
            model: self.model.clone(),
        }
    }

    /// What the run is doing, and what more there is to say of that.
    pub fn phase(&self) -> (&'static str, String) {
        let reason = || self.state.end.as_ref().map_or_else(String::new, |(_, reason)| reason.clone());
        match self.state.phase {
            RunPhase::Waiting { needed: 0, .. } => ("waiting", String::new()),
            RunPhase::Waiting { present, needed } => ("waiting", format!("{present} of {needed} workers present")),
            RunPhase::Training => ("training", String::new()),
            RunPhase::Evaluating => ("evaluating", String::new()),
            RunPhase::Over(state) => (state.name(), reason()),
        }
    }

    fn totals(&self) -> Totals {
        let state = &self.state;
        let spent = self.spent_in_all();
        Totals {
            iterations: state.iterations,
            runtime_s: state.runtime_s(),
            total_worker_time_s: state.total_worker_time_s,
            iteration_time_s: state.iteration_time_s,
            tasks_applied: state.tasks_applied,
            tasks_wasted: state.tasks_wasted,
            employments: state.employments,
            results: state.results,
            first_loss: state.first_loss,
            last_loss: state.last_loss,
            test_loss: state.evaluation.map(|(loss, _)| loss),
            test_accuracy: state.evaluation.and_then(|(_, accuracy)| accuracy),
            saved: state.saved,
            price: spent.price,
            energy_wh: spent.energy_wh,
            refused: state.refused.clone(),
        }
    }

    fn costs(&self, others: &[CostRow]) -> Vec<CostRow> {
        let state = &self.state;
        let iterations = state.iterations as f64;
        if state.iterations == 0 {
            return Vec::new();
        }
        let this = CostRow {
            label: format!("{} (this run)", state.policy),
            policy: state.policy.clone(),
            iteration_s: state.iteration_time_s / iterations,
            worker_time_s: state.total_worker_time_s / iterations,
            wasted: state.tasks_wasted as f64 / iterations,
            is_this: true,
        };
        std::iter::once(this).chain(others.iter().cloned()).collect()
    }

    fn lines(&self, seen: &mut usize) -> Lines {
        let from = (*seen).max(self.dropped);
        *seen = self.dropped + self.log.len();
        Lines { from, lines: self.log.iter().skip(from - self.dropped).cloned().collect() }
    }

    fn changed_workers(&self, seen: &mut BTreeMap<WorkerId, u64>) -> Vec<Worker> {
        let rows = explain(self, None).workers.into_iter().map(|explained| self.row(explained));
        rows.filter(|row| {
            let mut hasher = DefaultHasher::new();
            serde_json::to_vec(row).unwrap_or_default().hash(&mut hasher);
            let digest = hasher.finish();
            seen.insert(row.number, digest) != Some(digest)
        })
        .collect()
    }

    pub(crate) fn row(&self, of: Explained) -> Worker {
        let absent = Attendance::default();
        let attendance = self.attendance.get(&of.worker).unwrap_or(&absent);
        let unknown = WorkerState::default();
        let known = self.state.workers.get(&of.worker).unwrap_or(&unknown);
        let present_s = attendance.present_s(self.now_s);
        let share = |seconds: f64| if present_s > 0.0 { rounded((seconds / present_s).min(1.0)) } else { 0.0 };
        let (busy_share, overhead_share) = (share(attendance.busy_s), share(attendance.overhead_s));
        let spent = self.spent(of.worker);
        let rest_left_s = known.rests_until_s.map_or(0.0, |until_s| (until_s - self.now_s).max(0.0));
        let is_over = self.is_over();
        let state = match &known.expelled {
            Some(_) => "expelled",
            None if !known.present => "away",
            None if rest_left_s > 0.0 => "resting",
            None if !is_over && (of.tasks > 0 || of.probe || self.decided.is_race) => "computing",
            None => "idle",
        };
        Worker {
            number: of.worker,
            name: of.name,
            device: known.device.clone(),
            state,
            tasks: of.tasks,
            probe: of.probe,
            observed: of.observed,
            mean_s: of.mean_s,
            low_s: of.low_s,
            high_s: of.high_s,
            bound_s: of.bound_s,
            applied: known.tasks_applied,
            probes: attendance.probes,
            busy_share,
            overhead_share,
            idle_share: rounded((1.0 - busy_share - overhead_share).max(0.0)),
            failures: attendance.failures,
            rests: attendance.rests,
            losses: attendance.losses,
            rest_left_s,
            price: spent.price,
            energy_wh: spent.energy_wh,
            why: of.why,
        }
    }
}

/// To a tenth of a percent: an idle worker's row changes no more often than its reader can see.
fn rounded(share: f64) -> f64 {
    (share * 1000.0).round() / 1000.0
}
