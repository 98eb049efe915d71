//! The quadratic of the ATA paper's synthetic experiments (arXiv 2502.00775), Nesterov's worst case for gradients.
//!
//! A, b and x⁰ are the same as in its authors' earlier papers (Rennala SGD, Ringmaster ASGD). The noise is the same as in the latter.

use super::stream::{self, Normals};
use super::{Problem, bad};
use crate::spec::ExperimentError;

/// The largest number of parameters: 8 MB per stored iterate.
const MAX_DIMENSION: usize = 1_000_000;

/// A convex quadratic, from x⁰ = (√d, 0, …, 0): f(x) = ½·xᵀA·x − bᵀx with A = ¼·tridiag(−1, 2, −1) and b = ¼·(−1, 0, …, 0).
///
/// A task's loss is f(x) + ξᵀx, its gradient A·x − b + ξ, with ξ drawn from N(0, σ²) in each coordinate. The
/// eigenvalues of A are between 0 and 1, so steps below 2 converge.
#[derive(Clone, Debug)]
pub(crate) struct Quadratic {
    dimension: usize,
    sigma: f64,
    seed: u64,
}

impl Quadratic {
    pub(crate) fn new(dimension: usize, sigma: f64, seed: u64) -> Result<Self, ExperimentError> {
        if !(1..=MAX_DIMENSION).contains(&dimension) {
            return Err(bad("quadratic", "dimension", dimension as f64, "a whole number from 1 to 1000000"));
        }
        if !(sigma.is_finite() && sigma >= 0.0) {
            return Err(bad("quadratic", "sigma", sigma, "a number of at least 0"));
        }
        Ok(Self { dimension, sigma, seed })
    }

    /// Returns a coordinate of the minimizer: by A·x = b, x is linear in the coordinate and reaches 0 at d + 1.
    fn minimizer(&self, coordinate: usize) -> f64 {
        (coordinate as f64 + 1.0) / (self.dimension as f64 + 1.0) - 1.0
    }
}

impl Problem for Quadratic {
    fn initial(&self) -> Vec<f64> {
        let mut initial = vec![0.0; self.dimension];
        initial[0] = (self.dimension as f64).sqrt();
        initial
    }

    fn add_gradient(&self, parameters: &[f64], iteration: u64, index: u64, gradient: &mut [f64]) -> f64 {
        assert_eq!(parameters.len(), self.dimension);
        assert_eq!(gradient.len(), self.dimension);
        let mut noise = Normals::new(stream::of_task(self.seed, iteration, index));
        let mut loss = 0.0;
        let mut before = 0.0;
        // This is −b + ξ, the gradient at 0.
        let mut constant = 0.25;
        for (i, (&x, sum)) in parameters.iter().zip(gradient).enumerate() {
            let after = parameters.get(i + 1).copied().unwrap_or(0.0);
            if self.sigma > 0.0 {
                constant += self.sigma * noise.draw();
            }
            let curved = 0.25 * (2.0 * x - before - after);
            *sum += curved + constant;
            loss += x * (0.5 * curved + constant);
            before = x;
            constant = 0.0;
        }
        loss
    }

    fn objective(&self, parameters: &[f64]) -> f64 {
        assert_eq!(parameters.len(), self.dimension);
        // zᵀA·z is ¼ of the sum of the squared differences of neighbours, with zeros at both ends.
        let mut before = 0.0;
        let mut squares = 0.0;
        for (i, x) in parameters.iter().enumerate() {
            let z = x - self.minimizer(i);
            squares += (z - before) * (z - before);
            before = z;
        }
        (squares + before * before) / 8.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_gradient_at_the_minimizer_is_zero() {
        for dimension in [1, 2, 100] {
            let quadratic = Quadratic::new(dimension, 0.0, 0).unwrap();
            let minimizer: Vec<f64> = (0..dimension).map(|i| quadratic.minimizer(i)).collect();
            let mut gradient = vec![0.0; dimension];
            let minimum = quadratic.add_gradient(&minimizer, 0, 0, &mut gradient);
            assert!(gradient.iter().all(|g| g.abs() < 1e-16), "{gradient:?}");
            assert_eq!(quadratic.objective(&minimizer), 0.0);
            let initial = quadratic.initial();
            let excess = quadratic.add_gradient(&initial, 0, 0, &mut gradient) - minimum;
            assert!((quadratic.objective(&initial) / excess - 1.0).abs() < 1e-14);
        }
    }

    #[test]
    fn settings_without_meaning_are_refused() {
        for (dimension, sigma, message) in [
            (0, 0.01, "quadratic problem: dimension is 0, expected a whole number from 1"),
            (usize::MAX, 0.01, "expected a whole number from 1 to 1000000"),
            (3, -1.0, "sigma is -1, expected a number of at least 0"),
            (3, f64::NAN, "sigma is NaN"),
            (3, f64::INFINITY, "sigma is inf"),
        ] {
            let error = Quadratic::new(dimension, sigma, 0).unwrap_err().to_string();
            assert!(error.contains(message), "{error}");
        }
    }
}
