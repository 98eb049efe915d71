//! Learning problems that a simulated run actually optimizes. Each task is a stochastic gradient.
//!
//! They come from the papers' synthetic experiments, and their minimum is known.
//!
//! # Layout
//! - `quadratic`: [`Quadratic`], of the ATA paper
//! - `linear_regression`: [`LinearRegression`], of the bandit paper
//! - `stream`: random numbers

mod linear_regression;
mod quadratic;
mod stream;
#[cfg(test)]
mod tests;

pub(crate) use linear_regression::{LinearRegression, RegressionSizes};
pub(crate) use quadratic::Quadratic;

use crate::spec::ExperimentError;

/// A function to minimize by stochastic gradients.
///
/// The same arguments give the same bits, on every platform and in any order of calls.
pub(crate) trait Problem: Send + Sync {
    /// The parameters before the first step.
    fn initial(&self) -> Vec<f64>;

    /// Adds the gradient of task `index` of iteration `iteration` at `parameters` to `gradient`; returns the task's loss there.
    ///
    /// Its randomness depends only on the problem's seed, the iteration and the index.
    fn add_gradient(&self, parameters: &[f64], iteration: u64, index: u64, gradient: &mut [f64]) -> f64;

    /// Returns the excess of the expected loss at `parameters` over its minimum, without noise and without cancellation.
    fn objective(&self, parameters: &[f64]) -> f64;
}

/// Returns the error of an invalid setting of a problem.
fn bad(problem: &str, setting: &str, found: f64, expected: &str) -> ExperimentError {
    ExperimentError::Invalid(format!("{problem} problem: {setting} is {found}, expected {expected}"))
}
