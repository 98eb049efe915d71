//! How the number of tasks of an iteration is chosen, and how the learning rate follows it.

use std::sync::Arc;

/// How the engine chooses the number of tasks of each iteration.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TaskChoice {
    /// What the number follows.
    pub rule: TaskRule,
    /// The least number; at least 1.
    pub least: u64,
    /// The largest number.
    pub most: u64,
    /// How the learning rate follows the number.
    pub rate: RateScaling,
}

/// What the number of tasks of an iteration follows.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum TaskRule {
    /// What is not computation: workers compute for nine tenths of the time.
    Exchange,
    /// The noise scale of the gradients, which does not depend on who computes how fast.
    Noise,
    /// The goodput, which depends on both. A number is kept for 50 iterations at least, and changes only once that is saved, so that no
    /// iteration is repeated with another one.
    Goodput,
    /// The numbers of another run: each one with the number of iterations that had it. The last one is that of all further iterations.
    Path(Arc<[(u64, u64)]>),
}

/// How the learning rate of a step follows the number of its tasks, B, if it was chosen for B₀ of them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RateScaling {
    /// It does not.
    Constant,
    /// It grows with √(B/B₀), which suits Adam (Malladi et al., "On the SDEs and Scaling Rules for Adaptive Gradient Algorithms", 2022).
    SquareRoot,
    /// It grows as the progress of a step does, (B/(B + N))/(B₀/(B₀ + N)), which suits SGD (Johnson et al., "AdaScale SGD", 2020, equation 3).
    Progress,
}

impl RateScaling {
    /// Returns the factor of the learning rate of a step of `tasks` tasks. If the noise scale is not known, it is taken to be as large.
    pub(super) fn factor(self, tasks: u64, base: u64, noise: Option<f64>) -> f64 {
        let (tasks, base) = (tasks as f64, base as f64);
        let noise = noise.unwrap_or(tasks);
        match self {
            Self::Constant => 1.0,
            Self::SquareRoot => (tasks / base).sqrt(),
            Self::Progress => tasks / (tasks + noise) * (base + noise) / base,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_learning_rate_follows_the_number() {
        let factor = |scaling: RateScaling, noise| scaling.factor(64, 16, noise);
        assert_eq!(factor(RateScaling::Constant, Some(1.0)), 1.0);
        assert_eq!(factor(RateScaling::SquareRoot, Some(1.0)), 2.0);
        // With as much noise as gradient in 64 tasks: from a fifth of what a step could achieve to a half.
        assert_eq!(factor(RateScaling::Progress, None), 2.5);
        assert!((factor(RateScaling::Progress, Some(1e9)) - 4.0).abs() < 1e-6, "as the mean without a gradient");
        assert!((factor(RateScaling::Progress, Some(0.0)) - 1.0).abs() < 1e-12, "more tasks give nothing");
    }
}
