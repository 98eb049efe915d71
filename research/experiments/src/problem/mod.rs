//! Learning problems that a simulated run really optimizes; each task is a stochastic gradient.
//!
//! They come from the papers' synthetic experiments, and their minimum is known.
//!
//! # Layout
//! - `quadratic`: [`Quadratic`], of the ATA paper
//! - `linear_regression`: [`LinearRegression`], of the bandit paper
//! - `cholesky`: normal equations
//! - `stream`: the random numbers

mod cholesky;
mod linear_regression;
mod quadratic;
mod stream;
#[cfg(test)]
mod tests;

pub use linear_regression::{LinearRegression, RegressionSizes};
pub use quadratic::Quadratic;

/// Something to minimize by stochastic gradients.
///
/// The same arguments give the same bits, on every platform and in any order of calls.
pub trait Problem: Send + Sync {
    /// The parameters before the first step.
    fn initial(&self) -> Vec<f64>;

    /// Adds the gradient of task `index` of iteration `iteration` at `parameters` to `gradient`; returns the task's
    /// loss there, whose gradient it is.
    ///
    /// Its randomness depends only on the problem's seed, the iteration and the index.
    ///
    /// # Panics
    /// If `parameters` or `gradient` is not as long as [`Problem::initial`].
    fn add_gradient(&self, parameters: &[f64], iteration: u64, index: u64, gradient: &mut [f64]) -> f64;

    /// How far the expected loss at `parameters` is above its minimum, without noise and without cancellation.
    ///
    /// # Panics
    /// If `parameters` is not as long as [`Problem::initial`].
    fn objective(&self, parameters: &[f64]) -> f64;
}

/// Why a problem cannot be set up.
#[derive(Debug, thiserror::Error)]
pub enum ProblemError {
    /// A setting makes no sense.
    #[error("{problem} problem: {setting} is {found}, expected {expected}")]
    BadSetting {
        /// Which problem.
        problem: &'static str,
        /// Which setting.
        setting: &'static str,
        /// Its value.
        found: f64,
        /// What is expected.
        expected: &'static str,
    },
    /// The minimum of the regression is not at one point.
    #[error(
        "linear regression problem: its {samples} samples of dimension {dimension} do not determine the parameters, \
         expected more samples"
    )]
    DependentSamples {
        /// How many samples were drawn.
        samples: usize,
        /// How many numbers each has.
        dimension: usize,
    },
}
