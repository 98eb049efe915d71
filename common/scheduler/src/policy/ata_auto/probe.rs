//! ATA-Auto's rule for probing idle workers of which something is expected.

use super::outline::Outline;
use super::pace::Pace;

/// Decides whether a probe of an idle worker pays.
#[derive(Clone, Copy, Debug)]
pub(super) struct ProbeRule {
    /// The longest time planned for a worker, l.
    longest_s: f64,
    /// What a probe costs, in iterations.
    cost: f64,
    /// The gain from a worker, in iterations, for each task that it could take over.
    worth: f64,
    /// The squared coefficient of variation of task times, c, at most 1: with heavier tails every worker could be that
    /// unlucky, but few are.
    variation: f64,
}

impl ProbeRule {
    /// For a plan in iteration `k`.
    pub(super) fn new(outline: &Outline, k: u64, budget: u64, pooled: f64) -> Self {
        let (used, workers) = (outline.used as f64, outline.workers as f64);
        Self {
            longest_s: outline.longest_s,
            cost: outline.probe_cost(outline.longest_s),
            // Each task taken over shortens this and all later iterations by about 1/B; as many iterations are assumed
            // to follow as have passed. A of the n workers are worth a task, which gives the odds of any. The eighth was
            // found by measurement.
            worth: k as f64 * used / (8.0 * workers * budget as f64),
            variation: pooled.min(1.0),
        }
    }

    /// Whether a probe of a worker with this pace is likely to pay.
    pub(super) fn pays(&self, pace: &Pace) -> bool {
        self.may_pay(pace.time_s(1), pace.count)
    }

    /// Whether a probe pays of a worker that was never observed, and whose tasks were cancelled after `censored_s` seconds in
    /// all. It is treated as if it had just finished one.
    pub(super) fn pays_unknown(&self, censored_s: f64) -> bool {
        self.may_pay(censored_s, 1.0)
    }

    /// The same for a worker that takes `time_s` seconds for a task, after this many observations; if it takes longer, or was
    /// observed more often, a probe is no more likely to pay.
    pub(super) fn may_pay(&self, time_s: f64, observations: f64) -> bool {
        // A worker that never began a task may have any speed.
        if time_s == 0.0 {
            return true;
        }
        let ratio = time_s / self.longest_s;
        let shape = observations.max(1.0) / self.variation;
        // A probe is one observation, and no certainty.
        let worth = self.worth / (1.0 + shape).sqrt();
        // One that was never observed may well finish several tasks in that time.
        let expected = (1.0 / ratio - 1.0).max(0.0);
        let pays = |tasks: f64| worth * (expected + tasks) > self.cost;
        let ratio = ratio.max(1.0);
        pays(expected_tasks_bound(ratio, shape)) && pays(expected_tasks(ratio, shape))
    }
}

/// How many tasks beyond the first a worker may be expected to finish in a time when one should take it `ratio` ≥ 1
/// times as long: an upper bound of E[(Y − 1)₊], Y ~ Gamma with shape `shape` and mean 1/ratio, which is its speed if
/// its times are gamma.
///
/// The first bound is Chernoff's: y − 1 ≤ exp(t(y − 1))/(e·t) at t = shape·(ratio − 1). The second holds at ratio 1,
/// where E\[Y\] = 1: E\[(Y − 1)₊\] = E|Y − 1|/2 ≤ √Var(Y)/2, and the expectation is less at any larger ratio.
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
mod tests {
    use super::*;

    /// Against E[(Y − 1)₊] for exponential Y (shape 1): exp(−r)/r.
    #[test]
    fn expected_tasks_is_an_upper_bound() {
        for ratio in [1.0, 1.01, 1.1, 1.5, 2.0, 4.0, 10.0_f64] {
            let exact = (-ratio).exp() / ratio;
            let bound = expected_tasks(ratio, 1.0);
            assert!(bound >= exact && bound < 12.0 * exact, "{ratio}: {bound} for {exact}");
        }
    }

    /// The shorter the time after which its tasks were cancelled, the more may be expected of a worker, and the sooner.
    #[test]
    fn who_was_never_observed_is_probed_the_sooner_the_more_it_could_do() {
        let pays_from = |censored_s: f64| {
            let outline =
                Outline { used: 5, workers: 50, all_s: 400.0, longest_s: 100.0, fastest_s: 10.0, download: 0.0 };
            let pays = |k: &u64| ProbeRule::new(&outline, *k, 23, 1.0).pays_unknown(censored_s);
            (1..1_000_000).find(pays).unwrap()
        };
        let first = [0.0, 1.0, 10.0, 50.0, 100.0, 200.0].map(pays_from);
        assert_eq!(first[0], 1);
        assert!(first.is_sorted() && first[1] < first[3] / 10, "{first:?}");
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
}
