//! The task times of one worker since its speed changed last: a generalized likelihood ratio test says when that was.
//!
//! Source of the test: Besson, Kaufmann, Maillard, Seznec, "Efficient Change-Point Detection for Tackling
//! Piecewise-Stationary Bandits", JMLR 2022 (GLR-klUCB), here with the likelihood of gamma times, a threshold found by
//! measurement, and split points only where the blocks of an exponential histogram meet (Datar, Gionis, Indyk, Motwani
//! 2002).

use serde::{Deserialize, Serialize};

/// The longest time that counts in full for the test, as a multiple of the mean: one outlier is not a change.
const LARGEST_PER_MEAN: f64 = 10.0;

/// The fewest tasks on either side of a change.
const FEWEST: f64 = 2.0;

/// The factor on ln(1 + K) that the likelihood ratio of K times must exceed.
const THRESHOLD: f64 = 2.0;

/// Consecutive task times.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
struct Block {
    count: f64,
    total_s: f64,
    /// The same with outliers clipped.
    clipped_s: f64,
}

impl Block {
    fn join(self, next: Self) -> Self {
        Self {
            count: self.count + next.count,
            total_s: self.total_s + next.total_s,
            clipped_s: self.clipped_s + next.clipped_s,
        }
    }

    fn mean_s(self) -> f64 {
        self.clipped_s / self.count
    }

    /// K·ln(mean), with a floor far below any time of the same worker, in case the clock measured zero.
    fn log_mean(self, floor_s: f64) -> f64 {
        self.count * self.mean_s().max(floor_s).ln()
    }
}

/// Task times since the last change, summed up.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(super) struct Window {
    /// Oldest first, at most two of each size.
    blocks: Vec<Block>,
    sum: Block,
}

impl Window {
    /// Times that an earlier run learned.
    pub(super) fn learned(count: f64, total_s: f64) -> Self {
        let block = Block { count, total_s, clipped_s: total_s };
        Self { blocks: vec![block], sum: block }
    }

    /// How many times, K.
    pub(super) fn count(&self) -> f64 {
        self.sum.count
    }

    /// Their sum, T.
    pub(super) fn total_s(&self) -> f64 {
        self.sum.total_s
    }

    /// Adds a time.
    pub(super) fn push(&mut self, busy_s: f64) {
        let known = self.sum.count > 0.0;
        let largest_s = if known { LARGEST_PER_MEAN * self.sum.total_s / self.sum.count } else { busy_s };
        let one = Block { count: 1.0, total_s: busy_s, clipped_s: busy_s.min(largest_s) };
        self.sum = self.sum.join(one);
        self.blocks.push(one);
        self.merge();
    }

    /// Joins the two oldest of three blocks of the same size, starting from the newest.
    fn merge(&mut self) {
        let mut newest = self.blocks.len();
        while let Some(oldest) = newest.checked_sub(3)
            && self.blocks[oldest].count <= self.blocks[newest - 1].count
        {
            self.blocks[oldest] = self.blocks[oldest].join(self.blocks[oldest + 1]);
            self.blocks.remove(oldest + 1);
            newest = oldest + 1;
        }
    }

    /// Drops the times before a change, if there was one for times of this squared coefficient of variation; returns by
    /// which factor the mean changed.
    pub(super) fn drop_before_change(&mut self, variation: f64) -> Option<f64> {
        if self.sum.count < 2.0 * FEWEST {
            return None;
        }
        let least = THRESHOLD * variation * (1.0 + self.sum.count).ln();
        if !self.may_exceed(least) {
            return None;
        }
        let (ratio, at) = self.likelihood_ratio();
        if ratio <= least {
            return None;
        }
        let sum = |blocks: &[Block]| blocks.iter().copied().fold(Block::default(), Block::join);
        let old = sum(&self.blocks[..at]);
        self.blocks.drain(..at);
        self.sum = sum(&self.blocks);
        Some(self.sum.mean_s() / old.mean_s().max(f64::MIN_POSITIVE))
    }

    /// Drops all but the last time if it is so much shorter than those before that the worker has become faster: a
    /// cancelled probe says nothing, so one that finishes has to be enough.
    pub(super) fn drop_before_last(&mut self, variation: f64) -> Option<f64> {
        let last = *self.blocks.last()?;
        let count = self.sum.count;
        let old = Block {
            count: count - last.count,
            total_s: self.sum.total_s - last.total_s,
            clipped_s: self.sum.clipped_s - last.clipped_s,
        };
        if last.count != 1.0 || old.count < 1.0 || last.mean_s() >= old.mean_s() {
            return None;
        }
        let floor_s = (1e-9 * self.sum.mean_s()).max(f64::MIN_POSITIVE);
        let ratio = self.sum.log_mean(floor_s) - old.log_mean(floor_s) - last.log_mean(floor_s);
        if ratio <= THRESHOLD * variation * (1.0 + count).ln() {
            return None;
        }
        self.blocks = vec![last];
        self.sum = last;
        Some(last.mean_s() / old.mean_s())
    }

