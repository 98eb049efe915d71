//! What ATA-Auto knows about its workers, and when it probes an idle one.

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
    /// Mean time of a task, m_i; 0 before the first observation.
    pub(super) mean_s: f64,
    caution: f64,
    /// Overhead per iteration in which it gets tasks, o_i.
    pub(super) overhead_s: f64,
}

impl Speed {
    /// A worker with these task times, and this overhead per assignment.
    pub(super) fn new(times: &WorkerStatistics, overhead_s: f64) -> Self {
        // A clock may measure zero, but costs must be positive.
        let mean_s = times.mean_s().map_or(0.0, |mean_s| mean_s.max(1e-100));
        // Rounding errors in differences of clock readings are not overhead.
        let overhead_s = if overhead_s > 1e-6 * mean_s { overhead_s } else { 0.0 };
        let WorkerStatistics { observed, total_s, squares_s2, cut_s, .. } = *times;
        Self { observed, total_s, squares_s2, cut_s, mean_s, caution: 1.0, overhead_s }
    }

    /// The sum of the squared relative deviations from the mean, and its degrees of freedom.
    fn deviations(&self) -> Option<(f64, f64)> {
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
            let doubt = variation.min(1.0) / self.observed as f64;
            self.mean_s += doubt * self.cut_s;
            self.caution = 1.0 + CAUTION * doubt;
        }
    }

    /// The time of `tasks` tasks, o_i·[a>0] + a·m_i.
    pub(super) fn time_s(&self, tasks: u64) -> f64 {
        if tasks == 0 { 0.0 } else { self.overhead_s + tasks as f64 * self.mean_s }
    }

    /// The same with b_i in place of m_i.
    pub(super) fn cautious_time_s(&self, tasks: u64) -> f64 {
        if tasks == 0 { 0.0 } else { self.overhead_s + tasks as f64 * self.cautious_mean_s() }
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

/// When to probe an idle worker.
#[derive(Clone, Copy, Debug)]
pub(super) struct Trial {
    /// The longest time planned for a worker, l.
    longest_s: f64,
    /// What a probe costs, in iterations: l/W, with W the planned time of all workers.
    pub(super) cost: f64,
    /// What a worker is worth, in iterations, for each task it could take over.
    worth: f64,
    /// The squared coefficient of variation of task times, c.
    variation: f64,
}

impl Trial {
    pub(super) fn new(speeds: &[Speed], plan: &[u64], k: u64, budget: u64, variation: f64) -> Self {
        let times = || speeds.iter().zip(plan).map(|(speed, &tasks)| speed.time_s(tasks));
        let used = plan.iter().filter(|&&tasks| tasks > 0).count();
        let longest_s = times().fold(0.0, f64::max);
        Self {
            longest_s,
            cost: longest_s / times().sum::<f64>(),
            // Each task taken over shortens this and all later iterations by about 1/B; as many iterations are assumed
            // to follow as have passed. A of the n workers are worth a task, which gives the odds of any. The half was
            // found by measurement.
            worth: k as f64 * used as f64 / (2.0 * speeds.len() as f64 * budget as f64),
            // With heavier tails every worker could be that unlucky, but few are.
            variation: variation.min(1.0),
        }
    }

    /// Whether a probe of this worker is likely to pay.
    pub(super) fn pays(&self, speed: &Speed) -> bool {
        // A worker that never finished a task counts as if it had just finished one.
        let time_s = if speed.observed > 0 { speed.time_s(1) } else { speed.cut_s };
        let ratio = (time_s / self.longest_s).max(1.0);
        let shape = speed.observed.max(1) as f64 / self.variation;
        let pays = |tasks: f64| self.worth * tasks > self.cost;
        time_s == 0.0 || (pays(expected_tasks_bound(ratio, shape)) && pays(expected_tasks(ratio, shape)))
    }
}

/// How many tasks beyond the first a worker may be expected to finish in a time when one should take it `ratio` ≥ 1
/// times as long: an upper bound of E[(Y − 1)₊], Y ~ Gamma with shape `shape` and mean 1/ratio, which is its speed if
/// its times are gamma.
///
/// The first bound is Chernoff's: y − 1 ≤ exp(t(y − 1))/(e·t) at t = shape·(ratio − 1). The second holds at ratio 1,
/// where E[Y] = 1: E[(Y − 1)₊] = E|Y − 1|/2 ≤ √Var(Y)/2, and the expectation is less at any larger ratio.
fn expected_tasks(ratio: f64, shape: f64) -> f64 {
    let excess = ratio - 1.0;
    let chernoff = (-shape * (excess - ratio.ln())).exp() / (std::f64::consts::E * shape * excess);
    chernoff.min(0.5 / shape.sqrt())
}

/// An upper bound of [`expected_tasks`] that is cheap to compute: most idle workers are far from worth a probe.
///
/// For r ≥ 1, ln r ≤ (r² − 1)/(2r), so that r − 1 − ln r ≥ (r − 1)²/(2r); and exp(x) ≥ 1 + x + x²/2 + x³/6.
fn expected_tasks_bound(ratio: f64, shape: f64) -> f64 {
    let excess = ratio - 1.0;
    let x = shape * excess * excess / (2.0 * ratio);
    let exp = 1.0 + x * (1.0 + x * (0.5 + x / 6.0));
    let chernoff = 1.0 / (std::f64::consts::E * shape * excess * exp);
    // Rounding must not make it the smaller of the two.
    1.000_001 * chernoff.min(0.5 / shape.sqrt())
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    /// A worker with exponential noise: its mean square is twice the square of its mean.
    pub(in crate::policy) fn speed(observed: u64, mean_s: f64, overhead_s: f64) -> Speed {
        let total_s = observed as f64 * mean_s;
        Speed { observed, total_s, squares_s2: 2.0 * total_s * mean_s, cut_s: 0.0, mean_s, caution: 1.0, overhead_s }
    }

    /// Against E[(Y − 1)₊] for exponential Y (shape 1): exp(−r)/r.
    #[test]
    fn expected_tasks_is_an_upper_bound() {
        for ratio in [1.0, 1.01, 1.1, 1.5, 2.0, 4.0, 10.0_f64] {
            let exact = (-ratio).exp() / ratio;
            let bound = expected_tasks(ratio, 1.0);
            assert!(bound >= exact && bound < 12.0 * exact, "{ratio}: {bound} for {exact}");
        }
    }

    #[test]
    fn the_cheap_bound_is_one() {
        for ratio in [1.0, 1.000_1, 1.3, 2.0, 10.0, 1e3, 1e9] {
            for shape in [1e-3, 1.0, 2.5, 400.0, 1e8] {
                let (bound, exact) = (expected_tasks_bound(ratio, shape), expected_tasks(ratio, shape));
                assert!(bound >= exact, "{ratio} {shape}: {bound} for {exact}");
            }
        }
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
}
