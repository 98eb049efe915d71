//! Combines the gradients of an iteration into an estimate that a few wrong ones cannot move far.
//!
//! The coordinate-wise median and trimmed mean are those of Yin, Chen, Ramchandran, Bartlett, "Byzantine-Robust Distributed
//! Learning: Towards Optimal Statistical Rates" (ICML 2018). They are taken over the collections of an iteration, of which
//! each counts with its mean gradient, however many tasks it has.

#![allow(
    clippy::inline_always,
    reason = "what a kernel calls is compiled for its instructions only if it is a part of it"
)]

use std::fmt;
use std::str::FromStr;

use crate::exact::{GradientSum, TensorSizes, Units};
use crate::spread::{RANGE, spread};

/// How the gradients of an iteration are combined.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub enum Aggregate {
    /// The mean over tasks, of exact sums: the same bits for every allocation.
    #[default]
    Mean,
    /// The median over collections, coordinate by coordinate.
    Median,
    /// The mean over collections without this share of the lowest and of the highest values, coordinate by coordinate; below ½.
    Trimmed(f64),
}

/// The text does not name an [`Aggregate`].
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("'{0}': expected mean, median, or trimmed:X with a share X from 0 to below 0.5")]
pub struct AggregateError(String);

impl FromStr for Aggregate {
    type Err = AggregateError;

    fn from_str(text: &str) -> Result<Self, AggregateError> {
        let share = || text.strip_prefix("trimmed:")?.parse().ok().filter(|share| (0.0..0.5).contains(share));
        match text {
            "mean" => Ok(Self::Mean),
            "median" => Ok(Self::Median),
            _ => share().map(Self::Trimmed).ok_or_else(|| AggregateError(text.into())),
        }
    }
}

impl fmt::Display for Aggregate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Mean => f.write_str("mean"),
            Self::Median => f.write_str("median"),
            Self::Trimmed(share) => write!(f, "trimmed:{share}"),
        }
    }
}

impl Aggregate {
    /// How many sorted values are left out at either end; the estimate is the mean of the rest.
    fn left_out(self, values: usize) -> usize {
        match self {
            Self::Mean => 0,
            Self::Median => (values - 1) / 2,
            Self::Trimmed(share) => (share * values as f64) as usize,
        }
    }
}

impl Aggregate {
    /// The mean gradient of a task, as estimated from the sums of an iteration's collections.
    ///
    /// # Panics
    /// If there is no sum, or one is of another model.
    pub fn gradient(self, sums: &[GradientSum], units: &Units, sizes: &TensorSizes) -> Vec<f32> {
        if self == Self::Mean {
            return mean(sums, units, sizes);
        }
        let mut gradient = vec![0.0; sizes.values()];
        let rows = Rows { sums, units, sizes, comparisons: network(sums.len()), out: self.left_out(sums.len()) };
        spread(gradient.chunks_mut(RANGE).enumerate().collect(), |(at, range)| rows.estimate(at * RANGE, range));
        gradient
    }

    /// The estimate of one number per collection, such as the mean loss of its tasks.
    ///
    /// # Panics
    /// If there is no number.
    pub fn number(self, mut numbers: Vec<f64>) -> f64 {
        numbers.sort_by(f64::total_cmp);
        let out = self.left_out(numbers.len());
        let kept = &numbers[out..numbers.len() - out];
        kept.iter().sum::<f64>() / kept.len() as f64
    }
}

/// Coordinates that are sorted together: the values of 32 collections fit a core's first cache.
const BLOCK: usize = 256;

/// The comparisons that sort `count` values: Batcher's merge exchange (Knuth, TAOCP volume 3, algorithm 5.2.2 M). They do not
/// depend on the values, so that whole registers of coordinates are sorted at once.
fn network(count: usize) -> Vec<(usize, usize)> {
    let mut comparisons = Vec::new();
    let top = count.next_power_of_two() / 2;
    let mut p = top;
    while p > 0 {
        let (mut q, mut r, mut d) = (top, 0, p);
        loop {
            let at_distance = (0..count.saturating_sub(d)).filter(|i| i & p == r);
            comparisons.extend(at_distance.map(|i| (i, i + d)));
            if q == p {
                break;
            }
            (d, r) = (q - p, p);
            q /= 2;
        }
        p /= 2;
    }
    comparisons
}

fn mean(sums: &[GradientSum], units: &Units, sizes: &TensorSizes) -> Vec<f32> {
    let mut total = GradientSum::new(sizes);
    for sum in sums {
        total.merge(sum);
    }
    let mut gradient = units.values(sizes, &total.values);
    scale(&mut gradient, total.tasks);
    gradient
}

/// Makes the sum of so many tasks their mean.
fn scale(sum: &mut [f32], tasks: u64) {
    let share = 1.0 / tasks as f32;
    for value in sum {
        *value *= share;
    }
}

/// The sums of which coordinates are estimated.
struct Rows<'a> {
    sums: &'a [GradientSum],
    units: &'a Units,
    sizes: &'a TensorSizes,
    comparisons: Vec<(usize, usize)>,
    /// How many sorted values are left out at either end.
    out: usize,
}

