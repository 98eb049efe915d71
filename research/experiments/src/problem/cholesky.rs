//! Positive definite systems of linear equations.

/// The factor L of a positive definite matrix L·Lᵀ, row by row.
#[derive(Clone, Debug)]
pub(super) struct Cholesky {
    dimension: usize,
    lower: Vec<f64>,
}

impl Cholesky {
    /// Factors a symmetric matrix, given row by row, of which the lower half is read. Returns `None` if it is not
    /// positive definite, or so nearly singular that solutions would be meaningless.
    pub(super) fn factor(mut matrix: Vec<f64>, dimension: usize) -> Option<Self> {
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
    pub(super) fn solve(&self, mut right: Vec<f64>) -> Vec<f64> {
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
    pub(super) fn square(&self, vector: &[f64]) -> f64 {
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

    #[test]
    fn refuses_what_is_not_positive_definite() {
        for matrix in [[1.0, 2.0, 2.0, 1.0], [1.0, 3.0, 3.0, 9.0], [0.0; 4], [f64::NAN; 4]] {
            assert!(Cholesky::factor(matrix.to_vec(), 2).is_none(), "{matrix:?}");
        }
    }
}
