//! Iterations that are rounds of local steps: their number of tasks follows from the time in which workers do not compute.

use std::collections::BTreeMap;

use ata_types::WorkerId;
use serde::{Deserialize, Serialize};

use super::{Lockstep, LockstepError, MAX_BUDGET, TimedShare, demand};
use crate::batches::MOST;
use crate::round_times::{RoundTime, RoundTimes, UTILIZATION};

/// The largest factors by which the number grows and shrinks at once. While an exchange takes far longer than a round, rounds that are as
/// long are worth reaching soon.
const MOST_GROWTH: f64 = 8.0;
const MOST_SHRINKAGE: f64 = 2.0;

/// The number of tasks of each round.
#[derive(Debug)]
pub(super) struct Rounds {
    least: u64,
    most: u64,
    times: RoundTimes,
    /// What was observed of the current round: the seconds in which workers did not compute, and those of an exchange beside it.
    waited: Option<(f64, f64)>,
}

/// The part of it that outlives the process.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct SavedRounds {
    tasks: u64,
    times: RoundTimes,
}

impl SavedRounds {
    pub(super) fn is_valid(&self) -> bool {
        (1..=MAX_BUDGET).contains(&self.tasks) && self.times.is_valid()
    }
}

impl Rounds {
    /// Ends a round of `tasks` tasks, of which these were observed, and returns the number of tasks of the next one.
    pub(super) fn next(&mut self, tasks: u64, observed: &[TimedShare]) -> u64 {
        let tasks_per_s = tasks_per_s(observed);
        if let Some((exchange_s, beside_s)) =
            self.waited.take().filter(|_| (f64::MIN_POSITIVE..=MOST).contains(&tasks_per_s))
        {
            self.times.add(RoundTime { tasks_per_s, exchange_s, beside_s });
        }
        let last = tasks as f64;
        let next =
            self.times.hiding(UTILIZATION).map_or(last, |next| next.clamp(last / MOST_SHRINKAGE, last * MOST_GROWTH));
        (next.round() as u64).clamp(self.least, self.most)
    }

    pub(super) fn save(&self, tasks: u64) -> SavedRounds {
        SavedRounds { tasks, times: self.times.clone() }
    }

    /// Continues from a saved state. Returns the number of tasks of the next round.
    pub(super) fn restore(&mut self, saved: SavedRounds) -> u64 {
        (self.times, self.waited) = (saved.times, None);
        saved.tasks.clamp(self.least, self.most)
    }
}

/// Returns the number of tasks that workers compute in a second, each as fast as in its own time.
fn tasks_per_s(observed: &[TimedShare]) -> f64 {
    let mut workers: BTreeMap<WorkerId, (u64, f64)> = BTreeMap::new();
    for TimedShare { worker, tasks, seconds } in observed {
        let of_worker = workers.entry(*worker).or_default();
        (of_worker.0, of_worker.1) = (of_worker.0 + tasks, of_worker.1 + seconds);
    }
    workers.values().filter(|(_, seconds)| *seconds > 0.0).map(|(tasks, seconds)| *tasks as f64 / seconds).sum()
}

impl Lockstep {
    /// Makes each iteration a round of local steps, whose number of tasks is chosen such that workers compute for nine tenths of the time:
    /// at least the budget, and at most `most`.
    pub fn with_rounds(self, most: u64) -> Result<Self, LockstepError> {
        let least = self.budget;
        demand((least..=MAX_BUDGET).contains(&most), || {
            format!("at most {most} tasks per round: expected {least}, the least number, to {MAX_BUDGET}")
        })?;
        Ok(Self { rounds: Some(Rounds { least, most, times: RoundTimes::default(), waited: None }), ..self })
    }

    /// Records for how long workers did not compute in the current round, and how long an exchange took while they did. The next decision
    /// takes it into account, together with the observations of the workers' shares.
    pub fn observe_exchange(&mut self, waited_s: f64, beside_s: f64) -> Result<(), LockstepError> {
        demand([waited_s, beside_s].iter().all(|seconds| (0.0..=MOST).contains(seconds)), || {
            format!("{waited_s} and {beside_s} seconds: expected finite numbers of at least 0")
        })?;
        let rounds = self.rounds.as_mut().ok_or_else(|| LockstepError("iterations are no rounds here".into()))?;
        rounds.waited = Some((waited_s, beside_s));
        Ok(())
    }
}
