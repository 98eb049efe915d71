//! A run as it is shown: its state, and its course in curves of bounded size.
//!
//! # Layout
//! - here: [`View`], made from a run's events
//! - `thin`: curves; `heat`: tasks by worker over time; `attendance`: how workers spent their time; `told`: events in words
//! - `message`: what a page is sent

mod attendance;
mod heat;
mod message;
mod thin;
mod told;

pub use message::{CostRow, Cursor, Message};

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use ata_record::{RunEvent, RunPhase, RunState};
use ata_types::{Iteration, TaskOutcome, WorkerId};
use serde::{Deserialize, Serialize};

pub(crate) use attendance::Attendance;
use heat::Heat;
use thin::{Curve, Merge};

/// Lines of the log that are kept: those of the last minutes, in a bad run.
const MOST_LINES: usize = 200;

/// What a worker costs. Its price counts while it is present, its power while it is busy.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct WorkerPrice {
    /// In a currency of the user's choice.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub price_per_hour: Option<f64>,
    /// Power under load.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub watts: Option<f64>,
}

/// Prices by worker name.
pub type Prices = BTreeMap<String, WorkerPrice>;

/// A decision of the policy, and on whom.
#[derive(Clone, Debug, Default)]
pub(crate) struct Decided {
    pub(crate) iteration: Iteration,
    pub(crate) rule: String,
    /// Tasks by worker, of those that have some.
    pub(crate) tasks: BTreeMap<WorkerId, u64>,
    pub(crate) probes: BTreeSet<WorkerId>,
    /// Whether every worker computes until enough results are there.
    pub(crate) is_race: bool,
}

/// A run so far. Its size is bounded by the workers.
#[derive(Clone, Debug)]
pub struct View {
    /// Tells views apart: one that was made anew is read from its beginning.
    identity: u64,
    prices: Arc<Prices>,
    pub(crate) state: RunState,
    pub(crate) run_id: String,
    pub(crate) model: Option<String>,
    pub(crate) iterations: u64,
    pub(crate) task_batch: u32,
    /// The time of the last event that has one.
    pub(crate) now_s: f64,
    pub(crate) decided: Decided,
    pub(crate) attendance: BTreeMap<WorkerId, Attendance>,
    /// Iteration, runtime so far, worker time so far, loss, time of the iteration, learning rate, wasted tasks.
    steps: Curve<7>,
    /// Iteration, runtime so far, worker time so far, loss, accuracy.
    evaluations: Curve<5>,
    heat: Heat,
    /// Applied tasks of the iteration under way.
    applied: BTreeMap<WorkerId, u64>,
    pub(crate) learning_rate: Option<f64>,
    pub(crate) gradient_norm: Option<f64>,
    log: VecDeque<(f64, &'static str, String)>,
    /// Lines of the log that were dropped.
    dropped: usize,
    /// What workers cost whose numbers others have now.
    gone: Spent,
}

/// Money and energy.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Spent {
    pub(crate) price: Option<f64>,
    pub(crate) energy_wh: Option<f64>,
}

impl Spent {
    fn add(&mut self, other: Self) {
        let sum = |a: Option<f64>, b: Option<f64>| a.zip(b).map(|(a, b)| a + b).or(a).or(b);
        *self = Self { price: sum(self.price, other.price), energy_wh: sum(self.energy_wh, other.energy_wh) };
    }
}

impl View {
    /// That of a run without any event, whose workers have these prices.
    pub fn new(prices: Prices) -> Self {
        use Merge::{Last, Mean};
        static MADE: AtomicU64 = AtomicU64::new(1);
        Self {
            identity: MADE.fetch_add(1, Ordering::Relaxed),
            prices: Arc::new(prices),
            state: RunState::default(),
            run_id: String::new(),
            model: None,
            iterations: 0,
            task_batch: 0,
            now_s: 0.0,
            decided: Decided::default(),
            attendance: BTreeMap::new(),
            steps: Curve::new([Last, Last, Last, Mean, Mean, Last, Mean]),
            evaluations: Curve::new([Last, Last, Last, Mean, Mean]),
            heat: Heat::default(),
            applied: BTreeMap::new(),
            learning_rate: None,
            gradient_norm: None,
            log: VecDeque::new(),
            dropped: 0,
            gone: Spent::default(),
        }
    }

    /// The state that the events add up to.
    pub fn state(&self) -> &RunState {
        &self.state
    }

    /// Whether the run's first event was heard.
    pub fn has_begun(&self) -> bool {
        !self.run_id.is_empty()
    }

    /// Whether the run is over.
    pub fn is_over(&self) -> bool {
        matches!(self.state.phase, RunPhase::Over(_))
    }

