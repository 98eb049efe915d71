//! How noisy gradients are: the number of tasks at which the noise of their mean is as large as the gradient itself.
//!
//! The gradient of a task is the gradient G of the whole loss plus noise of variance V (the trace of its covariance). A step along the mean of
//! B tasks lowers the loss by B/(B + N) of what a step along G would, where N = V/|G|². Source: McCandlish et al., "An Empirical Model of
//! Large-Batch Training", 2018, equations 2.8 and A.1; with groups of unlike size as in "Cannikin" (arXiv 2402.05302).

use ata_types::GradientSquares;
use serde::{Deserialize, Serialize};

use super::Engine;

impl Engine {
    /// Returns the number of tasks at which the noise of their mean gradient is as large as the gradient; `None` while that is unknown.
    pub fn noise_scale(&self) -> Option<f64> {
        self.shared.noise.tasks()
    }
}

/// The weight of a step in the means: over 50 steps, gradients change little, and their noise averages out.
const WEIGHT: f64 = 1.0 / 50.0;

/// The number of standard errors by which |G|² must exceed 0. With fewer, the noise says nothing about the gradient.
const ERRORS: f64 = 2.0;

/// The means of V and |G|² over the last steps.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct NoiseScale {
    /// The means, each times the sum of the weights.
    variance: f64,
    square: f64,
    /// The mean square of the changes of |G|² from step to step, times the sum of the weights.
    changes: f64,
    /// |G|² in the last step.
    last: Option<f64>,
    /// The sum of the weights, and that of their squares.
    weight: f64,
    weight_squares: f64,
}

impl NoiseScale {
    /// Adds a step on `tasks` tasks, which were computed in `groups` batches. A single one says nothing about noise.
    pub(super) fn add(&mut self, squares: GradientSquares, tasks: u64, groups: u64) {
        if groups < 2 {
            return;
        }
        let (tasks, others) = (tasks as f64, (groups - 1) as f64);
        let variance = (squares.of_tasks - squares.of_sum / tasks) / others;
        let square = squares.of_sum / (tasks * tasks) - variance / tasks;
        let kept = 1.0 - WEIGHT;
        let next = Self {
            variance: kept * self.variance + variance,
            square: kept * self.square + square,
            changes: kept * self.changes + self.last.map_or(0.0, |last| (square - last).powi(2)),
            last: Some(square),
            weight: kept * self.weight + 1.0,
            weight_squares: kept * kept * self.weight_squares + 1.0,
        };
        if next.is_valid() {
            *self = next;
        }
    }

    /// Returns N, in tasks; `None` while it is not known.
    pub(super) fn tasks(&self) -> Option<f64> {
        let mean = |sum: f64| sum / self.weight;
        let (variance, square) = (mean(self.variance), mean(self.square));
        // Two steps differ by twice the variance of one: unlike the distance from the mean, this does not grow if |G|² falls.
        let error = (mean(self.changes) / 2.0 * self.weight_squares).sqrt() / self.weight;
        // The first steps lead far away from where they began.
        let is_known = self.weight * WEIGHT > 0.2 && square > ERRORS * error;
        is_known.then(|| (variance / square).max(0.0))
    }

    pub(super) fn is_valid(&self) -> bool {
        let Self { variance, square, changes, last, weight, weight_squares } = *self;
        let most = 1.0 / WEIGHT + 1.0;
        [variance, square, changes, last.unwrap_or(0.0)].into_iter().all(f64::is_finite)
            && [weight, weight_squares].into_iter().all(|weight| (0.0..most).contains(&weight))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::engine::random::draw;
    use ata_types::Iteration;

    /// A normal number, by the sum of twelve uniform ones.
    fn normal(seed: u64, step: u64, at: u64) -> f64 {
        (0..12).map(|part| draw(seed, Iteration(step), 12 * at + part)).sum::<f64>() - 6.0
    }

    /// The squares of a step on groups of these sizes. Each of 64 values has a gradient of `size` and noise of variance 1 in each task.
    fn squares(step: u64, groups: &[u64], size: f64) -> GradientSquares {
        let mut found = GradientSquares::default();
        for value in 0..64 {
            let mut total = 0.0;
            for (at, &tasks) in groups.iter().enumerate() {
                let noise = normal(value, step, at as u64) * (tasks as f64).sqrt();
                let sum = tasks as f64 * size + noise;
                found.of_tasks += sum * sum / tasks as f64;
                total += sum;
            }
            found.of_sum += total * total;
        }
        found
    }

    fn after(steps: u64, groups: &[u64], size: f64) -> NoiseScale {
        let mut noise = NoiseScale::default();
        for step in 1..=steps {
            noise.add(squares(step, groups, size), groups.iter().sum(), groups.len() as u64);
        }
        noise
    }

    /// N is 1/size², however tasks are grouped.
    #[test]
    fn noise_is_that_of_single_tasks() {
        for (groups, size, expected) in
            [(&[1; 24][..], 0.5, 4.0), (&[1; 24], 0.1, 100.0), (&[8, 4, 2, 1, 9], 0.5, 4.0), (&[12, 12], 0.2, 25.0)]
        {
            let found = after(300, groups, size).tasks().expect("known");
            assert!((found / expected - 1.0).abs() < 0.15, "{groups:?}, {size}: {found}");
        }
    }

    #[test]
    fn nothing_is_known_of_pure_noise_of_single_batches_and_of_the_first_steps() {
        assert_eq!(after(300, &[1; 24], 0.0).tasks(), None);
        assert_eq!(after(300, &[24], 0.5).tasks(), None);
        assert_eq!((after(5, &[1; 24], 0.5).tasks(), after(0, &[], 0.5).tasks()), (None, None));
        let mut noise = after(20, &[1; 24], 0.5);
        let before = noise;
        noise.add(GradientSquares { of_tasks: 0.0, of_sum: f64::MAX }, 24, 24);
        assert!(noise == before && noise.is_valid());
    }
}
