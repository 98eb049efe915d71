//! The expected time of a worker's tasks.

/// The odds that a late worker has become slower, before it is known how late it is. The probability hardly matters compared with the
/// fact that the step waits for the worker, so these are even odds and not the hazard of a change.
const SLOWER: f64 = 0.5;

/// The factor on the cost of more tasks than a worker is trusted with.
const UNTRUSTED: f64 = 1e6;

#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct Pace {
    /// Seconds per assignment that are not computation, o.
    pub(super) overhead_s: f64,
    /// Seconds per batch, regardless of its number of tasks.
    pub(super) fixed_s: f64,
    /// Seconds per task, m.
    pub(super) mean_s: f64,
    /// Squared coefficient of variation of a task's time, c.
    pub(super) variation: f64,
    /// The number of observations of the worker, K.
    pub(super) count: f64,
    /// Squared relative standard error of the mean of the next tasks: c/K, and the variance that those of one iteration share.
    pub(super) doubt: f64,
    /// The variance that times of one iteration share, as part of the doubt.
    pub(super) shared: f64,
    pub(super) hazard: f64,
    /// The most tasks that the worker is trusted with, if it computes its share as one batch.
    pub(super) most: Option<u64>,
    /// Seconds from the end of its tasks to the end of the step, in which vectors travel.
    pub(super) window_s: f64,
}

impl Pace {
    pub(super) fn unknown(mean_s: f64, variation: f64, hazard: f64) -> Self {
        Self { mean_s, variation, count: 1.0, doubt: variation, hazard, ..Self::default() }
    }

    /// Returns the seconds that `tasks` tasks are expected to take.
    pub(super) fn time_s(&self, tasks: u64) -> f64 {
        self.overhead_s + self.fixed_s + tasks as f64 * self.mean_s
    }

    /// Returns the standard deviation of [`Self::time_s`], in seconds: of the times, and of the estimate of their mean.
    fn deviation_s(&self, tasks: u64) -> f64 {
        let a = tasks as f64;
        if self.most.is_some() {
            // A batch is one draw.
            return (self.fixed_s + a * self.mean_s) * (self.variation + self.doubt).sqrt();
        }
        // Planning again evens out all but the last task.
        self.mean_s * (self.variation + self.doubt * a * a).sqrt()
    }

    /// Returns the standard deviation of the time of some tasks, whether planned again or not.
    pub(super) fn noise_s(&self, tasks: u64) -> f64 {
        let a = tasks as f64;
        self.mean_s * (self.variation * a + self.doubt * a * a).sqrt()
    }

    pub(super) fn observe(&mut self, busy_s: f64) {
        // This is the Kalman gain.
        let gain = self.doubt / (self.doubt + self.variation).max(1e-300);
        self.mean_s += gain * (busy_s - self.mean_s);
        self.count += 1.0;
        self.doubt *= 1.0 - gain;
    }

    /// Returns the index U(a): the time by which `tasks` tasks are done, with `caution` standard deviations added.
    pub(super) fn index_s(&self, tasks: u64, caution: f64) -> f64 {
        self.window_s + self.trusted(tasks, self.time_s(tasks) + caution * self.deviation_s(tasks))
    }

    /// Returns the same index for a worker that needs `rest_s` for the tasks it holds.
    pub(super) fn index_after_s(&self, rest_s: f64, tasks: u64, caution: f64) -> f64 {
        let a = tasks as f64;
        // The tasks it holds are half done, on average.
        let deviation_s = self.mean_s * (self.variation * 1.5 + self.doubt * a * a).sqrt();
        self.window_s + rest_s + self.trusted(tasks, self.fixed_s + a * self.mean_s + caution * deviation_s)
    }

    fn trusted(&self, tasks: u64, index_s: f64) -> f64 {
        if self.most.is_some_and(|most| tasks > most) { index_s * UNTRUSTED } else { index_s }
    }

