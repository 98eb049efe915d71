//! Statistics of a worker's speed.

use serde::{Deserialize, Serialize};

use crate::batches::{BatchStatistics, CostLine, MOST};

/// Observed task times of one worker: K_i and T_i of the ATA paper (Algorithm 1), and further data that other policies need.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct WorkerStatistics {
    /// The number of observed tasks, K_i.
    pub observed: u64,
    /// Total seconds of those tasks, T_i.
    pub total_s: f64,
    /// Sum of the squares of those times, in s².
    pub squares_s2: f64,
    /// Total seconds spent on tasks that were cancelled, each of which would have taken longer. Without them, a worker that loses
    /// races would look faster than it is.
    pub censored_s: f64,
    /// Seconds of its first assignment that were not computation. They include the wait for whole parameters, which all workers download
    /// at the same time and then keep.
    pub first_overhead_s: Option<f64>,
    /// The number of later assignments whose overhead was observed.
    pub assignments: u64,
    /// Total seconds of those assignments that were not computation, but transport, waiting and encoding.
    pub overhead_s: f64,
    /// The batches of a worker that computes a lease as one batch. In the fields above, each task of a batch counts with
    /// an equal share of its time.
    pub batches: BatchStatistics,
}

impl WorkerStatistics {
    /// Records one task time, in seconds.
    pub fn observe(&mut self, busy_s: f64) {
        debug_assert!(busy_s.is_finite() && busy_s >= 0.0);
        self.observed += 1;
        self.total_s += busy_s;
        self.squares_s2 += busy_s * busy_s;
    }

    /// Records a lease that was computed as one batch, in seconds.
    pub fn observe_batch(&mut self, tasks: u64, busy_s: f64) {
        debug_assert!(tasks > 0 && busy_s.is_finite() && busy_s >= 0.0);
        self.observed += tasks;
        self.total_s += busy_s;
        self.squares_s2 += busy_s * busy_s / tasks as f64;
        self.batches.observe(tasks, busy_s);
    }

    /// Records a task that was cancelled after `elapsed_s` seconds.
    pub fn observe_censored(&mut self, elapsed_s: f64) {
        debug_assert!(elapsed_s.is_finite() && elapsed_s >= 0.0);
        self.censored_s += elapsed_s;
    }

    /// Records what an assignment cost apart from computation, in seconds.
    pub fn observe_overhead(&mut self, overhead_s: f64) {
        debug_assert!(overhead_s.is_finite() && overhead_s >= 0.0);
        if self.first_overhead_s.is_none() {
            self.first_overhead_s = Some(overhead_s);
        } else {
            self.assignments += 1;
            self.overhead_s += overhead_s;
        }
    }

    /// Returns the mean task time m_i = T_i / K_i, in seconds; `None` before the first observation.
    pub fn mean_s(&self) -> Option<f64> {
        (self.observed > 0).then(|| self.total_s / self.observed as f64)
    }

    /// Returns the mean seconds per assignment that are not computation, without the first one; 0 before the second.
    pub fn mean_overhead_s(&self) -> f64 {
        self.overhead_s / self.assignments.max(1) as f64
    }

    /// Returns the estimated cost o + a·s of a batch, without the overhead; `None` before the first batch.
    pub fn line(&self) -> Option<CostLine> {
        self.batches.line()
    }

    /// Returns an upper bound on the expected seconds of an assignment of this many tasks; `None` before the
    /// first observation.
    pub fn expected_s(&self, tasks: u64) -> Option<f64> {
        let one_by_one_s = tasks as f64 * self.mean_s()?;
        let overhead_s =
            if self.assignments > 0 { self.mean_overhead_s() } else { self.first_overhead_s.unwrap_or(0.0) };
        Some(overhead_s + self.batches.at_most_s(tasks).map_or(one_by_one_s, |s| s.max(one_by_one_s)))
    }

    /// Returns the coefficient of variation of the task times; 0 if it is unknown.
    pub fn variation(&self) -> f64 {
        let Some(mean_s) = self.mean_s().filter(|&mean_s| mean_s > 0.0) else { return 0.0 };
        (self.squares_s2 / self.observed as f64 - mean_s * mean_s).max(0.0).sqrt() / mean_s
    }

    /// Returns the sum of both statistics.
    #[must_use]
    pub fn plus(&self, other: &Self) -> Self {
        Self {
            observed: self.observed + other.observed,
            total_s: self.total_s + other.total_s,
            squares_s2: self.squares_s2 + other.squares_s2,
            censored_s: self.censored_s + other.censored_s,
            first_overhead_s: self.first_overhead_s.or(other.first_overhead_s),
            assignments: self.assignments + other.assignments,
            overhead_s: self.overhead_s + other.overhead_s,
            batches: self.batches.plus(&other.batches),
        }
    }

    /// Returns statistics with the same means that count as at most `observations` observations, so that they weigh less.
    #[must_use]
    pub fn capped(&self, observations: u64) -> Self {
        let share = |part: u64, whole: u64| if whole == 0 { 0.0 } else { part as f64 / whole as f64 };
        let (observed, assignments) = (self.observed.min(observations), self.assignments.min(observations));
        let tasks = share(observed, self.observed);
        Self {
            observed,
            total_s: self.total_s * tasks,
            squares_s2: self.squares_s2 * tasks,
            censored_s: self.censored_s * tasks,
            first_overhead_s: self.first_overhead_s,
            assignments,
            overhead_s: self.overhead_s * share(assignments, self.assignments),
            batches: self.batches.scaled(tasks),
        }
    }

    /// Returns whether the numbers can have been observed, to check statistics that come from a file.
    pub fn is_valid(&self) -> bool {
        let first_overhead_s = self.first_overhead_s.unwrap_or(0.0);
        let sums = [self.total_s, self.squares_s2 / MOST, self.censored_s, first_overhead_s, self.overhead_s];
        let counts = [self.observed, self.assignments].map(|count| count as f64);
        sums.into_iter().chain(counts).all(|sum| (0.0..=MOST).contains(&sum))
            && (self.observed > 0 || self.total_s == 0.0)
            && self.batches.is_valid()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn capping_keeps_the_means() {
        let statistics = WorkerStatistics {
            observed: 8,
            total_s: 4.0,
            squares_s2: 2.0,
            censored_s: 3.0,
            assignments: 2,
            overhead_s: 1.0,
            ..WorkerStatistics::default()
        };
        let expected = WorkerStatistics { observed: 4, total_s: 2.0, squares_s2: 1.0, censored_s: 1.5, ..statistics };
        assert_eq!(statistics.capped(4), expected);
        assert_eq!(WorkerStatistics::default().capped(4), WorkerStatistics::default());
    }

    /// Each task of a batch counts with an equal share of its time.
    #[test]
    fn a_batch_is_one_observation_of_several_tasks() {
        let mut statistics = WorkerStatistics::default();
        statistics.observe_batch(1, 3.0);
        statistics.observe_batch(4, 6.0);
        assert_eq!((statistics.observed, statistics.total_s, statistics.squares_s2), (5, 9.0, 9.0 + 4.0 * 2.25));
        assert_eq!(statistics.line(), Some(CostLine { fixed_s: 2.0, per_task_s: 1.0, has_slope: true }));
        assert_eq!([1, 10].map(|tasks| statistics.expected_s(tasks)), [Some(3.0), Some(18.0)]);
        assert_eq!(statistics.capped(1).line(), statistics.line());
    }
}
