//! ATA-Auto's observations of one worker.

use serde::{Deserialize, Serialize};

use super::batch_costs::BatchCosts;
use super::estimate::{Estimate, MOST_EXCEPTIONAL, MOST_VARIATION, Noise, Pooled};
use super::pace::Pace;
use super::window::{Test, Verdict};
use crate::statistics::WorkerStatistics;

/// A worker's task times, and the other data needed to predict the next ones.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(super) struct WorkerModel {
    times: Estimate,
    pub(super) overhead: Estimate,
    /// Seconds of work that was cancelled since the last change, E.
    pub(super) censored_s: f64,
    /// The total excess of cancelled work over its expected time, L.
    late_s: f64,
    /// The number of tasks ever done.
    done: u64,
    /// The batches of a worker that computes its share as one batch; its times above are then relative to the expected ones.
    batches: BatchCosts,
    /// The batches of the current iteration, and those held aside.
    fresh_batches: Vec<(u64, f64)>,
    held_batches: Vec<(u64, f64)>,
    #[serde(skip)]
    pub(super) is_fresh: bool,
    #[serde(skip)]
    pub(super) is_probed: bool,
}

impl WorkerModel {
    pub(super) fn learned(earlier: &WorkerStatistics) -> Self {
        let &WorkerStatistics { observed, total_s, squares_s2, censored_s, batches, .. } = earlier;
        if observed == 0 {
            return Self::default();
        }
        let count = observed as f64;
        let mean_s = total_s / count;
        let c = (squares_s2 / (mean_s * mean_s * count) - 1.0).max(0.0);
        let has_noise = observed > 1 && c.is_finite();
        let noise = if has_noise { Noise::learned(c, count) } else { Noise::default() };
        let (count, total_s) = if batches.count > 0.0 { (batches.count, batches.count) } else { (count, total_s) };
        let times = Estimate::learned(count, total_s, noise);
        let has_overhead = earlier.assignments > 0;
        let overhead_s = has_overhead.then(|| earlier.mean_overhead_s());
        let overhead = overhead_s.map_or_else(Estimate::default, |s| Estimate::learned(1.0, s, Noise::default()));
        Self { times, overhead, censored_s, done: observed, batches: BatchCosts::learned(&batches), ..Self::default() }
    }

    pub(super) fn noise(&self) -> Noise {
        self.times.noise
    }

    /// Returns a lower bound on the expected time of a task; `None` if no time was observed.
    pub(super) fn least_s(&self) -> Option<f64> {
        let line = self.batches.line();
        let least_s = line.map_or(self.times.mean(), |line| line.at_s(1).min(self.batches.task_s()));
        (self.times.count() > 0.0).then_some(least_s)
    }

    /// Returns E, if no time was observed.
    pub(super) fn only_censored_s(&self) -> Option<f64> {
        (self.times.count() == 0.0).then_some(self.censored_s)
    }

    pub(super) fn observe(&mut self, busy_s: f64) {
        self.done += 1;
        self.times.observe(busy_s);
    }

    pub(super) fn observe_batch(&mut self, tasks: u64, busy_s: f64) {
        self.done += tasks;
        let line = self.batches.line().filter(|line| line.has_slope && tasks <= self.batches.largest);
        self.fresh_batches.push((tasks, busy_s));
        let Some(line) = line else {
            // The first batch has nothing to compare it with, but counts as an observation.
            self.times.observe_sum(1.0, 1.0);
            return;
        };
        self.times.observe(busy_s / line.at_s(tasks).max(1e-100));
    }

    /// Ends the iteration: tests whether the speed has changed, and returns the factor.
    pub(super) fn review(&mut self, pooled: Pooled, hazard: f64, test: Test) -> Option<f64> {
        let of_overheads = self.overhead.noise.of_one(Pooled { variation: 1.0, shared: 0.0 });
        self.overhead.review(of_overheads, hazard, Test::All);
        let variation = self.times.noise.of_one(pooled).max(pooled.variation);
        let verdict = self.times.review(variation, hazard, test)?;
        let mut batches = std::mem::take(&mut self.fresh_batches);
        let factor = match verdict {
            Verdict::Held => {
                self.held_batches = batches;
                return None;
            }
            Verdict::Usual => {
                self.held_batches.clear();
                None
            }
            Verdict::Changed(factor) => {
                (self.censored_s, self.late_s) = (0.0, 0.0);
                self.batches.change(factor);
                batches.append(&mut self.held_batches);
                Some(factor)
            }
        };
        for (tasks, busy_s) in batches {
            self.batches.observe(tasks, busy_s);
        }
        factor
    }

