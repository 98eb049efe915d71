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
    /// The rate is multiplied by `factor` every `every` iterations.
    Step {
        /// The number of iterations between two changes.
        every: u64,
        /// The factor.
        factor: f64,
    },
}

/// The name of a schedule, in flags and files.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum ScheduleName {
    /// [`Schedule::Constant`]
    Constant,
    /// [`Schedule::Cosine`]
    Cosine,
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
                let share = (since as f64 / span).min(1.0);
                self.peak * (1.0 + libm::cos(std::f64::consts::PI * share)) / 2.0
            }
            Schedule::Step { every, factor } => self.peak * libm::pow(factor, (since / every.max(1)) as f64),
        }
    }
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
