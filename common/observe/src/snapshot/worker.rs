//! A worker of a snapshot.

use std::fmt;

use ata_record::{RunState, WorkerState};
use serde::{Deserialize, Serialize};

use crate::explain::{WorkerShare, explain};

/// A worker at one moment. Times are in seconds.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct WorkerSnapshot {
    /// Its tasks in the iteration under way, and the reasons for them.
    #[serde(flatten)]
    pub share: WorkerShare,
    /// The device it computes on.
    pub device: String,
    /// What it is doing.
    pub state: WorkerActivity,
    /// Its tasks that entered a step.
    pub applied: u64,
    /// Probes that it was given.
    pub probes: u64,
    /// Time that it spent on tasks.
    pub total_busy_s: f64,
    /// Time of its assignments that was not computation.
    pub total_overhead_s: f64,
    /// Share of its presence that it spent on tasks, from 0 to 1.
    pub busy_share: f64,
    /// Share of its presence that was overhead of its assignments.
    pub overhead_share: f64,
    /// The remaining share.
    pub idle_share: f64,
    /// Tasks that failed, or whose results were refused.
    pub failures: u64,
    /// How often it had to rest.
    pub rests: u64,
    /// How often it was lost.
    pub losses: u64,
    /// How long its present rest will last; 0 if it does not rest.
    pub rest_left_s: f64,
    /// Price of its presence, if it is known.
    pub price: Option<f64>,
    /// Energy of its work in watt-hours, if its power is known.
    pub energy_wh: Option<f64>,
}

/// What a worker is doing.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum WorkerActivity {
    /// It has tasks.
    Computing,
    /// It has none.
    Idle,
    /// It gets none for a while, after a failure.
    Resting,
    /// It is not present.
    Away,
    /// It failed too often, and may not come back.
    Expelled,
}

impl WorkerActivity {
    /// All of them.
    pub const ALL: [Self; 5] = [Self::Computing, Self::Idle, Self::Resting, Self::Away, Self::Expelled];

    /// Its name, as in JSON.
    pub fn name(self) -> &'static str {
        match self {
            Self::Computing => "computing",
            Self::Idle => "idle",
            Self::Resting => "resting",
            Self::Away => "away",
            Self::Expelled => "expelled",
        }
    }

    /// Whether the worker is connected.
    pub fn is_present(self) -> bool {
        !matches!(self, Self::Away | Self::Expelled)
    }

    fn of(worker: &WorkerState, has_work: bool, rest_left_s: f64) -> Self {
        match worker {
            WorkerState { expelled: Some(_), .. } => Self::Expelled,
            WorkerState { present: false, .. } => Self::Away,
            _ if rest_left_s > 0.0 => Self::Resting,
            _ if has_work => Self::Computing,
            _ => Self::Idle,
        }
    }
}

impl fmt::Display for WorkerActivity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl WorkerSnapshot {
    /// All workers of a run, by number.
    pub(super) fn all(run: &RunState) -> Vec<Self> {
        let shares = explain(run, None).workers.into_iter().map(|explanation| explanation.share);
        // An explanation has the same workers, in the same order.
        run.workers.values().zip(shares).map(|(worker, share)| Self::of(run, worker, share)).collect()
    }

    fn of(run: &RunState, worker: &WorkerState, share: WorkerShare) -> Self {
        let usage = &worker.usage;
        let present_s = usage.present_s(run.now_s);
        let part = |seconds: f64| if present_s > 0.0 { rounded((seconds / present_s).min(1.0)) } else { 0.0 };
        let (busy_share, overhead_share) = (part(usage.busy_s), part(usage.overhead_s));
        let spent = run.spent_on(worker);
        let rest_left_s = worker.rests_until_s.map_or(0.0, |until_s| (until_s - run.now_s).max(0.0));
        let has_work = !run.is_over() && (share.tasks > 0 || share.probe || run.allocation.is_race);
        Self {
            share,
            device: worker.device.clone(),
            state: WorkerActivity::of(worker, has_work, rest_left_s),
            applied: worker.tasks_applied,
            probes: usage.probes,
            total_busy_s: usage.busy_s,
            total_overhead_s: usage.overhead_s,
            busy_share,
            overhead_share,
            idle_share: rounded((1.0 - busy_share - overhead_share).max(0.0)),
            failures: usage.failures,
            rests: usage.rests,
            losses: usage.losses,
            rest_left_s,
            price: spent.price,
            energy_wh: spent.energy_wh,
        }
    }
}

/// To a tenth of a percent: an idle worker's row does not change more often than its reader can see.
fn rounded(share: f64) -> f64 {
    (share * 1000.0).round() / 1000.0
}