    /// Applies the next event.
    pub fn apply(&mut self, event: &RunEvent) {
        self.now_s = event.time_s().map_or(self.now_s, |time_s| self.now_s.max(time_s));
        self.before(event);
        self.state.apply(event);
        self.after(event);
        if let Some((kind, text)) = told::line(event, &self.state) {
            if self.log.len() == MOST_LINES {
                self.log.pop_front();
                self.dropped += 1;
            }
            self.log.push_back((self.now_s, kind, text));
        }
    }

    /// What an event means while the state is that before it.
    fn before(&mut self, event: &RunEvent) {
        match event {
            RunEvent::Run { run_id, iterations, task_batch, model, .. } => {
                self.run_id.clone_from(run_id);
                self.model = Some(model.clone());
                (self.iterations, self.task_batch) = (*iterations, *task_batch);
            }
            RunEvent::Resume { time_s, iterations, .. } => {
                self.iterations = *iterations;
                self.applied.clear();
                self.decided.tasks.clear();
                self.attendance.values_mut().for_each(|worker| worker.left(*time_s));
            }
            RunEvent::Join { time_s, worker, name, .. } => {
                if self.state.workers.get(worker).is_some_and(|known| known.name != *name) {
                    self.gone.add(self.spent(*worker));
                    self.attendance.remove(worker);
                }
                self.attendance.entry(*worker).or_default().joined(*time_s);
            }
            RunEvent::Task { worker, .. }
            | RunEvent::Loss { worker, .. }
            | RunEvent::Rest { worker, .. }
            | RunEvent::Expulsion { worker, .. } => self.attendance.entry(*worker).or_default().apply(event),
            _ => {}
        }
    }

    /// What an event means once the state has taken it in.
    fn after(&mut self, event: &RunEvent) {
        match event {
            RunEvent::Allocation { .. } => self.decide(event),
            RunEvent::Task { worker, outcome: TaskOutcome::Applied, .. } => {
                *self.applied.entry(*worker).or_default() += 1
            }
            RunEvent::Step { iteration, loss, runtime_s, wasted, learning_rate, gradient_norm, .. } => {
                (self.learning_rate, self.gradient_norm) = (Some(*learning_rate), *gradient_norm);
                let (runtime, spent) = (self.state.runtime_s(), self.state.total_worker_time_s);
                let (at, rate) = (iteration.number() as f64, *learning_rate);
                self.steps.add([at, runtime, spent, *loss, *runtime_s, rate, *wasted as f64]);
                self.heat.add(*iteration, std::mem::take(&mut self.applied));
            }
            RunEvent::Evaluation { iteration, loss, accuracy, .. } => {
                let (runtime, spent) = (self.state.runtime_s(), self.state.total_worker_time_s);
                let accuracy = accuracy.unwrap_or(f64::NAN);
                self.evaluations.add([iteration.number() as f64, runtime, spent, *loss, accuracy]);
            }
            _ => {}
        }
    }

    fn decide(&mut self, event: &RunEvent) {
        let RunEvent::Allocation { iteration, workers, allocation, probes, scores_s, rule, .. } = event else { return };
        let tasks = workers.iter().copied().zip(allocation.iter().copied()).filter(|(_, tasks)| *tasks > 0);
        self.decided = Decided {
            iteration: *iteration,
            rule: rule.clone(),
            tasks: tasks.collect(),
            probes: probes.iter().copied().collect(),
            is_race: ["racing", "asynchronous"].contains(&rule.as_str()),
        };
        for (worker, bound_s) in workers.iter().zip(scores_s).filter(|(_, bound_s)| **bound_s > 0.0) {
            self.attendance.entry(*worker).or_default().bound_s = Some(*bound_s);
        }
        for worker in probes {
            self.attendance.entry(*worker).or_default().probes += 1;
        }
    }

    /// What a worker has cost so far.
    pub(crate) fn spent(&self, worker: WorkerId) -> Spent {
        let price = self.state.workers.get(&worker).and_then(|known| self.prices.get(&known.name));
        let (Some(price), Some(attendance)) = (price, self.attendance.get(&worker)) else { return Spent::default() };
        Spent {
            price: price.price_per_hour.map(|price| price * attendance.present_s(self.now_s) / 3600.0),
            energy_wh: price.watts.map(|watts| watts * attendance.busy_s / 3600.0),
        }
    }

    /// What all workers have cost so far.
    pub(crate) fn spent_in_all(&self) -> Spent {
        let mut sum = self.gone;
        if !self.prices.is_empty() {
            self.state.workers.keys().for_each(|worker| sum.add(self.spent(*worker)));
        }
        sum
    }
}

#[cfg(test)]
mod tests;
