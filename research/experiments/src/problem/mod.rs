//! Learning problems that a simulated run actually optimizes. Each task is a stochastic gradient.
//!
//! They come from the papers' synthetic experiments, and their minimum is known.
//!
//! # Layout
//! - `quadratic`: [`Quadratic`], of the ATA paper
//! - `linear_regression`: [`LinearRegression`], of the bandit paper
//! - `cholesky`: normal equations
//! - `stream`: random numbers

mod cholesky;
mod linear_regression;
mod quadratic;
mod stream;
#[cfg(test)]
mod tests;

pub use linear_regression::{LinearRegression, RegressionSizes};
pub use quadratic::Quadratic;

/// A function to minimize by stochastic gradients.
///
/// The same arguments give the same bits, on every platform and in any order of calls.
pub trait Problem: Send + Sync {
    /// The parameters before the first step.
    fn initial(&self) -> Vec<f64>;

    /// Adds the gradient of task `index` of iteration `iteration` at `parameters` to `gradient`; returns the task's
    /// loss there.
    ///
    /// Its randomness depends only on the problem's seed, the iteration and the index.
    ///
    /// # Panics
    /// Panics if `parameters` or `gradient` differs in length from [`Problem::initial`].
    fn add_gradient(&self, parameters: &[f64], iteration: u64, index: u64, gradient: &mut [f64]) -> f64;

    /// Returns the excess of the expected loss at `parameters` over its minimum, without noise and without cancellation.
    ///
    /// # Panics
    /// Panics if `parameters` differs in length from [`Problem::initial`].
    fn objective(&self, parameters: &[f64]) -> f64;
}

/// An error of setting up a problem.
#[derive(Debug, thiserror::Error)]
pub enum ProblemError {
    /// A setting is invalid.
    #[error("{problem} problem: {setting} is {found}, expected {expected}")]
    BadSetting {
        /// The problem.
        problem: &'static str,
        /// The name of the setting.
        setting: &'static str,
        /// The value of the setting.
        found: f64,
        /// The expected values.
        expected: &'static str,
    },
    /// The minimizer of the regression is not unique.
    #[error(
        "linear regression problem: its {samples} samples of dimension {dimension} do not determine the parameters, \
         expected more samples"
    )]
    DependentSamples {
        /// The number of samples.
        samples: usize,
        /// The dimension of a sample.
        dimension: usize,
    },
}
