//! The linear regression of the bandit paper (arXiv 2202.08302), on the synthetic data of adaptive k-sync ("Adaptive
//! Distributed Stochastic Gradient Descent for Minimizing Delay in the Presence of Stragglers", Kas Hanna et al.).

use rand::{Rng, RngExt};

use super::stream::{self, Normals};
use super::{Problem, bad};
use crate::spec::ExperimentError;

/// The largest number of parameters: their normal equations take 128 MiB and are solved within a minute.
const MAX_DIMENSION: usize = 4096;
/// The largest number of samples in a task: its gradient takes about a second.
const MAX_BATCH: usize = 1_000_000;
/// The largest number of values in all samples: 1 GiB.
const MAX_VALUES: usize = 1 << 27;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct RegressionSizes {
    pub(crate) samples: usize,
    pub(crate) dimension: usize,
    pub(crate) batch: usize,
}

/// Least squares: F(w) = 1/(2m)·|X·w − y|², from w = 0.
///
/// The entries of X are uniform in {1, …, 10}, those of a hidden w̄ in {1, …, 100}, and y = X·w̄ + N(0, 1). A task's
/// loss is the same mean over `batch` samples drawn with replacement.
#[derive(Clone, Debug)]
pub(crate) struct LinearRegression {
    sizes: RegressionSizes,
    seed: u64,
    /// The d entries of X and the entry of y, sample by sample.
    samples: Vec<f64>,
    /// The factor of XᵀX/m.
    curvature: Cholesky,
    minimizer: Vec<f64>,
}

impl LinearRegression {
    pub(crate) fn new(sizes: RegressionSizes, seed: u64) -> Result<Self, ExperimentError> {
        let RegressionSizes { samples: count, dimension, batch } = sizes;
        for (setting, found, most, expected) in [
            ("dimension", dimension, MAX_DIMENSION, "a whole number from 1 to 4096"),
            ("batch", batch, MAX_BATCH, "a whole number from 1 to 1000000"),
        ] {
            if !(1..=most).contains(&found) {
                return Err(bad_size(setting, found, expected));
            }
        }
        if count < dimension {
            return Err(bad_size("samples", count, "at least dimension"));
        }
        if count > MAX_VALUES / (dimension + 1) {
            return Err(bad_size("samples", count, "2^27 numbers at most, of which each has dimension + 1"));
        }
        let samples = draw_samples(&sizes, seed);
        let (gram, moments) = normal_equations(&samples, dimension);
        let curvature = Cholesky::factor(gram, dimension).ok_or_else(|| {
            let what = format!("its {count} samples of dimension {dimension} do not determine the parameters");
            ExperimentError::Invalid(format!("linear regression problem: {what}, expected more samples"))
        })?;
        let minimizer = curvature.solve(moments);
        Ok(Self { sizes, seed, samples, curvature, minimizer })
    }

    fn sample(&self, sample: usize) -> (&[f64], f64) {
        let row = &self.samples[sample * (self.sizes.dimension + 1)..][..=self.sizes.dimension];
        (&row[..self.sizes.dimension], row[self.sizes.dimension])
    }
}

fn bad_size(setting: &str, found: usize, expected: &str) -> ExperimentError {
    bad("linear regression", setting, found as f64, expected)
}

fn draw_samples(sizes: &RegressionSizes, seed: u64) -> Vec<f64> {
    let mut rng = stream::of_data(seed);
    let hidden: Vec<f64> = (0..sizes.dimension).map(|_| one_to(100, &mut rng)).collect();
    let mut samples = Vec::with_capacity(sizes.samples * (sizes.dimension + 1));
    for _ in 0..sizes.samples {
        let mut product = 0.0;
        for w in &hidden {
            let x = one_to(10, &mut rng);
            product += x * w;
            samples.push(x);
        }
        samples.push(product);
    }
    let mut noise = Normals::new(rng);
    for row in samples.chunks_exact_mut(sizes.dimension + 1) {
        row[sizes.dimension] += noise.draw();
    }
    samples
}

fn one_to(largest: u32, rng: &mut impl Rng) -> f64 {
    f64::from(rng.random_range(1..=largest))
}

