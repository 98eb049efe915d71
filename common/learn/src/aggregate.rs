//! Combines the gradients of an iteration: into their mean, or into an estimate that a few wrong ones cannot move far.
//!
//! The coordinate-wise median and trimmed mean are those of Yin, Chen, Ramchandran, Bartlett, "Byzantine-Robust Distributed
//! Learning: Towards Optimal Statistical Rates" (ICML 2018). They are taken over the leases of an iteration, of which each
//! counts with its mean gradient, however many tasks it has.

#![allow(
    clippy::inline_always,
    reason = "what a kernel calls is compiled for its instructions only if it is a part of it"
)]

use std::fmt;
use std::str::FromStr;

use crate::reduction::{Partial, Reduction};
use crate::spread::spread;

/// How the gradients of an iteration are combined.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub enum Aggregate {
    /// The mean over tasks, summed in one fixed order: the same bits for every allocation.
    #[default]
    Mean,
    /// The median over leases, coordinate by coordinate.
    Median,
    /// The mean over leases without this share of the lowest and of the highest values, coordinate by coordinate; below ½.
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

/// The combined gradients of an iteration.
#[derive(Clone, Debug, PartialEq)]
pub struct Estimate {
    /// Divided by `divisor`, the gradient of the step.
    pub gradient: Vec<f32>,
    /// The number of tasks if `gradient` is a sum, else 1.
    pub divisor: u64,
    /// Loss per task.
    pub loss: f64,
}

/// Collects the partials of one iteration, in any order.
#[derive(Debug)]
pub struct Aggregator {
    aggregate: Aggregate,
    /// Used for the mean.
    reduction: Reduction,
    /// Used for the other estimates: the partials of all leases.
    partials: Vec<Partial>,
    spent: Vec<Vec<f32>>,
}

impl Aggregator {
    /// Creates an empty aggregator.
    pub fn new(aggregate: Aggregate) -> Self {
        Self { aggregate, reduction: Reduction::default(), partials: Vec::new(), spent: Vec::new() }
    }

    /// Adds a partial that overlaps no other.
    pub fn add(&mut self, partial: Partial) {
        match self.aggregate {
            Aggregate::Mean => self.reduction.add(partial),
            Aggregate::Median | Aggregate::Trimmed(_) => self.partials.push(partial),
        }
    }

    /// Combines the partials of `tasks` tasks that were added since the last call; `None` if there were none.
    pub fn finish(&mut self, tasks: u64) -> Option<Estimate> {
        if self.aggregate == Aggregate::Mean {
            let Partial { gradient, loss, .. } = self.reduction.finish()?;
            return Some(Estimate { gradient, divisor: tasks, loss: loss / tasks as f64 });
        }
        let mut gradient = vec![0.0; self.partials.first()?.gradient.len()];
        let mut partials = std::mem::take(&mut self.partials);
        let rows: Vec<Row<'_>> = partials.iter().map(Row::new).collect();
        let mut losses: Vec<f64> = partials.iter().map(|partial| partial.loss / partial.count as f64).collect();
        losses.sort_by(f64::total_cmp);
        let out = self.aggregate.left_out(losses.len());
        let kept = &losses[out..losses.len() - out];
        let loss = kept.iter().sum::<f64>() / kept.len() as f64;
        let sorted = network(rows.len());
        spread(gradient.chunks_mut(RANGE).enumerate().collect(), |(at, range)| {
            estimate(&rows, &sorted, out, at * RANGE, range);
        });
        self.spent.extend(partials.drain(..).map(|partial| partial.gradient));
        Some(Estimate { gradient, divisor: 1, loss })
    }

    /// Vectors that are no longer needed, to be used again.
    pub fn spent(&mut self) -> impl Iterator<Item = Vec<f32>> + '_ {
        self.reduction.spent().chain(self.spent.drain(..))
    }
}

/// The gradient of a lease, and the factor that makes it a mean.
#[derive(Clone, Copy)]
struct Row<'a> {
    values: &'a [f32],
    scale: f32,
}

impl<'a> Row<'a> {
    fn new(partial: &'a Partial) -> Self {
        Self { values: &partial.gradient, scale: 1.0 / partial.count as f32 }
    }
}

/// Coordinates that one thread takes at a time.
const RANGE: usize = 1 << 14;

/// Coordinates that are sorted together: the values of 32 leases fit a core's first cache.
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

