//! The state of a worker in a snapshot.

use std::fmt;

use ata_record::{RunState, Spending, WorkerState};
use serde::{Deserialize, Serialize};

use crate::explain::{WorkerShare, explain};

/// A worker at one moment. Times are in seconds.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct WorkerSnapshot {
    /// The worker's tasks in the current iteration, and the reasons for them.
    #[serde(flatten)]
    pub share: WorkerShare,
    /// The device that the worker computes on.
    pub device: String,
    /// The activity of the worker.
    pub state: WorkerActivity,
    /// The number of the worker's tasks that entered a step.
    pub applied: u64,
    /// The number of probes assigned to the worker.
    pub probes: u64,
    /// The time that the worker spent on tasks.
    pub total_busy_s: f64,
    /// The time of the worker's assignments that was not computation.
    pub total_overhead_s: f64,
    /// The share of the worker's presence that it spent on tasks, from 0 to 1.
    pub busy_share: f64,
    /// The share of the worker's presence that was overhead of its assignments.
    pub overhead_share: f64,
    /// The remaining share of the worker's presence.
    pub idle_share: f64,
    /// The number of tasks that failed, or whose results were refused.
    pub failures: u64,
    /// The number of times that the worker had to rest.
    pub rests: u64,
    /// The number of times that the worker was lost.
    pub losses: u64,
    /// The remaining time of the current rest; 0 if the worker does not rest.
    pub rest_left_s: f64,
    /// The mean number of processor cores that its process used lately, if it is known.
    #[serde(default)]
    pub cpu_cores: Option<f64>,
    /// The resident memory of its process, in bytes, if it is known.
    #[serde(default)]
    pub memory_bytes: Option<u64>,
    /// The rate of bytes on its connections to the coordinator lately, both ways together, if it is known.
    #[serde(default)]
    pub traffic_bytes_per_s: Option<f64>,
    /// What the worker has cost.
    #[serde(flatten)]
    pub spent: Spending,
}

/// The activity of a worker.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum WorkerActivity {
    /// The worker has tasks.
    Computing,
    /// The worker has no tasks.
    Idle,
    /// The worker gets no tasks for a while, after a failure.
    Resting,
    /// The worker is not present.
    Away,
    /// The worker failed too often, and may not come back.
    Expelled,
}

impl WorkerActivity {
    /// All activities.
    pub const ALL: [Self; 5] = [Self::Computing, Self::Idle, Self::Resting, Self::Away, Self::Expelled];

    /// Returns `true` if the worker is connected.
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

/// The text is the name in JSON.
impl fmt::Display for WorkerActivity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.serialize(f)
    }
}

impl WorkerSnapshot {
    /// Returns all workers of a run, in the order of their numbers.
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
            cpu_cores: worker.resources.and_then(|of| of.cpu_cores),
            memory_bytes: worker.resources.and_then(|of| of.memory_bytes),
            traffic_bytes_per_s: worker.resources.map(|of| of.bytes_per_s),
            spent: run.spent_on(worker),
        }
    }
}

/// Rounds to a tenth of a percent, so that an idle worker's row does not change more often than a reader can see.
fn rounded(share: f64) -> f64 {
    (share * 1000.0).round() / 1000.0
}
