//! How the number of tasks of an iteration is chosen, and how the learning rate follows it.

use std::sync::Arc;

use crate::goodput::progress;

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

impl TaskChoice {
    /// Makes iterations rounds of local steps, of so many tasks at least and at most.
    pub const fn of_rounds(least: u64, most: u64) -> Self {
        Self { rule: TaskRule::Exchange, least, most, rate: RateScaling::Constant }
    }
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

/// How the learning rate of a step follows the number of its tasks, B, if it was chosen for steps on single tasks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RateScaling {
    /// It does not.
    Constant,
    /// It grows with √B, which suits Adam (Malladi et al., "On the SDEs and Scaling Rules for Adaptive Gradient Algorithms", 2022).
    SquareRoot,
    /// It grows as the progress of a step does, (B/(B + N))/(1/(1 + N)), which suits SGD (Johnson et al., "AdaScale SGD", 2020, equation 3).
    Progress,
}

impl RateScaling {
    /// Returns the factor of the learning rate of a step of `tasks` tasks. If the noise scale is not known, it is taken to be as large.
    pub(super) fn factor(self, tasks: u64, noise: Option<f64>) -> f64 {
        let tasks = tasks as f64;
        let noise = noise.unwrap_or(tasks);
        match self {
            Self::Constant => 1.0,
            Self::SquareRoot => tasks.sqrt(),
            Self::Progress => progress(tasks, noise) / progress(1.0, noise),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_learning_rate_follows_the_number() {
        let factor = |scaling: RateScaling, noise| scaling.factor(64, noise);
        assert_eq!(factor(RateScaling::Constant, Some(1.0)), 1.0);
        assert_eq!(factor(RateScaling::SquareRoot, Some(1.0)), 8.0);
        // With as much noise as gradient in 64 tasks: from one in 65 of what a step could achieve to a half.
        assert_eq!(factor(RateScaling::Progress, None), 32.5);
        assert!((factor(RateScaling::Progress, Some(1e9)) - 64.0).abs() < 1e-5, "as the mean without a gradient");
        assert!((factor(RateScaling::Progress, Some(0.0)) - 1.0).abs() < 1e-12, "more tasks give nothing");
    }
}