    /// Records that tasks were cancelled after `elapsed_s`. If that is longer than chance explains, they count as if they had been
    /// done then.
    pub(super) fn censored(&mut self, tasks: u64, elapsed_s: f64, pooled: Pooled, hazard: f64, test: Test) {
        let variation = self.times.noise.of_one(pooled).max(pooled.variation);
        let is_batched = !self.batches.is_empty();
        let pace = self.pace(pooled, hazard, is_batched);
        if let Some(pace) = &pace
            && test == Test::All
            && pace.chance(tasks, elapsed_s, variation) < hazard
        {
            if is_batched {
                self.times.observe_sum(1.0, elapsed_s / pace.time_s(tasks));
            } else {
                self.times.observe_sum(tasks as f64, elapsed_s);
            }
            return;
        }
        let late_s = pace.map_or(0.0, |pace| (elapsed_s - pace.time_s(tasks)).max(0.0));
        self.censored_s += elapsed_s - late_s;
        self.late_s += late_s;
    }

    /// Returns the expected times of its tasks; `None` if no time was observed.
    pub(super) fn pace(&self, pooled: Pooled, hazard: f64, fuses: bool) -> Option<Pace> {
        let count = self.times.count();
        if count <= 0.0 {
            return None;
        }
        let overhead_s = self.overhead.mean();
        let all = self.times.noise.of_one(pooled).min(MOST_VARIATION);
        let (shared, variation) = (all * pooled.shared, all * (1.0 - pooled.shared));
        let doubt = all / count + shared;
        let lost_s = (pooled.variation.min(MOST_EXCEPTIONAL) * self.censored_s + self.late_s) / count;
        let usual = Pace { overhead_s, variation, count, doubt, shared, hazard, ..Pace::default() };
        if fuses && let Some(line) = self.batches.line() {
            let (fixed_s, mean_s) = (line.fixed_s + lost_s, line.per_task_s.max(1e-100));
            let (doubt, most) = (all / count, Some(self.done));
            return Some(Pace { fixed_s, mean_s, variation: all, doubt, shared: 0.0, most, ..usual });
        }
        // These times are from before it computed a batch, or after it stopped computing batches.
        let mean_s = if self.batches.is_empty() { self.times.mean() } else { self.batches.task_s() };
        let mean_s = (mean_s + lost_s).max(1e-100);
        // Rounding errors in differences of clock readings are not overhead.
        let overhead_s = if overhead_s > 1e-6 * mean_s { overhead_s } else { 0.0 };
        Some(Pace { overhead_s, mean_s, ..usual })
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::pooled;
    use super::*;

    const HAZARD: f64 = 1e-3;

    fn model(times: &[f64]) -> WorkerModel {
        let mut model = WorkerModel::default();
        for time in times {
            model.observe(*time);
            model.review(pooled(1.0), HAZARD, Test::None);
        }
        model
    }

    /// The mean is m = (T + c·E + L)/K: for exponential times (c = 1) the maximum likelihood estimate under censoring.
    #[test]
    fn cancelled_work_counts_as_far_as_times_vary() {
        for (variation, mean_s) in [(1.0, 6.0), (0.25, 5.0), (9.0, 22.0 / 3.0)] {
            let mut model = model(&[4.0, 4.0, 4.0]);
            model.censored(1, 6.0, pooled(variation), HAZARD, Test::None);
            let pace = model.pace(pooled(variation), HAZARD, false).unwrap();
            assert!((pace.mean_s - mean_s).abs() < 1e-12, "{variation}: {}", pace.mean_s);
        }
    }

    /// A task that is cancelled later than chance explains counts as done at that time; two in a row are a change.
    #[test]
    fn tasks_cancelled_far_too_late_are_a_change() {
        let steady = model(&[1.0; 50]);
        for (elapsed_s, test, slower) in [(1.2, Test::All, false), (40.0, Test::All, true), (40.0, Test::Faster, false)]
        {
            let mut model = steady.clone();
            for _ in 0..2 {
                model.censored(1, elapsed_s, pooled(0.05), HAZARD, test);
                model.review(pooled(0.05), HAZARD, test);
            }
            let mean_s = model.pace(pooled(0.05), HAZARD, false).unwrap().mean_s;
            assert_eq!(mean_s == elapsed_s, slower, "{mean_s}");
        }
    }

    #[test]
    fn what_was_learned_before_counts_like_own_observations() {
        let earlier = WorkerStatistics { observed: 8, total_s: 16.0, squares_s2: 48.0, ..WorkerStatistics::default() };
        let pace = WorkerModel::learned(&earlier).pace(pooled(1.0), HAZARD, false).unwrap();
        assert_eq!((pace.mean_s, pace.count), (2.0, 8.0));
        // The worker has E[x²]/m² − 1 = 1/2 in 7 pairs, combined with 20 pairs of all workers.
        assert!((pace.variation - (7.0 * 0.5 + 20.0) / 27.0).abs() < 1e-12);
        assert_eq!(WorkerModel::learned(&WorkerStatistics::default()), WorkerModel::default());
    }
}
