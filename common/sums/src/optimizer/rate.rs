//! Learning rates over the iterations of a run.

use serde::{Deserialize, Serialize};

/// The learning rate of each iteration.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct LearningRate {
    /// The largest learning rate η.
    pub peak: f64,
    /// The number of iterations over which the rate rises linearly to [`LearningRate::peak`]; 0 for no warm-up.
    pub warmup: u64,
    /// The schedule after the warm-up.
    pub schedule: Schedule,
}

/// How the learning rate changes after the warm-up.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Schedule {
    /// The rate stays constant.
    Constant,
    /// The rate falls along half a cosine, to 0 after the last iteration. Source: Loshchilov, Hutter, "SGDR: Stochastic
    /// Gradient Descent with Warm Restarts", 2017, Eq. 5, without restarts.
    Cosine {
        /// The number of iterations of the run.
        iterations: u64,
    },
    /// The rate rises from a 25th of the peak to the peak over the first 30 % of the run, and falls to a 250,000th of it, both along half a
    /// cosine: PyTorch's `OneCycleLR` with its default constants, without the cycle of the momentum. Source: Smith, Topin,
    /// "Super-Convergence: Very Fast Training of Neural Networks Using Large Learning Rates", 2018.
    OneCycle {
        /// The number of iterations of the run.
        iterations: u64,
    },
    /// The rate is multiplied by `factor` every `every` iterations.
    Step {
        /// The number of iterations between two changes.
        every: u64,
        /// The factor.
        factor: f64,
    },
}

/// The constants of [`Schedule::OneCycle`], as in PyTorch: the share of the run in which the rate rises, and the ratios of the peak to the
/// first rate, and of that to the last one.
const RISING: f64 = 0.3;
const FIRST_SHARE: f64 = 25.0;
const LAST_SHARE: f64 = 1e4;

/// The name of a schedule, in flags and files.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum ScheduleName {
    /// [`Schedule::Constant`]
    Constant,
    /// [`Schedule::Cosine`]
    Cosine,
    /// [`Schedule::OneCycle`]
    OneCycle,
    /// [`Schedule::Step`]
    Step,
}

impl LearningRate {
    /// Creates a rate that is the same in every iteration.
    pub fn constant(peak: f64) -> Self {
        Self { peak, warmup: 0, schedule: Schedule::Constant }
    }

    /// Returns the rate of an iteration, counted from 1.
    pub fn at(&self, iteration: u64) -> f64 {
        if iteration <= self.warmup {
            return self.peak * iteration as f64 / self.warmup as f64;
        }
        let since = iteration - self.warmup - 1;
        match self.schedule {
            Schedule::Constant => self.peak,
            Schedule::Cosine { iterations } => {
                let span = iterations.saturating_sub(self.warmup).max(1) as f64;
                between(self.peak, 0.0, since as f64, span)
            }
            Schedule::OneCycle { iterations } => {
                let (first, last) = (self.peak / FIRST_SHARE, self.peak / FIRST_SHARE / LAST_SHARE);
                let (at, end) = (since as f64, iterations as f64 - 1.0);
                let top = RISING * iterations as f64 - 1.0;
                if at <= top {
                    between(first, self.peak, at, top)
                } else {
                    between(self.peak, last, at - top, end - top)
                }
            }
            Schedule::Step { every, factor } => self.peak * libm::pow(factor, (since / every.max(1)) as f64),
        }
    }
}

/// Returns the number on half a cosine from one number to another, at a place of a span.
fn between(from: f64, to: f64, at: f64, span: f64) -> f64 {
    to + (from - to) * (1.0 + libm::cos(std::f64::consts::PI * (at / span).min(1.0))) / 2.0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rates_follow_their_schedules() {
        let half = std::f64::consts::FRAC_1_SQRT_2;
        let cosine = |iterations| Schedule::Cosine { iterations };
        for (peak, warmup, schedule, iterations, expected) in [
            (0.5, 0, Schedule::Constant, &[1, 2, 1_000_000][..], &[0.5; 3][..]),
            (0.4, 4, Schedule::Constant, &[1, 2, 3, 4, 5, 6], &[0.1, 0.2, 0.3, 0.4, 0.4, 0.4]),
            (2.0, 0, cosine(4), &[1, 2, 3, 4, 5, 9], &[2.0, 1.0 + half, 1.0, 1.0 - half, 0.0, 0.0]),
            (2.0, 2, cosine(6), &[1, 2, 3, 5], &[1.0, 2.0, 2.0, 1.0]),
            (1.0, 1, Schedule::Step { every: 2, factor: 0.1 }, &[1, 2, 3, 4, 5, 6], &[1.0, 1.0, 1.0, 0.1, 0.1, 0.01]),
            // These are the rates of PyTorch's OneCycleLR(max_lr=1, total_steps=10).
            (
                1.0,
                0,
                Schedule::OneCycle { iterations: 10 },
                &[1, 2, 3, 4, 7, 10, 11],
                &[0.04, 0.52, 1.0, 0.950_484_632_013_473_7, 0.388_741_978_063_710_75, 4e-6, 4e-6],
            ),
            (1.0, 0, Schedule::OneCycle { iterations: 1 }, &[1], &[4e-6]),
            // A warm-up longer than the run causes no division by zero.
            (1.0, 10, cosine(5), &[1, 5, 10, 11, 12], &[0.1, 0.5, 1.0, 1.0, 0.0]),
        ] {
            let rate = LearningRate { peak, warmup, schedule };
            for (iteration, expected) in iterations.iter().zip(expected) {
                let found = rate.at(*iteration);
                assert!((found - expected).abs() < 1e-12, "{rate:?} at {iteration}: {found}");
            }
        }
    }
}
