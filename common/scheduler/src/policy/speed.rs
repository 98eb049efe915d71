//! What ATA-Auto knows about a worker's speed.

use crate::batches::{BatchStatistics, Line};
use crate::statistics::WorkerStatistics;

/// After one observation, a worker counts as slower by this multiple of its mean, if times are exponential: among many
/// workers, the lucky ones look fast. Found by measurement (docs/ata-auto.md).
const CAUTION: f64 = 4.0;

/// What is known about one worker.
#[derive(Clone, Copy, Debug)]
pub(super) struct Speed {
    /// Tasks observed, K_i.
    pub(super) observed: u64,
    /// Seconds those tasks took in total, T_i.
    pub(super) total_s: f64,
    squares_s2: f64,
    /// Seconds spent on tasks that were cancelled, E_i.
    pub(super) cut_s: f64,
    /// Mean time of a task, m_i, or what one more task adds to a batch; 0 before the first observation.
    pub(super) mean_s: f64,
    caution: f64,
    /// Overhead per iteration in which it gets tasks, o_i.
    pub(super) overhead_s: f64,
    /// Of a worker that computes its share as one batch: the batches seen…
    batches: Option<BatchStatistics>,
    /// …and what a batch takes however few tasks it has.
    pub(super) fixed_s: f64,
}

impl Speed {
    /// A worker with these task times, and this overhead per assignment; `fuses` tells whether it computes its share
    /// as one batch.
    pub(super) fn new(times: &WorkerStatistics, overhead_s: f64, fuses: bool) -> Self {
        // A clock may measure zero, but costs must be positive.
        let mean_s = times.mean_s().map_or(0.0, |mean_s| mean_s.max(1e-100));
        // Rounding errors in differences of clock readings are not overhead.
        let overhead_s = if overhead_s > 1e-6 * mean_s { overhead_s } else { 0.0 };
        let WorkerStatistics { observed, total_s, squares_s2, cut_s, .. } = *times;
        // One that never computed a batch counts as if it computed its tasks one by one.
        let line = times.line().filter(|_| fuses);
        let batches = line.map(|_| times.batches);
        let (fixed_s, mean_s) = line.map_or((0.0, mean_s), |line| (line.fixed_s, line.per_task_s.max(1e-100)));
        Self { observed, total_s, squares_s2, cut_s, mean_s, caution: 1.0, overhead_s, batches, fixed_s }
    }

    /// What batches cost, and the largest one seen, if batches of different sizes were.
    pub(super) fn known_line(&self) -> Option<(Line, u64)> {
        let batches = self.batches?;
        Some((batches.line().filter(|line| line.has_slope)?, batches.largest))
    }

    /// How many observations there are: tasks or, if it computes batches, those.
    pub(super) fn observations(&self) -> f64 {
        self.batches.map_or(self.observed as f64, |batches| batches.count)
    }

    /// The sum of the squared relative deviations from the mean, and its degrees of freedom. Batches deviate from the
    /// line, which takes two degrees.
    fn deviations(&self) -> Option<(f64, f64)> {
        if let Some(batches) = self.batches {
            let mean_s = batches.total_s / batches.count;
            let known = batches.count > 2.0 && mean_s > 0.0;
            let squares = batches.deviations_s2(batches.line()?) / (mean_s * mean_s);
            return known.then_some((squares, batches.count - 2.0));
        }
        let mean_s = self.total_s / self.observed as f64;
        let squares = self.squares_s2 / mean_s - self.total_s;
        // A prior may come without squares; then it says nothing here.
        let known = self.observed > 1 && mean_s > 0.0 && squares > -1e-6 * self.total_s;
        known.then(|| ((squares / mean_s).max(0.0), (self.observed - 1) as f64))
    }

    /// The squared coefficient of variation of this worker's times, or `pooled`, that of all workers, if it is larger.
    pub(super) fn variation(&self, pooled: f64) -> f64 {
        self.deviations().map_or(0.0, |(squares, freedom)| squares / freedom).max(pooled)
    }

    /// Applies the pooled squared coefficient of variation: it determines how much the time spent on cancelled tasks
    /// counts (in full if times are exponential, which makes m_i the maximum likelihood estimate; not at all if they
    /// are constant), and how certain m_i is.
    pub(super) fn weigh(&mut self, variation: f64) {
        if self.observed > 0 {
            let doubt = variation.min(1.0) / self.observations();
            let lost_s = doubt * self.cut_s;
            if self.batches.is_some() {
                self.fixed_s += lost_s;
            } else {
                self.mean_s += lost_s;
            }
            self.caution = 1.0 + CAUTION * doubt;
        }
    }

