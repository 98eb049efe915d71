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
    /// The same with outliers cut off.
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
    pub(super) fn cut(&mut self, variation: f64) -> Option<f64> {
        if self.sum.count < 2.0 * FEWEST {
            return None;
        }
        let least = THRESHOLD * variation * (1.0 + self.sum.count).ln();
        if self.ratio_bound() <= least {
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

    /// Drops all but the last time if it is so much shorter than those before that the worker has become faster: a probe
    /// that was cancelled tells nothing, so that of those that finish one has to do.
    pub(super) fn cut_to_last(&mut self, variation: f64) -> Option<f64> {
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

    /// An upper bound of [`Self::likelihood_ratio`] without logarithms, which are expensive. With a = m₁/m and b = m₂/m the
    /// ratio is n₁·d(a) + n₂·d(b) for d(x) = x − 1 − ln x, which is at most (x − 1)²/(2·min(1, x)); and the deviations
    /// n₁·(a − 1) and n₂·(b − 1) cancel out.
    fn ratio_bound(&self) -> f64 {
        let all = self.sum;
        let (mut count, mut relative) = (0.0, 0.0);
        let mut largest = 0.0_f64;
        let per_mean = 1.0 / all.mean_s();
        for block in &self.blocks {
            count += block.count;
            relative += block.clipped_s * per_mean;
            if count >= FEWEST && all.count - count >= FEWEST {
                let deviation = relative - count;
                let old = count.min(relative);
                let new = all.count - count.max(relative);
                largest = largest.max(deviation * deviation * (old + new) / (2.0 * old * new));
            }
        }
        // Times of zero have no bound.
        if largest.is_nan() || all.clipped_s <= 0.0 { f64::INFINITY } else { largest }
    }
}
