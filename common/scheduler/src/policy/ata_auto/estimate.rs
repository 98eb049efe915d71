//! The estimate that ATA-Auto has of one quantity of a worker: its mean since the last change, and its noise.

use serde::{Deserialize, Serialize};

use super::window::{Test, Verdict, Window, WindowBlock};

/// The weight of the noise of all workers in the noise of one, in pairs.
const POOLED: f64 = 20.0;

/// The number of pairs that a worker's own noise counts for after a change of its speed: few, so that the noise of all workers
/// weighs more. With [`POOLED`] instead, a worker with bursts is misjudged a fifth more often after it became slow; with 2 or 10,
/// hardly more often.
const KEPT: f64 = 5.0;

/// The upper limit on a squared coefficient of variation: with heavier tails, no share would be small enough.
pub(super) const MOST_VARIATION: f64 = 8.0;

/// The same limit for unusual observations: rounds that are held aside, and cancelled work.
pub(super) const MOST_EXCEPTIONAL: f64 = 2.0;

/// The upper limit on what one pair of times counts for: clocks may measure zero.
const MOST_SQUARES: f64 = 1e9;

/// Pairs of consecutive times, x′ and x, of a worker whose mean time is m.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
struct Pairs {
    /// The sum Σ ½((x − x′)/m)².
    sum: f64,
    count: f64,
}

impl Pairs {
    fn of(last: f64, time: f64, mean: f64) -> Self {
        let sum = if mean > 0.0 { 0.5 * ((time - last) / mean).powi(2) } else { 0.0 };
        Self { sum: sum.min(MOST_SQUARES), count: 1.0 }
    }

    fn add(&mut self, other: Self, sign: f64) {
        // Rounding may make differences of sums negative.
        self.sum = (self.sum + sign * other.sum).max(0.0);
        self.count += sign * other.count;
    }

    fn bounded(self) -> Self {
        Self { sum: self.sum.min(MOST_EXCEPTIONAL * self.count), ..self }
    }

    fn recent(self) -> Self {
        if self.count <= KEPT { self } else { Self { sum: self.sum * KEPT / self.count, count: KEPT } }
    }

    /// Returns their mean after adding `weight` pairs of the value `prior`.
    fn mean(self, prior: f64, weight: f64) -> f64 {
        (self.sum + weight * prior) / (self.count + weight)
    }
}

/// The noise of a worker, measured by pairs of consecutive times, which drift does not inflate. Pairs of the same iteration show only
/// the part of it that the times of an iteration do not share.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(super) struct Noise {
    within: Pairs,
    across: Pairs,
}

/// The noise of all workers.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Pooled {
    /// The squared coefficient of variation, c̄.
    pub(super) variation: f64,
    /// The part of it that the times of one iteration share, r.
    pub(super) shared: f64,
}

/// The sums from which the noise of all workers follows.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(super) struct NoisePool {
    all: Noise,
    /// The sum of pairs across iterations, of workers that have both kinds of pairs.
    across: f64,
    /// The sum that these pairs would have if the times of one iteration had nothing in common.
    expected: f64,
}

impl NoisePool {
    /// Adds the noise of a worker, or removes it again.
    pub(super) fn add(&mut self, noise: Noise, sign: f64) {
        self.all.within.add(noise.within, sign);
        self.all.across.add(noise.across, sign);
        if noise.within.count > 0.0 {
            self.across = (self.across + sign * noise.across.sum).max(0.0);
            let expected = noise.across.count * noise.within.sum / noise.within.count;
            self.expected = (self.expected + sign * expected).max(0.0);
        }
    }

    /// Returns the noise of all workers, as if one pair of exponential times (1) had been observed first.
    pub(super) fn pooled(&self) -> Pooled {
        let prior = POOLED * self.all.total(0.0).mean(1.0, 1.0);
        let shared = (1.0 - (self.expected + prior) / (self.across + prior)).max(0.0);
        Pooled { variation: self.all.total(shared).mean(1.0, 1.0), shared }
    }
}

impl Noise {
    /// Returns the noise of this many observations with this squared coefficient of variation.
    pub(super) fn learned(variation: f64, observations: f64) -> Self {
        let count = observations - 1.0;
        Self { across: Pairs { sum: variation * count, count }, ..Self::default() }
    }

    /// Returns the squared coefficient of variation of one worker, given the noise of all.
    pub(super) fn of_one(self, pooled: Pooled) -> f64 {
        self.total(pooled.shared).mean(pooled.variation, POOLED)
    }

    fn map(self, of: fn(Pairs) -> Pairs) -> Self {
        Self { within: of(self.within), across: of(self.across) }
    }

    /// Returns all pairs: those of the same iteration count for what they show.
    fn total(self, shared: f64) -> Pairs {
        let count = self.within.count * (1.0 - shared) + self.across.count;
        Pairs { sum: self.within.sum + self.across.sum, count }
    }
}

/// The estimate of one quantity of a worker, which neither changes nor outliers distort for long.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(super) struct Estimate {
    window: Window,
    /// The observations of the current iteration.
    round: Option<WindowBlock>,
    last: Option<f64>,
    pub(super) noise: Noise,
    fresh_noise: Noise,
}

impl Estimate {
    pub(super) fn learned(count: f64, total_s: f64, noise: Noise) -> Self {
        Self { window: Window::learned(count, total_s), noise, ..Self::default() }
    }