/// Estimates the coordinates from `first` on: the mean of the sorted values without `out` at either end.
fn estimate(rows: &[Row<'_>], sorted: &[(usize, usize)], out: usize, first: usize, result: &mut [f32]) {
    let mut block = vec![0.0; rows.len() * BLOCK];
    for (at, result) in result.chunks_mut(BLOCK).enumerate() {
        let first = first + at * BLOCK;
        // Compiled for each width of registers; no coordinate depends on its neighbours, so the bits are the same.
        ata_nn::vectorized(|| estimate_block(rows, sorted, out, first, &mut block, result));
    }
}

#[inline(always)]
fn estimate_block(
    rows: &[Row<'_>],
    sorted: &[(usize, usize)],
    out: usize,
    first: usize,
    block: &mut [f32],
    result: &mut [f32],
) {
    for (row, values) in rows.iter().zip(block.chunks_mut(BLOCK)) {
        for (value, from) in values.iter_mut().zip(&row.values[first..first + result.len()]) {
            *value = from * row.scale;
        }
    }
    for &(low, high) in sorted {
        let (before, after) = block.split_at_mut(high * BLOCK);
        for (low, high) in before[low * BLOCK..][..BLOCK].iter_mut().zip(&mut after[..BLOCK]) {
            (*low, *high) = if *high < *low { (*high, *low) } else { (*low, *high) };
        }
    }
    let kept = rows.len() - 2 * out;
    result.fill(0.0);
    for values in block.chunks(BLOCK).skip(out).take(kept) {
        for (result, value) in result.iter_mut().zip(values) {
            *result += value;
        }
    }
    let share = 1.0 / kept as f32;
    for result in result {
        *result *= share;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn partial(first: u64, count: u64, gradient: Vec<f32>) -> Partial {
        Partial { first, count, loss: f64::from(gradient[0]), gradient }
    }

    fn aggregated(aggregate: Aggregate, partials: &[Partial]) -> Estimate {
        let mut aggregator = Aggregator::new(aggregate);
        for partial in partials {
            aggregator.add(partial.clone());
        }
        let tasks = partials.iter().map(|partial| partial.count).sum();
        let estimate = aggregator.finish(tasks).unwrap();
        assert_eq!(aggregator.finish(tasks), None, "what was taken is gone");
        assert_eq!(aggregator.spent().count() + usize::from(aggregate == Aggregate::Mean), partials.len());
        estimate
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
        fn every_coordinate_is_the_median_or_trimmed_mean_of_the_leases_means(
            counts in prop::collection::vec(0u32..4, 1..40),
            length in prop_oneof![1usize..9, Just(BLOCK + 3), Just(RANGE + BLOCK + 1)],
            seed in any::<u32>(),
        ) {
            let value = |row: usize, at: usize| {
                ((row * 7919 + at * 104_729 + seed as usize) % 1009) as f32 / 16.0 - 31.0
            };
            let partials: Vec<Partial> = counts.iter().enumerate().map(|(row, count)| {
                partial(0, 1 << count, (0..length).map(|at| value(row, at)).collect())
            }).collect();
            for aggregate in [Aggregate::Median, Aggregate::Trimmed(0.2), Aggregate::Trimmed(0.0), Aggregate::Trimmed(0.49)] {
                let Estimate { gradient, divisor, .. } = aggregated(aggregate, &partials);
                prop_assert_eq!((gradient.len(), divisor), (length, 1));
                for at in (0..length).step_by(1 + length / 50) {
                    let values = partials.iter().map(|partial| partial.gradient[at] * (1.0 / partial.count as f32));
                    prop_assert_eq!(gradient[at], expected(aggregate, values.collect()), "{} at {}", aggregate, at);
                }
            }
        }
    }

    /// Fewer wrong leases than are left out cannot move the estimate out of the range of the others.
    #[test]
    fn the_wrong_ones_are_left_out() {
        let honest = [1.0_f32, 1.5, 2.0];
        let of = |value| partial(0, 1, vec![value; 3]);
        for wrong in [f32::MAX, -f32::MAX, 1e30] {
            let partials: Vec<Partial> = honest.into_iter().chain([wrong, wrong]).map(of).collect();
            for aggregate in [Aggregate::Median, Aggregate::Trimmed(0.4)] {
                let Estimate { gradient, loss, .. } = aggregated(aggregate, &partials);
                assert!((1.0..=2.0).contains(&gradient[0]) && (1.0..=2.0).contains(&loss), "{aggregate}: {gradient:?}");
            }
        }
    }

    #[test]
    fn the_mean_is_the_sum_of_the_tree() {
        let partials = [partial(0, 2, vec![1.0, 2.0]), partial(2, 1, vec![3.0, 4.0])];
        let Estimate { gradient, divisor, loss } = aggregated(Aggregate::Mean, &partials);
        assert_eq!((gradient, divisor), (vec![4.0, 6.0], 3));
        assert!((loss - 4.0 / 3.0).abs() < 1e-12);
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
