//! Compares the results of two workers for the same tasks.

use crate::exact::{GradientSum, TensorSizes, Units, power_of_two};

/// Largest relative difference between two devices, in the L2 norm: tensor cores round inputs to the 11 bits of TF32, which
/// is 5·10⁻⁴, and plain f32 stays below 10⁻⁵.
const TOLERANCE: f64 = 1e-3;

/// A worker's result for some tasks.
#[derive(Clone, Copy, Debug)]
pub struct TaskResult<'a> {
    /// The gradients' sum.
    pub sum: &'a GradientSum,
    /// Σ loss over the tasks.
    pub loss: f64,
}

impl TaskResult<'_> {
    /// Whether another worker's result for the same tasks is the same, bit by bit.
    pub fn equals(&self, other: &Self) -> bool {
        self.sum == other.sum && self.loss.to_bits() == other.loss.to_bits()
    }

    /// Whether another worker's result for the same tasks, in the same units, agrees within the rounding of different devices.
    pub fn resembles(&self, other: &Self, units: &Units, sizes: &TensorSizes) -> bool {
        let [ours, theirs] = [&self.sum.values, &other.sum.values];
        if self.sum.tasks != other.sum.tasks || [ours.len(), theirs.len()] != [sizes.values(); 2] {
            return false;
        }
        // The squares of the difference and of both sums.
        let mut squares = [0.0; 3];
        for (exponent, piece) in units.pieces(sizes, 0..ours.len()) {
            let unit = f64::from(power_of_two(exponent));
            for (a, b) in ours[piece.clone()].iter().zip(&theirs[piece]) {
                let (a, b) = (f64::from(*a) * unit, f64::from(*b) * unit);
                for (square, value) in squares.iter_mut().zip([a - b, a, b]) {
                    *square += value * value;
                }
            }
        }
        let [apart, ours, theirs] = squares.map(f64::sqrt);
        let losses = (self.loss - other.loss).abs() <= TOLERANCE * self.loss.abs().max(other.loss.abs());
        losses && apart <= TOLERANCE * ours.max(theirs)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn result(sum: &GradientSum, loss: f64) -> TaskResult<'_> {
        TaskResult { sum, loss }
    }

    #[test]
    fn one_integer_is_a_difference_only_between_like_devices() {
        let sizes = TensorSizes::new([1, 1]);
        // The second tensor's integers are worth four times as much.
        let units = Units::from_exponents(&[-10, -8], &sizes).unwrap();
        let sum = |values: &[i32], tasks| GradientSum {
            values: values.into(),
            maxima: vec![4.0; 2],
            saturated: 0,
            vanished: 0,
            tasks,
        };
        let one = sum(&[12_000, -4000], 1);
        for (values, loss, tasks, exactly, roughly) in [
            (&[12_000, -4000][..], 1.0, 1, true, true),
            (&[12_000, -4001], 1.0, 1, false, true),
            (&[12_000, -4000], 1.0 + 1e-12, 1, false, true),
            (&[12_019, -4000], 1.0, 1, false, true),
            (&[12_021, -4000], 1.0, 1, false, false),
            (&[12_000, -4006], 1.0, 1, false, false),
            (&[12_000, -4000], 1.01, 1, false, false),
            (&[-12_000, 4000], 1.0, 1, false, false),
            (&[12_000, -4000], 1.0, 2, false, false),
            (&[12_000], 1.0, 1, false, false),
        ] {
            let other = sum(values, tasks);
            let (one, other) = (result(&one, 1.0), result(&other, loss));
            assert_eq!((one.equals(&other), one.resembles(&other, &units, &sizes)), (exactly, roughly), "{other:?}");
        }
        let zero = GradientSum::new(&sizes);
        assert!(result(&zero, 0.0).resembles(&result(&zero, 0.0), &units, &sizes));
    }
}