    /// Returns the time that the worker is expected to need for the `tasks` tasks that it holds, `elapsed_s` after it began. For
    /// exponential times (c = 1), the elapsed time has no influence.
    pub(super) fn rest_s(&self, tasks: u64, elapsed_s: f64) -> f64 {
        let c = self.variation + self.shared;
        let all_s = self.time_s(tasks);
        let late_s = if elapsed_s > self.mean_s { elapsed_s } else { 0.0 };
        let next_s = c * (self.mean_s + c.min(1.0) * late_s / self.count);
        let left_s = (all_s - elapsed_s).max(0.0);
        let usual_s = if tasks == 1 { (1.0 - c) * left_s + next_s } else { left_s.max(next_s) };
        if elapsed_s <= all_s {
            return usual_s;
        }
        // A worker that has become slower is expected to need as long again.
        let by_chance = self.chance(tasks, elapsed_s, self.variation);
        usual_s + elapsed_s * SLOWER / (SLOWER + by_chance)
    }

    /// Returns whether a worker is given its next tasks before it has done the `tasks` tasks that it holds. This is so if knowing how long
    /// those take saves less time than the worker would wait for an assignment.
    pub(super) fn is_queued(&self, tasks: u64) -> bool {
        self.overhead_s > 0.0 && self.noise_s(tasks + 1) - self.noise_s(tasks) <= self.overhead_s
    }

    /// Returns whether a worker has taken so long for its tasks that it has more likely become slower than been unlucky.
    pub(super) fn is_late(&self, tasks: u64, elapsed_s: f64) -> bool {
        self.chance(tasks, elapsed_s, self.variation) < self.hazard
    }

    /// Returns an upper bound (Chernoff) on the probability that `tasks` tasks take longer than `elapsed_s`, if their sum is
    /// gamma-distributed with mean a·m and shape a/c, for this squared coefficient of variation c.
    pub(super) fn chance(&self, tasks: u64, elapsed_s: f64, variation: f64) -> f64 {
        let ratio = elapsed_s / self.time_s(tasks);
        if ratio <= 1.0 {
            return 1.0;
        }
        let draws = if self.most.is_some() { 1.0 } else { tasks as f64 };
        (-(ratio - 1.0 - ratio.ln()) / (variation / draws + self.doubt).max(1e-300)).exp()
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::pace;
    use super::*;

    /// The index is U(a) = o + a·m + β·m·√(c(1 + a²/K)), because all but the last task are planned again.
    #[test]
    fn the_index_adds_noise_and_doubt() {
        assert_eq!(pace(0.0).index_s(4, 1.0), 9.0);
        let expected = 9.0 + 3.0 * 2.0 * (0.5_f64 * (1.0 + 16.0 / 8.0)).sqrt();
        assert!((pace(0.5).index_s(4, 3.0) - expected).abs() < 1e-12);
        let batch = Pace { fixed_s: 3.0, most: Some(4), ..pace(0.5) };
        let one_draw = 1.0 + 11.0 + 11.0 * (0.5_f64 * (1.0 + 1.0 / 8.0)).sqrt();
        assert!((batch.index_s(4, 1.0) - one_draw).abs() < 1e-12);
        assert!(batch.index_s(5, 1.0) > 1e6, "more than it was ever trusted with");
    }

    /// With constant times, the remaining time is the expected minus the elapsed time; with exponential times, the elapsed time has
    /// no influence.
    #[test]
    fn the_rest_of_a_task() {
        let constant = Pace { overhead_s: 0.0, ..pace(1e-9) };
        assert!((constant.rest_s(1, 0.5) - 1.5).abs() < 1e-6);
        assert!((constant.rest_s(3, 1.5) - 4.5).abs() < 1e-6);
        let exponential = Pace { overhead_s: 0.0, ..pace(1.0) };
        assert!((exponential.rest_s(1, 1.5) - 2.0).abs() < 1e-9);
        // A worker that is late far beyond chance has become slower, and needs as long again.
        for variation in [0.01, 0.3, 1.0] {
            let late = pace(variation);
            assert!((late.rest_s(1, 300.0) / 300.0 - 1.0).abs() < 0.2, "{variation}");
            assert!(late.chance(1, 300.0, variation) < 1e-9 && late.chance(1, 2.9, variation) == 1.0);
        }
        // Chernoff: P(Exp(1) > r) = exp(−r) is at most r·exp(1 − r).
        let exponential = Pace { overhead_s: 0.0, doubt: 0.0, ..pace(1.0) };
        for ratio in [1.5, 3.0, 9.0_f64] {
            let bound = exponential.chance(1, 2.0 * ratio, 1.0);
            assert!((bound - ratio * (1.0 - ratio).exp()).abs() < 1e-12 && bound >= (-ratio).exp());
        }
    }
}