    pub(super) fn observe(&mut self, time: f64) {
        if let Some(last) = self.last {
            let mean = if self.window.sum.count >= 2.0 { self.mean() } else { 0.5 * (time + last) };
            let place = if self.round.is_some() { &mut self.fresh_noise.within } else { &mut self.fresh_noise.across };
            place.add(Pairs::of(last, time, mean), 1.0);
        }
        self.last = Some(time);
        self.observe_sum(1.0, time);
    }

    /// Observes several values of which only the sum is known, so that they say nothing about noise.
    pub(super) fn observe_sum(&mut self, count: f64, total_s: f64) {
        let round = self.round.get_or_insert(WindowBlock::new(0.0, 0.0));
        round.count += count;
        round.total_s += total_s;
    }

    /// Ends the iteration; returns what it showed. A round that is held aside forms no pair with the next one, and adds little
    /// noise. It must add some, since rounds are also out of line if noise was underestimated.
    pub(super) fn review(&mut self, variation: f64, hazard: f64, test: Test) -> Option<Verdict> {
        let verdict = self.window.push(self.round.take()?, variation, hazard, test);
        let mut fresh = std::mem::take(&mut self.fresh_noise);
        if verdict == Verdict::Held {
            (fresh, self.last) = (fresh.map(Pairs::bounded), None);
        }
        if matches!(verdict, Verdict::Changed(_)) {
            // It may have changed together with the speed.
            self.noise = self.noise.map(Pairs::recent);
        }
        self.noise.within.add(fresh.within, 1.0);
        self.noise.across.add(fresh.across, 1.0);
        Some(verdict)
    }

    /// Returns the number of observations since the last change, K.
    pub(super) fn count(&self) -> f64 {
        self.window.sum.count
    }

    /// Returns the mean of these observations; 0 if there are none.
    pub(super) fn mean(&self) -> f64 {
        if self.window.sum.count > 0.0 { self.window.sum.total_s / self.window.sum.count } else { 0.0 }
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::pooled;
    use super::*;

    /// Returns the noise of these times, each of an iteration of its own.
    fn noise(times: &[f64]) -> Noise {
        let mut estimate = Estimate::default();
        for time in times {
            estimate.observe(*time);
            estimate.review(0.1, 1e-3, Test::All);
        }
        estimate.noise
    }

    /// The noise is ½((x − x′)/m)², so that neither a slow drift nor a stall counts as noise.
    #[test]
    fn noise_is_of_consecutive_times() {
        let drifting: Vec<f64> = (0..1000).map(|task| 1.0 + f64::from(task) / 100.0).collect();
        assert!(noise(&drifting).of_one(pooled(0.0)) < 1e-3);
        let alternating: Vec<f64> = (0..1000).map(|task| if task % 2 == 0 { 0.5 } else { 1.5 }).collect();
        // The squared coefficient of variation is 1/4, and half the squared difference is twice that, because the times alternate and are
        // not random.
        assert!((noise(&alternating).of_one(pooled(0.0)) - 0.5).abs() < 0.02);
        let stall: Vec<f64> = (0..1000).map(|task| if task == 500 { 1e9 } else { 1.0 }).collect();
        assert!(noise(&stall).of_one(pooled(0.0)) < 3e-3);
        assert_eq!(NoisePool::default().pooled(), pooled(1.0));
        assert_eq!(Noise::default().of_one(pooled(0.3)), 0.3);
    }

    /// A worker that gets a smaller part of its machine may become noisier, so its earlier noise soon counts for nothing.
    #[test]
    fn noise_is_learned_anew_after_a_change() {
        let mut estimate = Estimate::default();
        let mut observe = |time: f64| {
            estimate.observe(time);
            estimate.review(0.1, 1e-3, Test::All);
            estimate.noise.of_one(pooled(0.0))
        };
        for task in 0..1000 {
            observe(1.0 + 0.001 * f64::from(task % 2));
        }
        let noise = (0..40).map(|task| observe(if task % 2 == 0 { 8.0 } else { 12.0 })).last().unwrap();
        assert!(noise > 0.04, "{noise}");
    }

    /// The part that the times of one iteration share is distinguished from the noise of each.
    #[test]
    fn noise_between_iterations_is_told_apart() {
        let mut estimate = Estimate::default();
        for iteration in 0..500 {
            let common = if iteration % 2 == 0 { 0.5 } else { 1.5 };
            for task in 0..10 {
                estimate.observe(common * (1.0 + 0.01 * f64::from(task % 2)));
            }
            estimate.review(0.25, 1e-3, Test::None);
        }
        let mut pool = NoisePool::default();
        pool.add(estimate.noise, 1.0);
        let Pooled { variation, shared } = pool.pooled();
        assert!(shared > 0.9 && (variation - 0.5).abs() < 0.05, "{variation} {shared}");
        // Workers with one task per iteration say nothing about that, and what is added can be removed.
        let noisy: Vec<f64> = (0..500).map(|task| if task % 2 == 0 { 0.5 } else { 1.5 }).collect();
        pool.add(estimate.noise, -1.0);
        pool.add(noise(&noisy), 1.0);
        assert_eq!(pool.pooled().shared, 0.0);
    }
}
