//! Leases that are computed as one batch: a worker's batch of a tasks costs o + a·s seconds.

use serde::{Deserialize, Serialize};

/// The largest count, and the longest time in seconds: thirty million years. Sums and products of a few such numbers are
/// finite, and counts can still grow by one.
pub(crate) const MOST: f64 = 1e15;

/// The batches of one worker, as the sums that least squares needs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct BatchStatistics {
    /// The number of batches, which is a fraction once they weigh less.
    pub count: f64,
    /// The number of tasks, Σa.
    pub tasks: f64,
    /// Σa².
    pub squared_tasks: f64,
    /// Total seconds, Σt.
    pub total_s: f64,
    /// Σa·t.
    pub task_seconds: f64,
    /// Σt².
    pub squares_s2: f64,
    /// The largest number of tasks in a batch.
    pub largest: u64,
}

/// The cost of a batch: o + a·s seconds for a tasks.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct CostLine {
    /// Seconds per batch, o.
    pub fixed_s: f64,
    /// Seconds per task, s.
    pub per_task_s: f64,
    /// Whether batches of different sizes were observed. If not, only the cost of that one size is known, and the line is
    /// the lower bound for larger ones: s = 0.
    pub has_slope: bool,
}

impl CostLine {
    /// Returns the line of least squares with o ≥ 0 and s ≥ 0 through points with these means. `slope` is that of the line without these
    /// bounds, or `None` if all sizes are the same, and `from_origin_s` that of the best line through the origin.
    pub(crate) fn bounded((tasks, seconds): (f64, f64), slope: Option<f64>, from_origin_s: f64) -> Self {
        let (per_task_s, has_slope) = (slope.unwrap_or(0.0).max(0.0), slope.is_some());
        let fixed_s = seconds - per_task_s * tasks;
        let (fixed_s, per_task_s) = if fixed_s < 0.0 { (0.0, from_origin_s) } else { (fixed_s, per_task_s) };
        Self { fixed_s, per_task_s, has_slope }
    }

    /// Returns the seconds of a batch.
    pub fn at_s(self, tasks: u64) -> f64 {
        self.fixed_s + tasks as f64 * self.per_task_s
    }
}

/// Sizes count as different if their variance is more than this share of their squared mean: far above the rounding of
/// sums, and below that of one small batch among millions.
const LEAST_SPREAD: f64 = 1e-12;

impl BatchStatistics {
    pub(crate) fn observe(&mut self, tasks: u64, busy_s: f64) {
        let a = tasks as f64;
        self.count += 1.0;
        self.tasks += a;
        self.squared_tasks += a * a;
        self.total_s += busy_s;
        self.task_seconds += a * busy_s;
        self.squares_s2 += busy_s * busy_s;
        self.largest = self.largest.max(tasks);
    }

    /// Fits the line of least squares with o ≥ 0 and s ≥ 0; `None` before the first batch.
    pub fn line(&self) -> Option<CostLine> {
        if self.count <= 0.0 {
            return None;
        }
        let (tasks, seconds) = (self.tasks / self.count, self.total_s / self.count);
        let variance = self.squared_tasks / self.count - tasks * tasks;
        let covariance = self.task_seconds / self.count - tasks * seconds;
        let slope = (variance > LEAST_SPREAD * tasks * tasks).then_some(covariance / variance);
        Some(CostLine::bounded((tasks, seconds), slope, self.task_seconds / self.squared_tasks))
    }

    /// Returns an upper bound on a batch's seconds, without noise: the line if it is known, otherwise the time in proportion to its
    /// tasks, or the time of a larger batch.
    pub(crate) fn at_most_s(&self, tasks: u64) -> Option<f64> {
        let line = self.line()?;
        let growth = if line.has_slope { 1.0 } else { (tasks as f64 * self.count / self.tasks).max(1.0) };
        Some(line.at_s(tasks) * growth)
    }

    pub(crate) fn plus(&self, other: &Self) -> Self {
        Self {
            count: self.count + other.count,
            tasks: self.tasks + other.tasks,
            squared_tasks: self.squared_tasks + other.squared_tasks,
            total_s: self.total_s + other.total_s,
            task_seconds: self.task_seconds + other.task_seconds,
            squares_s2: self.squares_s2 + other.squares_s2,
            largest: self.largest.max(other.largest),
        }
    }

    /// Returns statistics with the same line, but only this share of the weight.
    pub(crate) fn scaled(&self, share: f64) -> Self {
        Self {
            count: self.count * share,
            tasks: self.tasks * share,
            squared_tasks: self.squared_tasks * share,
            total_s: self.total_s * share,
            task_seconds: self.task_seconds * share,
            squares_s2: self.squares_s2 * share,
            largest: self.largest,
        }
    }