impl Rows<'_> {
    /// Estimates the coordinates from `first` on.
    fn estimate(&self, first: usize, result: &mut [f32]) {
        let mut block = vec![0.0; self.sums.len() * BLOCK];
        for (at, result) in result.chunks_mut(BLOCK).enumerate() {
            let first = first + at * BLOCK;
            for (sum, values) in self.sums.iter().zip(block.chunks_mut(BLOCK)) {
                let values = &mut values[..result.len()];
                self.units.write_values(self.sizes, first, &sum.values[first..first + result.len()], values);
                scale(values, sum.tasks);
            }
            // Compiled for each width of registers; no coordinate depends on its neighbours, so the bits are the same.
            ata_nn::vectorized(
                #[inline(always)]
                || self.estimate_block(&mut block, result),
            );
        }
    }

    /// The mean of each coordinate's sorted values without those that are left out.
    #[inline(always)]
    fn estimate_block(&self, block: &mut [f32], result: &mut [f32]) {
        for &(low, high) in &self.comparisons {
            let (before, after) = block.split_at_mut(high * BLOCK);
            for (low, high) in before[low * BLOCK..][..BLOCK].iter_mut().zip(&mut after[..BLOCK]) {
                (*low, *high) = if *high < *low { (*high, *low) } else { (*low, *high) };
            }
        }
        let kept = self.sums.len() - 2 * self.out;
        result.fill(0.0);
        for values in block.chunks(BLOCK).skip(self.out).take(kept) {
            for (result, value) in result.iter_mut().zip(values) {
                *result += value;
            }
        }
        scale(result, kept as u64);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const UNIT: f32 = 1.0 / 16.0;

    /// Units and sizes of one tensor.
    fn of_one_tensor(length: usize) -> (Units, TensorSizes) {
        let sizes = TensorSizes::new([length]);
        (Units::from_exponents(&[-4], &sizes).unwrap(), sizes)
    }

    fn sum(tasks: u64, values: Vec<i32>) -> GradientSum {
        GradientSum { values, maxima: vec![0.0], saturated: 0, vanished: 0, tasks }
    }

    /// The definition, value by value.
    fn expected(aggregate: Aggregate, mut values: Vec<f32>) -> f32 {
        values.sort_by(f32::total_cmp);
        let n = values.len();
        let kept = match aggregate {
            Aggregate::Median if n % 2 == 1 => &values[n / 2..=n / 2],
            Aggregate::Median => &values[n / 2 - 1..=n / 2],
            Aggregate::Trimmed(share) => {
                let out = (share * n as f64).floor() as usize;
                &values[out..n - out]
            }
            Aggregate::Mean => &values[..],
        };
        kept.iter().sum::<f32>() * (1.0 / kept.len() as f32)
    }

    proptest! {
        #[test]
        fn every_coordinate_is_the_median_or_trimmed_mean_of_the_means(
            tasks in prop::collection::vec(1u64..9, 1..40),
            length in prop_oneof![1usize..9, Just(BLOCK + 3), Just(RANGE + BLOCK + 1)],
            seed in any::<u32>(),
        ) {
            let value = |row: usize, at: usize| i32::try_from((row * 7919 + at * 104_729 + seed as usize) % 1009).unwrap() - 496;
            let rows = tasks.iter().enumerate();
            let sums: Vec<GradientSum> =
                rows.map(|(row, tasks)| sum(*tasks, (0..length).map(|at| value(row, at)).collect())).collect();
            let (units, sizes) = of_one_tensor(length);
            for aggregate in [Aggregate::Median, Aggregate::Trimmed(0.2), Aggregate::Trimmed(0.0), Aggregate::Trimmed(0.49)] {
                let gradient = aggregate.gradient(&sums, &units, &sizes);
                prop_assert_eq!(gradient.len(), length);
                for at in (0..length).step_by(1 + length / 50) {
                    let values = sums.iter().map(|sum| sum.values[at] as f32 * UNIT * (1.0 / sum.tasks as f32));
                    prop_assert_eq!(gradient[at], expected(aggregate, values.collect()), "{} at {}", aggregate, at);
                }
            }
        }
    }

    /// Fewer wrong collections than are left out cannot move the estimate out of the range of the others.
    #[test]
    fn the_wrong_ones_are_left_out() {
        let (units, sizes) = of_one_tensor(3);
        for wrong in [i32::MAX, i32::MIN, 999] {
            let values = [16, 24, 32, wrong, wrong];
            let sums = values.map(|value| sum(1, vec![value; 3]));
            for aggregate in [Aggregate::Median, Aggregate::Trimmed(0.4)] {
                let gradient = aggregate.gradient(&sums, &units, &sizes);
                let loss = aggregate.number(values.map(f64::from).to_vec());
                assert!(
                    (1.0..=2.0).contains(&gradient[0]) && (16.0..=32.0).contains(&loss),
                    "{aggregate}: {gradient:?}"
                );
            }
        }
    }

    /// Each task counts alike, however many a collection has.
    #[test]
    fn the_mean_is_that_of_the_tasks() {
        let (units, sizes) = of_one_tensor(2);
        let sums = [sum(2, vec![16, 32]), sum(1, vec![48, 64])];
        assert_eq!(Aggregate::Mean.gradient(&sums, &units, &sizes), [4.0 * (1.0 / 3.0), 2.0]);
    }

    #[test]
    fn names_are_read_and_written_alike() {
        for text in ["mean", "median", "trimmed:0.2", "trimmed:0"] {
            assert_eq!(text.parse::<Aggregate>().unwrap().to_string(), text);
        }
        for text in ["", "Mean", "trimmed", "trimmed:", "trimmed:0.5", "trimmed:-0.1", "trimmed:NaN", "krum"] {
            assert!(text.parse::<Aggregate>().is_err(), "{text}");
        }
    }
}