    /// The time of `tasks` tasks, o_i·[a>0] + a·m_i.
    pub(super) fn time_s(&self, tasks: u64) -> f64 {
        if tasks == 0 { 0.0 } else { self.overhead_s + self.fixed_s + tasks as f64 * self.mean_s }
    }

    /// The same with caution added.
    pub(super) fn cautious_time_s(&self, tasks: u64) -> f64 {
        let fixed_s = self.overhead_s + self.fixed_s * self.caution;
        if tasks == 0 { 0.0 } else { fixed_s + tasks as f64 * self.cautious_mean_s() }
    }

    /// The time of each of `tasks` tasks, overhead apart.
    pub(super) fn per_task_s(&self, tasks: u64) -> f64 {
        self.mean_s + self.fixed_s / tasks.max(1) as f64
    }

    /// The mean time with caution added, b_i.
    pub(super) fn cautious_mean_s(&self) -> f64 {
        self.mean_s * self.caution
    }
}

/// The squared coefficient of variation of task times, one for all workers: their squared relative deviations divided
/// by the degrees of freedom, with one added to each, as if exponential times (1) had been seen first.
pub(super) fn squared_variation(speeds: &[Speed]) -> f64 {
    let (squares, freedom) =
        speeds.iter().filter_map(Speed::deviations).fold((1.0, 1.0), |sum, own| (sum.0 + own.0, sum.1 + own.1));
    squares / freedom
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    /// A worker with exponential noise: its mean square is twice the square of its mean.
    pub(in crate::policy) fn speed(observed: u64, mean_s: f64, overhead_s: f64) -> Speed {
        let total_s = observed as f64 * mean_s;
        let squares_s2 = 2.0 * total_s * mean_s;
        let times = WorkerStatistics { observed, total_s, squares_s2, ..WorkerStatistics::default() };
        Speed::new(&times, overhead_s, false)
    }

    /// For exponential times, some of them cut short, the mean is estimated by all the time over the number that ended.
    #[test]
    fn cut_times_count_as_far_as_times_vary() {
        for (variation, mean_s) in [(1.0, 6.0), (0.25, 4.5), (0.0, 4.0), (9.0, 6.0)] {
            let mut speed = Speed { cut_s: 6.0, ..speed(3, 4.0, 0.0) };
            speed.weigh(variation);
            assert_eq!(speed.mean_s, mean_s, "{variation}");
            assert!((speed.cautious_mean_s() - mean_s * (1.0 + 4.0 * variation.min(1.0) / 3.0)).abs() < 1e-12);
        }
    }

    /// Pooled squares over pooled degrees of freedom, with one added to each.
    #[test]
    fn squared_variation_is_pooled() {
        let constant = Speed { squares_s2: 20.0, ..speed(5, 2.0, 0.0) };
        let noisy = Speed { squares_s2: 36.0, ..speed(3, 2.0, 0.0) };
        let no_squares = Speed { squares_s2: 0.0, ..speed(9, 2.0, 0.0) };
        assert_eq!(squared_variation(&[constant, noisy, no_squares]), (1.0 + 0.0 + 6.0) / (1.0 + 4.0 + 2.0));
        assert_eq!(squared_variation(&[]), 1.0);
    }

    /// o + a·s, with caution for few batches and not for many tasks.
    #[test]
    fn a_batch_costs_its_fixed_part_once() {
        let mut times = WorkerStatistics { cut_s: 6.0, ..WorkerStatistics::default() };
        for (tasks, busy_s) in [(10, 25.0), (30, 35.0)] {
            times.observe_batch(tasks, busy_s);
        }
        let mut speed = Speed::new(&times, 1.0, true);
        assert_eq!((speed.time_s(0), speed.time_s(100), speed.per_task_s(10)), (0.0, 71.0, 2.5));
        speed.weigh(0.5);
        assert_eq!((speed.time_s(100), speed.cautious_time_s(100)), (72.5, 1.0 + 2.0 * 71.5));
        assert_eq!(Speed::new(&times, 0.0, false).time_s(10), 15.0, "one by one, each counts an equal share");
    }

    /// Before it has computed larger batches, they may be free.
    #[test]
    fn one_size_is_a_lower_bound_for_larger_ones() {
        let mut times = WorkerStatistics::default();
        times.observe_batch(1, 20.0);
        let speed = Speed::new(&times, 0.0, true);
        assert!(speed.time_s(1) == 20.0 && speed.time_s(1000) <= 20.0 + 1e-9);
    }
}
