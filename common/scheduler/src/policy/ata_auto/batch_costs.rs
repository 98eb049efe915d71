//! What batches cost that a worker computes at once: o + a·s seconds for a tasks.

use serde::{Deserialize, Serialize};

use crate::batches::{BatchStatistics, CostLine};

/// The weight of a batch after the next one of about its size: what counts are the last 1/(1 − KEPT) = 20 of each size.
const KEPT: f64 = 0.95;

/// Times below a nanosecond weigh as much as one, because a clock may measure zero.
const CLOCK_S: f64 = 1e-9;

/// Recent batches of about the same size: from one power of two to the next.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
struct Octave {
    /// The number of batches; each weighs less with every later one.
    count: f64,
    tasks: f64,
    total_s: f64,
}

/// The recent batches of a worker, by size. A worker's batches are usually of nearly one size, from which no line follows, so batches of
/// other sizes are not forgotten over them.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(super) struct BatchCosts {
    octaves: Vec<Octave>,
    /// The largest number of tasks in a batch.
    pub(super) largest: u64,
}

impl BatchCosts {
    pub(super) fn learned(earlier: &BatchStatistics) -> Self {
        let mut costs = Self::default();
        if let Some(line) = earlier.line() {
            let mean = ((earlier.tasks / earlier.count) as u64).max(1);
            costs.observe(mean, line.at_s(mean));
            if line.has_slope {
                costs.observe(1, line.at_s(1));
            }
        }
        Self { largest: earlier.largest, ..costs }
    }

    pub(super) fn observe(&mut self, tasks: u64, busy_s: f64) {
        let octave = tasks.ilog2() as usize;
        if self.octaves.len() <= octave {
            self.octaves.resize(octave + 1, Octave::default());
        }
        let Octave { count, tasks: sum, total_s } = &mut self.octaves[octave];
        *count = *count * KEPT + 1.0;
        *sum = *sum * KEPT + tasks as f64;
        *total_s = *total_s * KEPT + busy_s;
        self.largest = self.largest.max(tasks);
    }

    /// Batches became `factor` times as slow.
    pub(super) fn change(&mut self, factor: f64) {
        self.octaves.iter_mut().for_each(|octave| octave.total_s *= factor);
    }

    pub(super) fn is_empty(&self) -> bool {
        self.octaves.is_empty()
    }

    pub(super) fn task_s(&self) -> f64 {
        let (total_s, tasks) =
            self.octaves.iter().fold((0.0, 0.0), |(s, a), octave| (s + octave.total_s, a + octave.tasks));
        total_s / tasks
    }

    /// Fits the line of weighted least squares with o ≥ 0 and s ≥ 0 to the means of all sizes; `None` before the first batch. Noise is in
    /// proportion to the time, so the weights are too, inversely and squared: a batch that took unusually long hardly counts.
    pub(super) fn line(&self) -> Option<CostLine> {
        let points = self.octaves.iter().filter(|octave| octave.count > 0.0).map(|octave| {
            let (tasks, seconds) = (octave.tasks / octave.count, octave.total_s / octave.count);
            (octave.count / seconds.max(CLOCK_S).powi(2), tasks, seconds)
        });
        let mean = |of: &dyn Fn(f64, f64) -> f64| {
            let (sum, weights) =
                points.clone().fold((0.0, 0.0), |(sum, weights), (w, a, t)| (sum + w * of(a, t), weights + w));
            sum / weights
        };
        let sizes = points.clone().count();
        let (tasks, seconds) = (mean(&|a, _| a), mean(&|_, t| t));
        let slope = mean(&|a, t| (a - tasks) * (t - seconds)) / mean(&|a, _| (a - tasks).powi(2));
        let from_origin_s = mean(&|a, t| a * t) / mean(&|a, _| a * a);
        (sizes > 0).then(|| CostLine::bounded((tasks, seconds), (sizes > 1).then_some(slope), from_origin_s))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn observed(batches: impl IntoIterator<Item = (u64, f64)>) -> BatchCosts {
        let mut costs = BatchCosts::default();
        for (tasks, busy_s) in batches {
            costs.observe(tasks, busy_s);
        }
        costs
    }

    proptest! {
        #[test]
        fn a_line_without_noise_is_found(
            (fixed_s, per_task_s) in (1e-3f64..1.0, 1e-5f64..1e-2),
            sizes in prop::collection::vec(1u64..5000, 2..40),
        ) {
            let time_s = |tasks: u64| fixed_s + tasks as f64 * per_task_s;
            let costs = observed(sizes.iter().map(|&tasks| (tasks, time_s(tasks))));
            let line = costs.line().unwrap();
            let octaves: std::collections::BTreeSet<u32> = sizes.iter().map(|size| size.ilog2()).collect();
            prop_assert_eq!(line.has_slope, octaves.len() > 1);
            for &tasks in sizes.iter().filter(|_| line.has_slope) {
                prop_assert!((line.at_s(tasks) - time_s(tasks)).abs() <= 1e-6 * time_s(tasks), "{:?} at {}", line, tasks);
            }
        }
    }

    /// A batch whose kernels were compiled takes a second for a hundredth. No later batch of that size is needed to tell what others cost.
    #[test]
    fn one_batch_that_took_long_hardly_counts() {
        let costs = observed([(1, 8.05), (31, 1000.0), (32, 9.6), (32, 9.6)]);
        let line = costs.line().unwrap();
        assert!((line.at_s(32) - 9.6).abs() < 0.2 && (line.at_s(1) - 8.05).abs() < 0.2, "{line:?}");
    }

    /// The times of today replace those of yesterday, but what only small batches show stays known.
    #[test]
    fn batches_of_one_size_do_not_replace_those_of_another() {
        let costs = observed([(1, 8.0)].into_iter().chain([(32, 20.0); 50]).chain([(32, 10.0); 200]));
        let line = costs.line().unwrap();
        assert!((line.at_s(32) - 10.0).abs() < 0.01 && (line.at_s(1) - 8.0).abs() < 0.01, "{line:?}");
    }

    /// Neither cost is negative: larger batches that took less are noise, and so is a line that begins below 0.
    #[test]
    fn no_cost_is_negative() {
        let line = observed([(1, 4.0), (64, 2.0)]).line().unwrap();
        assert_eq!(line.per_task_s, 0.0);
        let line = observed([(1, 0.1), (64, 64.0)]).line().unwrap();
        assert!(line.fixed_s == 0.0 && line.per_task_s > 0.0, "{line:?}");
        assert_eq!(BatchCosts::default().line(), None);
        let line = observed([(1, 0.0), (64, 1e90)]).line().unwrap();
        assert!(line.fixed_s.is_finite() && line.per_task_s.is_finite(), "a clock may measure anything: {line:?}");
    }

    #[test]
    fn the_line_of_an_earlier_run_is_taken_over() {
        let mut sums = BatchStatistics::default();
        sums.observe(4, 3.0);
        sums.observe(12, 5.0);
        let costs = BatchCosts::learned(&sums);
        let line = costs.line().unwrap();
        assert!((line.fixed_s - 2.0).abs() < 1e-9 && (line.per_task_s - 0.25).abs() < 1e-9, "{line:?}");
        assert_eq!(costs.largest, 12);
        assert_eq!(BatchCosts::learned(&BatchStatistics::default()), BatchCosts::default());
    }
}