/// Returns the lower half of XᵀX/m, row by row, and Xᵀy/m.
fn normal_equations(samples: &[f64], dimension: usize) -> (Vec<f64>, Vec<f64>) {
    let mut gram = vec![0.0; dimension * dimension];
    let mut moments = vec![0.0; dimension];
    let rows = samples.chunks_exact(dimension + 1);
    let share = 1.0 / rows.len() as f64;
    for row in rows {
        let (x, y) = (&row[..dimension], row[dimension]);
        add_multiple(y * share, x, &mut moments);
        for (i, entry) in x.iter().enumerate() {
            add_multiple(entry * share, &x[..=i], &mut gram[i * dimension..]);
        }
    }
    (gram, moments)
}

fn add_multiple(factor: f64, vector: &[f64], sum: &mut [f64]) {
    for (sum, entry) in sum.iter_mut().zip(vector) {
        *sum += factor * entry;
    }
}

/// Returns the dot product. It uses four sums because additions to a single sum would wait for each other.
fn dot(left: &[f64], right: &[f64]) -> f64 {
    let (left, left_rest) = left.as_chunks::<4>();
    let (right, right_rest) = right.as_chunks::<4>();
    let mut sums = [0.0; 4];
    for (a, b) in left.iter().zip(right) {
        for lane in 0..4 {
            sums[lane] += a[lane] * b[lane];
        }
    }
    let rest: f64 = left_rest.iter().zip(right_rest).map(|(a, b)| a * b).sum();
    (sums[0] + sums[1]) + (sums[2] + sums[3]) + rest
}

impl Problem for LinearRegression {
    fn initial(&self) -> Vec<f64> {
        vec![0.0; self.sizes.dimension]
    }

    fn add_gradient(&self, parameters: &[f64], iteration: u64, index: u64, gradient: &mut [f64]) -> f64 {
        assert_eq!(parameters.len(), self.sizes.dimension);
        assert_eq!(gradient.len(), self.sizes.dimension);
        let mut rng = stream::of_task(self.seed, iteration, index);
        let samples = self.sizes.samples as u64;
        let share = 1.0 / self.sizes.batch as f64;
        let mut squares = 0.0;
        for _ in 0..self.sizes.batch {
            let (x, y) = self.sample(rng.random_range(0..samples) as usize);
            let residual = dot(x, parameters) - y;
            squares += residual * residual;
            add_multiple(residual * share, x, gradient);
        }
        0.5 * share * squares
    }

    fn objective(&self, parameters: &[f64]) -> f64 {
        assert_eq!(parameters.len(), self.sizes.dimension);
        let distance: Vec<f64> = parameters.iter().zip(&self.minimizer).map(|(w, best)| w - best).collect();
        0.5 * self.curvature.square(&distance)
    }
}

/// The factor L of a positive definite matrix L·Lᵀ, row by row.
#[derive(Clone, Debug)]
struct Cholesky {
    dimension: usize,
    lower: Vec<f64>,
}

impl Cholesky {
    /// Factors a symmetric matrix, of which the lower half is read; `None` if it is not positive definite, or nearly singular.
    fn factor(mut matrix: Vec<f64>, dimension: usize) -> Option<Self> {
        for row in 0..dimension {
            for column in 0..=row {
                let (above, below) = matrix.split_at_mut(row * dimension);
                let pivot_row = if column < row { &above[column * dimension..] } else { &*below };
                let left: f64 = below[..column].iter().zip(pivot_row).map(|(a, b)| a * b).sum();
                let rest = below[column] - left;
                if column < row {
                    below[column] = rest / pivot_row[column];
                } else if rest > below[column] * 1e-12 {
                    below[column] = rest.sqrt();
                } else {
                    return None;
                }
            }
        }
        Some(Self { dimension, lower: matrix })
    }

    fn row(&self, row: usize) -> &[f64] {
        &self.lower[row * self.dimension..][..=row]
    }

