//! How long the last rounds took, and how many tasks a round must have for an exchange that does not depend on them.
//!
//! A round of A tasks takes A/R + x seconds: workers compute R tasks a second, and for x seconds they do not compute, while vectors and
//! parameters travel and the step is taken. Local steps leave x as it is, however many there are. So workers compute for a share u of the
//! time with A = R·x·u/(1 − u) tasks. If they go on with the next round e seconds before this one's exchange is over, they take R·e of its
//! steps from parameters without the others' last ones, which are at most a share s with A = R·e/s.

use std::collections::VecDeque;

use serde::{Deserialize, Serialize};

use crate::batches::MOST;

/// The share of the time in which workers are to compute, u. Beyond it, twice as many tasks gain a twentieth of the time at most.
pub(crate) const UTILIZATION: f64 = 0.9;

/// The number of rounds whose medians count: up to two of them may be unlike the others, such as those in which a worker was lost.
const REMEMBERED: usize = 5;

#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
#[expect(clippy::struct_field_names, reason = "units come last")]
pub(crate) struct RoundTime {
    /// The number of tasks that workers compute in a second, R.
    pub(crate) tasks_per_s: f64,
    /// Seconds in which the worker that computed for longest did not compute, x.
    pub(crate) exchange_s: f64,
    /// Seconds between the beginning of the next round and the end of this one's exchange, e.
    #[serde(default)]
    pub(crate) beside_s: f64,
}

/// The times of the last rounds, the latest first.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(transparent)]
pub(crate) struct RoundTimes(VecDeque<RoundTime>);

impl RoundTimes {
    pub(crate) fn add(&mut self, measured: RoundTime) {
        self.0.truncate(REMEMBERED - 1);
        self.0.push_front(measured);
    }

    pub(crate) fn medians(&self) -> Option<RoundTime> {
        let median = |of: fn(&RoundTime) -> f64| {
            let mut all: Vec<f64> = self.0.iter().map(of).collect();
            all.sort_by(f64::total_cmp);
            all.get(all.len() / 2).copied()
        };
        let tasks_per_s = median(|round| round.tasks_per_s)?;
        let [exchange_s, beside_s] = [median(|round| round.exchange_s)?, median(|round| round.beside_s)?];
        Some(RoundTime { tasks_per_s, exchange_s, beside_s })
    }

    /// Returns the number of tasks with which workers compute for a share of the time of [`UTILIZATION`], and take at most the share `ahead`
    /// of a round's steps before its parameters are there.
    pub(crate) fn hiding(&self, ahead: f64) -> Option<f64> {
        let RoundTime { tasks_per_s, exchange_s, beside_s } = self.medians()?;
        Some(tasks_per_s * (exchange_s * UTILIZATION / (1.0 - UTILIZATION)).max(beside_s / ahead))
    }

    pub(crate) fn is_valid(&self) -> bool {
        let is_time = |value: f64| (0.0..=MOST).contains(&value);
        let are_times = |of: &RoundTime| [of.tasks_per_s, of.exchange_s, of.beside_s].into_iter().all(is_time);
        self.0.len() <= REMEMBERED && self.0.iter().all(are_times)
    }
}