    /// The splits into old and new times, and the first block of the new ones.
    fn splits(&self) -> impl Iterator<Item = (Block, Block, usize)> + '_ {
        let all = self.sum;
        let mut old = Block::default();
        let split = move |(at, &block): (usize, &Block)| {
            old = old.join(block);
            let clipped_s = (all.clipped_s - old.clipped_s).max(0.0);
            (old, Block { count: all.count - old.count, total_s: 0.0, clipped_s }, at + 1)
        };
        self.blocks.iter().enumerate().map(split).filter(|(old, new, _)| old.count.min(new.count) >= FEWEST)
    }

    /// The largest log-likelihood ratio of two means against one, for exponential times, and where. For gamma times the
    /// ratio is this divided by their squared coefficient of variation.
    fn likelihood_ratio(&self) -> (f64, usize) {
        let floor_s = (1e-9 * self.sum.mean_s()).max(f64::MIN_POSITIVE);
        let one_mean = self.sum.log_mean(floor_s);
        let ratio =
            |(old, new, at): (Block, Block, usize)| (one_mean - old.log_mean(floor_s) - new.log_mean(floor_s), at);
        self.splits().map(ratio).fold((0.0, 0), |best, next| if next.0 > best.0 { next } else { best })
    }

    /// Whether [`Self::likelihood_ratio`] may be more than this, by an upper bound without logarithms, which are expensive.
    /// With a = m₁/m and b = m₂/m the ratio is n₁·d(a) + n₂·d(b) for d(x) = x − 1 − ln x, which is at most
    /// (x − 1)²/(2·min(1, x)); and the deviations n₁·(a − 1) and n₂·(b − 1) cancel out.
    fn may_exceed(&self, least: f64) -> bool {
        let all = self.sum;
        let (mut count, mut relative) = (0.0, 0.0);
        let per_mean = 1.0 / all.mean_s();
        let exceeds = |block: &Block| {
            count += block.count;
            relative += block.clipped_s * per_mean;
            let deviation = relative - count;
            let old = count.min(relative);
            let new = (all.count - count.max(relative)).max(0.0);
            let is_split = count >= FEWEST && all.count - count >= FEWEST;
            is_split && deviation * deviation * (old + new) > least * 2.0 * old * new
        };
        // Times of zero have no bound.
        all.clipped_s <= 0.0 || self.blocks.iter().any(exceeds)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn window(times: impl IntoIterator<Item = f64>) -> Window {
        let mut window = Window::default();
        times.into_iter().for_each(|time| window.push(time));
        window
    }

    /// How many of these times it takes to find a change.
    fn found_after(window: &mut Window, variation: f64, times: impl IntoIterator<Item = f64>) -> Option<usize> {
        times.into_iter().position(|time| {
            window.push(time);
            window.drop_before_change(variation).is_some()
        })
    }

    /// n ln m − n₁ ln m₁ − n₂ ln m₂ at the best split, with at least two times on either side.
    #[test]
    fn likelihood_ratio_of_two_means() {
        let ratio = |times: &[f64]| window(times.iter().copied()).likelihood_ratio().0;
        assert!((ratio(&[3.0, 3.0, 5.0, 5.0]) - (4.0 * 4.0_f64.ln() - 2.0 * (15.0_f64).ln())).abs() < 1e-12);
        assert_eq!(ratio(&[1.0, 1.0, 5.0]), 0.0);
    }

    proptest! {
        /// The bound avoids the logarithms, and changes no verdict.
        #[test]
        fn the_bound_is_one(times in prop::collection::vec(prop_oneof![Just(0.0), Just(1e-300), 0.01f64..10.0, 1e3f64..1e9], 1..60)) {
            let mut window = Window::default();
            for time in times {
                window.push(time);
                let (ratio, _) = window.likelihood_ratio();
                prop_assert!(ratio < 1e-9 || window.may_exceed(ratio * (1.0 - 1e-9) - 1e-9), "{:?}", window);
            }
        }

        /// Whatever is dropped, the sums are those of the blocks that are left.
        #[test]
        fn sums_are_those_of_the_blocks(times in prop::collection::vec(0.01f64..100.0, 1..200)) {
            let mut window = Window::default();
            for time in times {
                window.push(time);
                window.drop_before_change(1.0);
                let left = window.blocks.iter().copied().fold(Block::default(), Block::join);
                prop_assert_eq!(left.count, window.count());
                prop_assert!((left.total_s - window.total_s()).abs() <= 1e-9 * left.total_s);
            }
        }
    }

    #[test]
    fn blocks_stay_few_and_lose_nothing() {
        let window = window((0..10_000).map(|task| 1.0 + f64::from(task % 3)));
        assert!(window.blocks.len() <= 2 * 14, "{}", window.blocks.len());
        assert!(window.blocks.windows(2).all(|pair| pair[0].count >= pair[1].count));
        assert_eq!((window.count(), window.total_s()), (10_000.0, 19_999.0));
    }

    #[test]
    fn a_worker_ten_times_slower_or_faster_is_found_within_few_tasks() {
        for (factor, tasks) in [(10.0, 4), (0.1, 20)] {
            let mut window = Window::default();
            assert_eq!(found_after(&mut window, 1.0, [1.0; 2000]), None);
            assert!(found_after(&mut window, 1.0, vec![factor; tasks]).is_some());
            assert_eq!(found_after(&mut window, 1.0, [factor; 2000]), None, "what came before the change is forgotten");
            assert!((window.total_s() / window.count() - factor).abs() < 0.1 * factor);
        }
    }

    #[test]
    fn one_outlier_is_no_change() {
        let mut window = window([1.0; 100]);
        assert_eq!(found_after(&mut window, 1.0, [1e6, 1.0, 1.0, 1.0]), None);
    }

    /// One probe that finishes is enough if it was that much faster, and says nothing otherwise.
    #[test]
    fn a_probe_tells_of_a_faster_worker_only() {
        for (last_s, factor) in [(0.01, Some(0.001)), (5.0, None), (1e4, None)] {
            let mut window = window([10.0, 10.0, last_s]);
            let found = window.drop_before_last(1.0);
            assert_eq!(found.is_some(), factor.is_some(), "{last_s}");
            assert_eq!(window.count(), if found.is_some() { 1.0 } else { 3.0 });
        }
    }

    #[test]
    fn a_clock_that_reads_zero() {
        assert_eq!(found_after(&mut Window::default(), 1.0, [0.0; 100]), None);
    }
}
