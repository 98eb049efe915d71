//! Compares the results of two workers for the same tasks.

use std::ops::Range;

use crate::exact::{GradientSum, TensorSizes, Units, power_of_two};

/// The largest relative difference between two devices, in the L2 norm. Tensor cores round factors to TF32: the gradient of ResNet-18 on an
/// H200 differs from that of a CPU by 3.2·10⁻². Plain f32 stays below 10⁻⁵.
const TOLERANCE: f64 = 5e-2;

/// The largest factor between the maxima of two devices. Units are powers of two, so a difference that matters is at least this large.
const MAXIMA_FACTOR: f64 = 2.0;

/// A worker's result for some tasks.
#[derive(Clone, Copy, Debug)]
pub struct TaskResult<'a> {
    /// The sum of the gradients.
    pub sum: &'a GradientSum,
    /// The sum of the tasks' losses.
    pub loss: f64,
    /// Whether the tasks were computed as one batch, so that the maxima are those of their mean.
    pub is_batch: bool,
}

impl TaskResult<'_> {
    /// Returns `true` if another worker's result for the same tasks is bit-identical.
    pub fn equals(&self, other: &Self) -> bool {
        self.sum == other.sum && self.loss.to_bits() == other.loss.to_bits()
    }

    /// Returns `true` if another worker's result for the same tasks, in the same units, agrees up to the rounding of different devices.
    pub fn resembles(&self, other: &Self, units: &Units, sizes: &TensorSizes) -> bool {
        let [ours, theirs] = [&self.sum.values, &other.sum.values];
        if self.sum.tasks != other.sum.tasks || [ours.len(), theirs.len()] != [sizes.values(); 2] {
            return false;
        }
        let are_close = |range: Range<usize>| {
            // The sums of squares of the difference and of both sums.
            let mut squares = [0.0; 3];
            for (exponent, piece) in units.pieces(sizes, range) {
                let unit = f64::from(power_of_two(exponent));
                for (a, b) in ours[piece.clone()].iter().zip(&theirs[piece]) {
                    let (a, b) = (f64::from(*a) * unit, f64::from(*b) * unit);
                    for (square, value) in squares.iter_mut().zip([a - b, a, b]) {
                        *square += value * value;
                    }
                }
            }
            let [apart, ours, theirs] = squares.map(f64::sqrt);
            apart <= TOLERANCE * ours.max(theirs)
        };
        let losses = (self.loss - other.loss).abs() <= TOLERANCE * self.loss.abs().max(other.loss.abs());
        // Averaged values are of another magnitude than a gradient.
        losses
            && are_close(0..sizes.trained_values())
            && are_close(sizes.trained_values()..ours.len())
            && self.accepts_maxima_of(other)
            && other.accepts_maxima_of(self)
    }

    /// Returns `true` if the maxima of another result are not too large for the same tasks. The mean of a batch may be
    /// smaller than its tasks. Tensors whose values are only rounding errors of the others are not compared.
    fn accepts_maxima_of(&self, other: &Self) -> bool {
        let [ours, theirs] = [&self.sum.maxima, &other.sum.maxima];
        let largest = |maxima: &[f32]| maxima.iter().copied().fold(0.0, f32::max);
        let negligible = TOLERANCE * f64::from(largest(ours).min(largest(theirs)));
        let is_bearable = |(a, b): (&f32, &f32)| f64::from(*b) <= MAXIMA_FACTOR * f64::from(*a) + negligible;
        self.is_batch && !other.is_batch || ours.iter().zip(theirs).all(is_bearable)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::table::{ParameterTable, TensorKind};

    fn sum(values: &[i32], maxima: [f32; 2], tasks: u64) -> GradientSum {
        GradientSum { values: values.into(), maxima: maxima.into(), saturated: 0, vanished: 0, tasks }
    }

    #[test]
    fn one_integer_is_a_difference_only_between_like_devices() {
        let sizes = TensorSizes::new([1, 1]);
        // One integer of the second tensor is worth four of the first.
        let units = Units::from_exponents(&[-10, -8], &sizes).unwrap();
        let own = sum(&[12_000, -4000], [4.0; 2], 1);
        let own = TaskResult { sum: &own, loss: 1.0, is_batch: false };
        for (values, loss, tasks, exactly, roughly) in [
            (&[12_000, -4000][..], 1.0, 1, true, true),
            (&[12_000, -4001], 1.0, 1, false, true),
            (&[12_000, -4000], 1.0 + 1e-12, 1, false, true),
            (&[13_000, -4000], 1.0, 1, false, true),
            (&[13_050, -4000], 1.0, 1, false, false),
            (&[12_000, -4270], 1.0, 1, false, false),
            (&[12_000, -4000], 1.06, 1, false, false),
            (&[-12_000, 4000], 1.0, 1, false, false),
            (&[12_000, -4000], 1.0, 2, false, false),
            (&[12_000], 1.0, 1, false, false),
        ] {
            let other = sum(values, [4.0; 2], tasks);
            let other = TaskResult { sum: &other, loss, is_batch: false };
            assert_eq!((own.equals(&other), own.resembles(&other, &units, &sizes)), (exactly, roughly), "{other:?}");
        }
        let zero = TaskResult { sum: &GradientSum::new(&sizes), loss: 0.0, is_batch: false };
        assert!(zero.resembles(&zero, &units, &sizes));
    }

    /// Small gradients are not hidden by large averaged values, nor the other way round.
    #[test]
    fn trained_and_averaged_values_are_compared_apart() {
        let mut table = ParameterTable::of_shapes(["weight", "mean"].map(|name| (name.into(), vec![1])));
        table.tensors[1].kind = TensorKind::Averaged;
        let sizes = TensorSizes::from(&table);
        for exponents in [[-20, 0], [0, -20]] {
            let units = Units::from_exponents(&exponents, &sizes).unwrap();
            let resemble = |values: [i32; 2]| {
                let [a, b] = [&values[..], &[5000, 5000]].map(|values| sum(values, [1.0; 2], 1));
                let [a, b] = [&a, &b].map(|sum| TaskResult { sum, loss: 1.0, is_batch: false });
                a.resembles(&b, &units, &sizes)
            };
            assert_eq!([[5001, 5001], [5000, 6000], [6000, 5000]].map(resemble), [true, false, false]);
        }
    }

    /// Maxima determine the next units, so right values with wrong maxima do not agree.
    #[test]
    fn maxima_compare_except_those_of_means() {
        let sizes = TensorSizes::new([1, 1]);
        let units = Units::from_exponents(&[-10, -10], &sizes).unwrap();
        let resemble = |(a, a_is_batch): ([f32; 2], bool), (b, b_is_batch): ([f32; 2], bool)| {
            let [a, b] = [a, b].map(|maxima| sum(&[8000, -4], maxima, 8));
            let a = TaskResult { sum: &a, loss: 1.0, is_batch: a_is_batch };
            let b = TaskResult { sum: &b, loss: 1.0, is_batch: b_is_batch };
            assert_eq!(a.resembles(&b, &units, &sizes), b.resembles(&a, &units, &sizes));
            a.resembles(&b, &units, &sizes)
        };
        // The expected result if the other sum is of tasks, and if it is of a batch.
        for (maxima, of_tasks, of_batch) in [
            ([4.0, 1e-3], true, true),
            ([8.0, 1e-3], true, true),
            ([2.0, 1e-3], true, true),
            ([8.3, 1e-3], false, false),
            ([1.9, 1e-3], false, true),
            ([4.0, 3e38], false, false),
            ([3e38, 3e38], false, false),
            // A small share of the other tensor's maximum is tolerated.
            ([4.0, 0.1], true, true),
            ([4.0, 0.3], false, false),
            ([4.0, 0.0], true, true),
        ] {
            let own = ([4.0, 1e-3], false);
            assert_eq!(resemble(own, (maxima, false)), of_tasks, "{maxima:?}");
            assert_eq!(resemble(own, (maxima, true)), of_batch, "{maxima:?}, a batch");
        }
        assert!(
            resemble(([0.5, 1e-3], true), ([0.5, 1e-3], true)) && !resemble(([0.5, 1e-3], true), ([3e38, 1e-3], true))
        );
    }
}
