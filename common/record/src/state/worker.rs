//! The part of a run's state that concerns each worker, and the cost of workers in money and energy.

use std::collections::{BTreeMap, VecDeque};

use ata_types::TaskOutcome;
use serde::{Deserialize, Serialize};

use crate::event::{RunEvent, WorkerLink, WorkerResources};

/// The state of a worker so far.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct WorkerState {
    /// The worker's name, which stays the same across sessions.
    pub name: String,
    /// The device it computes on.
    pub device: String,
    /// The machine that it runs on.
    pub machine: String,
    /// Whether it is present.
    pub present: bool,
    /// The time at which its last rest after a failure ends, which may be in the past.
    pub rests_until_s: Option<f64>,
    /// The number of its failures in a row when that rest began.
    pub strikes: u32,
    /// The number of its results that differ from those on which two other workers agree.
    pub mismatches: u64,
    /// The reason why it was expelled, if it was.
    pub expelled: Option<String>,
    /// The policy's last bound on its seconds per task, or its estimate.
    pub bound_s: Option<f64>,
    /// Its own link, once that was measured.
    pub link: Option<WorkerLink>,
    /// What its process used lately, if that is known.
    pub resources: Option<WorkerResources>,
    /// The number of its tasks that entered a step.
    pub tasks_applied: u64,
    /// Seconds that it spent on those tasks.
    pub busy_s: f64,
    /// Seconds of their assignments that were not computation, but transport, waiting and encoding.
    pub overhead_s: f64,
    /// Seconds of each of the last tasks that it completed.
    pub times_s: VecDeque<f64>,
    /// Seconds of each of its last assignments that were not computation.
    pub overheads_s: VecDeque<f64>,
    /// The use that it made of its time.
    pub usage: Usage,
}

/// The use that a worker made of its time, regardless of what became of its tasks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Usage {
    /// The time at which its present session began; `None` if it is not present.
    since_s: Option<f64>,
    /// Seconds for which it was present in earlier sessions.
    earlier_s: f64,
    /// Seconds that it spent on tasks.
    pub busy_s: f64,
    /// Seconds of its assignments that were not computation.
    pub overhead_s: f64,
    /// The number of tasks that it completed.
    pub completed: u64,
    /// The number of tasks that failed or whose results were refused.
    pub failures: u64,
    /// The number of times that it was lost.
    pub losses: u64,
    /// The number of times that it had to rest.
    pub rests: u64,
    /// The number of probes that it was given.
    pub probes: u64,
}

impl WorkerState {
    /// Returns the mean seconds of its tasks that entered a step, if any did.
    pub fn mean_task_s(&self) -> Option<f64> {
        (self.tasks_applied > 0).then(|| self.busy_s / self.tasks_applied as f64)
    }

    /// Adds the times of a task, and keeps `most` times of each kind.
    pub(super) fn completed(&mut self, busy_s: f64, overhead_s: Option<f64>, most: usize) {
        self.times_s.push_back(busy_s);
        self.overheads_s.extend(overhead_s);
        self.forget_times(most);
    }

    /// Drops the oldest times beyond `most` of each kind.
    pub(super) fn forget_times(&mut self, most: usize) {
        for times_s in [&mut self.times_s, &mut self.overheads_s] {
            times_s.drain(..times_s.len().saturating_sub(most));
        }
    }
}

impl Usage {
    /// Returns the seconds for which the worker was present until `now_s`.
    pub fn present_s(&self, now_s: f64) -> f64 {
        self.earlier_s + self.since_s.map_or(0.0, |since_s| (now_s - since_s).max(0.0))
    }

    pub(super) fn arrive(&mut self, now_s: f64) {
        self.leave(now_s);
        self.since_s = Some(now_s);
    }

    pub(super) fn leave(&mut self, now_s: f64) {
        self.earlier_s = self.present_s(now_s);
        self.since_s = None;
    }

    pub(super) fn apply(&mut self, event: &RunEvent) {
        match event {
            RunEvent::Task { busy_s, censored_s, overhead_s, outcome, .. } => {
                self.busy_s += busy_s.or(*censored_s).unwrap_or(0.0);
                self.overhead_s += overhead_s.unwrap_or(0.0);
                self.completed += u64::from(busy_s.is_some());
                self.failures += u64::from(is_failure(*outcome));
            }
            RunEvent::Loss { time_s, .. } => {
                self.leave(*time_s);
                self.losses += 1;
            }
            RunEvent::Expulsion { time_s, .. } => self.leave(*time_s),
            RunEvent::Rest { .. } => self.rests += 1,
            _ => {}
        }
    }
}

/// Returns whether the worker is the cause that the task does not count.
fn is_failure(outcome: TaskOutcome) -> bool {
    matches!(outcome, TaskOutcome::Failed | TaskOutcome::Mismatched | TaskOutcome::Disputed)
}

/// The price and the power of a worker. The price counts while it is present, the power while it is busy.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct WorkerPrice {
    /// Price in a currency of the user's choice.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub price_per_hour: Option<f64>,
    /// Power under load, in watts.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub watts: Option<f64>,
}

/// Prices by worker name.
pub type Prices = BTreeMap<String, WorkerPrice>;

/// Money and energy spent; `None` if no price is known.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Spending {
    /// Money, in the currency of the prices.
    pub price: Option<f64>,
    /// Energy in watt-hours.
    pub energy_wh: Option<f64>,
}

impl Spending {
    /// Returns what a worker has cost until `now_s`.
    pub(super) fn of(worker: &WorkerState, prices: &Prices, now_s: f64) -> Self {
        let Some(price) = prices.get(&worker.name) else { return Self::default() };
        Self {
            price: price.price_per_hour.map(|price| price * worker.usage.present_s(now_s) / 3600.0),
            energy_wh: price.watts.map(|watts| watts * worker.usage.busy_s / 3600.0),
        }
    }

    pub(super) fn add(&mut self, other: Self) {
        let sum = |a: Option<f64>, b: Option<f64>| a.zip(b).map(|(a, b)| a + b).or(a).or(b);
        *self = Self { price: sum(self.price, other.price), energy_wh: sum(self.energy_wh, other.energy_wh) };
    }
}