    /// Solves L·Lᵀ·x = `right`.
    fn solve(&self, mut right: Vec<f64>) -> Vec<f64> {
        for row in 0..self.dimension {
            let (left, diagonal) = self.row(row).split_at(row);
            let known: f64 = left.iter().zip(&right).map(|(l, x)| l * x).sum();
            right[row] = (right[row] - known) / diagonal[0];
        }
        for row in (0..self.dimension).rev() {
            let (left, diagonal) = self.row(row).split_at(row);
            let x = right[row] / diagonal[0];
            right[row] = x;
            for (rest, l) in right.iter_mut().zip(left) {
                *rest -= l * x;
            }
        }
        right
    }

    /// Returns the squared norm of `vector` with respect to the matrix, |Lᵀ·v|²: never negative.
    fn square(&self, vector: &[f64]) -> f64 {
        let mut image = vec![0.0; self.dimension];
        for (row, v) in vector.iter().enumerate() {
            for (sum, l) in image.iter_mut().zip(self.row(row)) {
                *sum += l * v;
            }
        }
        image.iter().map(|x| x * x).sum()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SMALL: RegressionSizes = RegressionSizes { samples: 60, dimension: 7, batch: 5 };
    const USUAL: RegressionSizes = RegressionSizes { samples: 2000, dimension: 100, batch: 40 };

    /// Computes F and its gradient by the definition.
    fn full(problem: &LinearRegression, parameters: &[f64]) -> (f64, Vec<f64>) {
        let m = problem.sizes.samples;
        let mut loss = 0.0;
        let mut gradient = vec![0.0; parameters.len()];
        for (x, y) in (0..m).map(|sample| problem.sample(sample)) {
            let residual = dot(x, parameters) - y;
            loss += residual * residual / (2 * m) as f64;
            add_multiple(residual / m as f64, x, &mut gradient);
        }
        (loss, gradient)
    }

    #[test]
    fn the_objective_is_the_excess_over_the_minimum() {
        for sizes in [SMALL, USUAL, RegressionSizes { samples: 1, dimension: 1, batch: 1 }] {
            let problem = LinearRegression::new(sizes, 3).unwrap();
            let initial = problem.initial();
            let ((start, at_start), (minimum, gradient)) =
                (full(&problem, &initial), full(&problem, &problem.minimizer));
            assert!(gradient.iter().zip(&at_start).all(|(g, scale)| g.abs() < 1e-12 * scale.abs()), "{gradient:?}");
            assert!((problem.objective(&initial) / (start - minimum) - 1.0).abs() < 1e-12);
            assert_eq!(problem.objective(&problem.minimizer), 0.0);
        }
    }

    #[test]
    fn settings_without_meaning_are_refused() {
        for (sizes, message) in [
            (RegressionSizes { dimension: 0, ..SMALL }, "dimension is 0, expected a whole number from 1 to 4096"),
            (RegressionSizes { batch: 0, ..SMALL }, "batch is 0, expected a whole number from 1"),
            (RegressionSizes { samples: usize::MAX, ..SMALL }, "expected 2^27 numbers at most"),
            (RegressionSizes { dimension: usize::MAX, ..SMALL }, "expected a whole number from 1 to 4096"),
            (RegressionSizes { batch: usize::MAX, ..SMALL }, "expected a whole number from 1 to 1000000"),
            (RegressionSizes { samples: 6, ..SMALL }, "samples is 6, expected at least dimension"),
        ] {
            let error = LinearRegression::new(sizes, 0).unwrap_err().to_string();
            assert!(error.contains(message), "{error}");
        }
    }

    /// Of a thousand pairs of samples with two entries each, some are parallel.
    #[test]
    fn dependent_samples_are_refused() {
        let sizes = RegressionSizes { samples: 2, dimension: 2, batch: 1 };
        let refused = (0..1000).filter_map(|seed| LinearRegression::new(sizes, seed).err()).collect::<Vec<_>>();
        assert!(refused.len() > 10 && refused.len() < 200, "{}", refused.len());
        assert!(refused[0].to_string().contains("2 samples of dimension 2"));
    }

    #[test]
    fn refuses_what_is_not_positive_definite() {
        for matrix in [[1.0, 2.0, 2.0, 1.0], [1.0, 3.0, 3.0, 9.0], [0.0; 4], [f64::NAN; 4]] {
            assert!(Cholesky::factor(matrix.to_vec(), 2).is_none(), "{matrix:?}");
        }
    }
}