    pub(crate) fn is_valid(&self) -> bool {
        let Self { count, tasks, squared_tasks, total_s, task_seconds, squares_s2, largest } = *self;
        let counts = [count, tasks, squared_tasks / MOST, largest as f64].map(|count| (0.0..=MOST).contains(&count));
        // The checks are on means, because a share of a batch's weight may be left.
        let times = [(total_s, count), (task_seconds, tasks), (squares_s2 / MOST, count)];
        let bounded = times.map(|(sum, count)| (0.0..=count * MOST).contains(&sum));
        let possible = tasks >= count && squared_tasks >= tasks && largest >= 1;
        counts.into_iter().chain(bounded).all(|good| good) && (possible || *self == Self::default())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// Returns Σ(t − o − a·s)².
    fn deviations_s2(of: &BatchStatistics, line: CostLine) -> f64 {
        let CostLine { fixed_s: o, per_task_s: s, .. } = line;
        let explained = 2.0 * (o * of.total_s + s * of.task_seconds);
        let squares = o * o * of.count + 2.0 * o * s * of.tasks + s * s * of.squared_tasks;
        (of.squares_s2 - explained + squares).max(0.0)
    }

    fn observed(batches: impl IntoIterator<Item = (u64, f64)>) -> BatchStatistics {
        let mut statistics = BatchStatistics::default();
        for (tasks, busy_s) in batches {
            statistics.observe(tasks, busy_s);
        }
        statistics
    }

    proptest! {
        #[test]
        fn exact_without_noise(
            fixed_s in prop_oneof![Just(0.0), 1e-3f64..1.0],
            per_task_s in prop_oneof![Just(0.0), 1e-5f64..1e-2],
            sizes in prop::collection::vec(1u64..5000, 2..40),
        ) {
            let batches = observed(sizes.iter().map(|&tasks| (tasks, fixed_s + tasks as f64 * per_task_s)));
            let line = batches.line().unwrap();
            prop_assert_eq!(line.has_slope, sizes.iter().any(|size| *size != sizes[0]));
            for &tasks in &sizes {
                let truth = fixed_s + tasks as f64 * per_task_s;
                prop_assert!((line.at_s(tasks) - truth).abs() <= 1e-6 * truth, "{line:?} at {tasks}: {truth}");
            }
            prop_assert!(deviations_s2(&batches, line) <= 1e-9 * batches.squares_s2);
        }

        /// Neither cost is negative, whatever was measured, and no other line with non-negative costs fits better.
        #[test]
        fn the_best_of_all_lines(
            batches in prop::collection::vec((1u64..300, 0.0f64..1.0), 1..30),
            (o, s) in (0.0f64..1.0, 0.0f64..0.1),
        ) {
            let batches = observed(batches);
            let line = batches.line().unwrap();
            prop_assert!(line.fixed_s >= 0.0 && line.per_task_s >= 0.0);
            let other = CostLine { fixed_s: o, per_task_s: s, has_slope: true };
            let (best, worse) = (deviations_s2(&batches, line), deviations_s2(&batches, other));
            prop_assert!(!line.has_slope || best <= worse + 1e-9, "{line:?} {best} {worse}");
        }

        #[test]
        fn parts_add_up(batches in prop::collection::vec((1u64..300, 0.01f64..1.0), 2..20), at in 1usize..20) {
            let (first, second) = batches.split_at(at.min(batches.len() - 1));
            let of = |batches: &[(u64, f64)]| observed(batches.iter().copied());
            let (whole, sum) = (of(&batches), of(first).plus(&of(second)));
            for line in [sum.line().unwrap(), whole.scaled(0.5).line().unwrap()] {
                prop_assert!((line.at_s(50) - whole.line().unwrap().at_s(50)).abs() < 1e-6);
            }
            prop_assert!(sum.is_valid() && sum.scaled(0.25).is_valid());
        }
    }

    /// After batches of only one size, larger ones may cost as much, and cost no more than in proportion.
    #[test]
    fn one_size_gives_bounds() {
        let batches = observed([(4, 2.0), (4, 4.0)]);
        assert_eq!(batches.line(), Some(CostLine { fixed_s: 3.0, per_task_s: 0.0, has_slope: false }));
        assert_eq!([1, 4, 12].map(|tasks| batches.at_most_s(tasks).unwrap()), [3.0, 3.0, 9.0]);
        assert_eq!(BatchStatistics::default().line(), None);
        assert!(BatchStatistics::default().is_valid());
        assert!(batches.is_valid() && !BatchStatistics { tasks: 0.5, ..batches }.is_valid());
        let whole = BatchStatistics { total_s: f64::MAX, ..batches };
        assert!(!whole.is_valid() && !BatchStatistics { largest: u64::MAX, ..batches }.is_valid());
        assert!(batches.scaled(1e-300).is_valid(), "a share of it has the same means");
    }
}
