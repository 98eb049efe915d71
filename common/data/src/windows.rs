//! The order of an epoch of sharded data: a random permutation that needs few shards at a time.
//!
//! The shards are shuffled, and so are the samples of each [`WINDOW`] consecutive shards in that order. A machine needs
//! the shards of one window at a time, and of the next one ahead; nothing is kept for each sample of the data set.

use std::collections::BTreeMap;
use std::ops::Range;

use rand::rngs::ChaCha8Rng;

use crate::permutation::Permutation;

/// The number of shards whose samples are mixed: with shards of 64 MiB half a gigabyte, and 170,000 images of CIFAR's
/// size. A worker keeps two windows. With half as many shards, the samples of an iteration are more alike if the data
/// set is sorted by class; with twice as many, a worker waits twice as long before its first task.
pub(crate) const WINDOW: u64 = 8;

#[derive(Debug)]
pub(crate) struct Windows {
    /// The number of samples per shard, and in total.
    shard: u64,
    count: u64,
    shards: Permutation,
    /// The position of the last shard in the order. It may have fewer samples than the others.
    short_at: u64,
    /// The orders within windows, of which only the latest are kept.
    orders: BTreeMap<u64, Permutation>,
}

impl Windows {
    pub(crate) fn new(count: u64, shard: u64, rng: ChaCha8Rng) -> Self {
        let number = count.div_ceil(shard);
        let shards = Permutation::new(number, rng);
        let short_at = (0..number).find(|at| shards.at(*at) == number - 1).expect("it is a permutation");
        Self { shard, count, shards, short_at, orders: BTreeMap::new() }
    }

    /// Returns the number of samples before a shard, given the shard's position in the order.
    fn before(&self, position: u64) -> u64 {
        let missing = self.shard * self.number() - self.count;
        position * self.shard - if position > self.short_at { missing } else { 0 }
    }

    fn number(&self) -> u64 {
        self.count.div_ceil(self.shard)
    }

    /// Returns the window that contains this position of the epoch.
    pub(crate) fn window(&self, position: u64) -> u64 {
        let window = position / (self.shard * WINDOW);
        // After the short shard, windows begin earlier.
        let next = (window + 1) * WINDOW;
        if next < self.number() && self.before(next) <= position { window + 1 } else { window }
    }

    /// Returns the positions of the epoch that belong to a window.
    pub(crate) fn positions(&self, window: u64) -> Range<u64> {
        self.before(window * WINDOW)..self.before(self.number().min((window + 1) * WINDOW))
    }

    /// Returns the shards of a window; none beyond the last window.
    pub(crate) fn shards(&self, window: u64) -> Vec<u64> {
        let end = self.number().min((window + 1) * WINDOW);
        (window * WINDOW..end).map(|at| self.shards.at(at)).collect()
    }

    /// Returns the sample at a position below the number of samples; `rng` is the random stream of its window.
    pub(crate) fn at(&mut self, position: u64, rng: impl FnOnce(u64) -> ChaCha8Rng) -> u64 {
        let window = self.window(position);
        let Range { start, end } = self.positions(window);
        self.orders.retain(|other, _| window.abs_diff(*other) <= 1);
        let order = self.orders.entry(window).or_insert_with(|| Permutation::new(end - start, rng(window)));
        let mixed = start + order.at(position - start);
        // This is the position of the shard in the order; after the short one, shards begin earlier.
        let at = window * WINDOW + (mixed - start) / self.shard;
        let at = if at + 1 < self.number() && self.before(at + 1) <= mixed { at + 1 } else { at };
        self.shards.at(at) * self.shard + (mixed - self.before(at))
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use rand::SeedableRng;

    use super::*;

    fn rng(window: u64) -> ChaCha8Rng {
        ChaCha8Rng::seed_from_u64(1000 + window)
    }

    fn windows(count: u64, shard: u64, seed: u64) -> Windows {
        Windows::new(count, shard, ChaCha8Rng::seed_from_u64(seed))
    }

    proptest! {
        /// Wherever the short shard comes, an epoch has each sample once, and a window has only the samples of its shards.
        #[test]
        fn an_epoch_takes_each_sample_once(count in 1u64..700, shard in 1u64..40, seed in 0u64..50) {
            let mut windows = windows(count, shard, seed);
            let mut all: Vec<u64> = Vec::new();
            let mut last = 0;
            for position in 0..count {
                let (sample, window) = (windows.at(position, rng), windows.window(position));
                prop_assert!(windows.shards(window).contains(&(sample / shard)), "{position}: {sample}");
                prop_assert!(window == last || window == last + 1);
                last = window;
                all.push(sample);
            }
            prop_assert!(windows.shards(last + 1).is_empty());
            all.sort_unstable();
            prop_assert!(all.into_iter().eq(0..count));
        }
    }

    #[test]
    fn shards_and_samples_are_shuffled() {
        let mut windows = windows(10_000, 100, 1);
        let samples: Vec<u64> = (0..800).map(|position| windows.at(position, rng)).collect();
        let shards: Vec<u64> = samples.iter().map(|sample| sample / 100).collect();
        assert!(!shards.is_sorted() && shards[..50].windows(2).filter(|pair| pair[0] != pair[1]).count() > 30);
        assert_ne!(windows.shards(0), (0..8).collect::<Vec<_>>());
    }
}
