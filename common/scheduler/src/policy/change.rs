//! Has a worker's speed changed? A generalized likelihood ratio test on its task times.
//!
//! Source of the test and of its threshold's form: Besson, Kaufmann, Maillard, Seznec, "Efficient Change-Point
//! Detection for Tackling Piecewise-Stationary Bandits", JMLR 2022 (GLR-klUCB), here with the likelihood of gamma
//! times, and split points only where the blocks of an exponential histogram meet (Datar, Gionis, Indyk, Motwani 2002).

use serde::{Deserialize, Serialize};

use crate::ids::WorkerId;

/// The longest time that counts in full, as a multiple of the worker's mean.
const LARGEST_PER_MEAN: f64 = 10.0;

/// The fewest tasks on either side of a change.
const FEWEST: u64 = 2;

/// Consecutive task times of one worker.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
struct Block {
    count: u64,
    total_s: f64,
}

impl Block {
    fn join(self, next: Self) -> Self {
        Self { count: self.count + next.count, total_s: self.total_s + next.total_s }
    }

    /// K·ln(mean), with a floor far below any time of the same worker, in case the clock measured zero.
    fn log_mean(self, floor_s: f64) -> f64 {
        let count = self.count as f64;
        count * (self.total_s / count).max(floor_s).ln()
    }
}

/// The task times of one worker since the last change.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
struct Stream {
    /// Oldest first, at most two of each size.
    blocks: Vec<Block>,
    /// No single time counts for more than this, if it is known: one outlier is not a change.
    largest_s: Option<f64>,
    variation: f64,
}

/// The task times of every worker since the last change.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(super) struct ChangeDetector {
    /// By slot; `None` until first needed.
    streams: Vec<Option<Stream>>,
    /// How many workers were ever seen.
    workers: usize,
    changed: bool,
}

impl ChangeDetector {
    /// Records one task time, and tests for a change.
    pub(super) fn observe(&mut self, worker: WorkerId, busy_s: f64) {
        let workers = self.workers.max(1) as f64;
        let stream = self.stream(worker);
        let total_s = stream.largest_s.map_or(busy_s, |largest_s| busy_s.min(largest_s));
        stream.blocks.push(Block { count: 1, total_s });
        merge(&mut stream.blocks);
        let changed = is_changed(&stream.blocks, workers, stream.variation);
        self.changed |= changed;
    }

    pub(super) fn set_workers(&mut self, workers: usize) {
        self.workers = workers;
    }

    /// Sets a worker's mean time (0: unknown) and the squared coefficient of variation of its times.
    ///
    /// Times count as no less noisy than exponential ones: for nearly constant times, the test would otherwise find
    /// changes too small to act on.
    pub(super) fn expect(&mut self, worker: WorkerId, mean_s: f64, variation: f64) {
        let stream = self.stream(worker);
        stream.variation = variation.max(1.0);
        if mean_s > 0.0 {
            stream.largest_s = Some(LARGEST_PER_MEAN * mean_s);
        }
    }

    /// Whether a change was found since the last call; if so, all times are forgotten.
    pub(super) fn take_change(&mut self) -> bool {
        if self.changed {
            self.streams.clear();
        }
        std::mem::take(&mut self.changed)
    }

    /// Drops the times of a worker.
    pub(super) fn forget(&mut self, worker: WorkerId) {
        if let Some(stream) = self.streams.get_mut(worker.slot()) {
            *stream = None;
        }
    }

    fn stream(&mut self, worker: WorkerId) -> &mut Stream {
        if self.streams.len() <= worker.slot() {
            self.streams.resize(worker.slot() + 1, None);
        }
        let empty = || Stream { blocks: Vec::new(), largest_s: None, variation: 1.0 };
        self.streams[worker.slot()].get_or_insert_with(empty)
    }
}

/// Whether two means fit these times so much better than one that chance does not explain the difference.
fn is_changed(blocks: &[Block], workers: f64, variation: f64) -> bool {
    let all = sum(blocks);
    // Logarithms are expensive, and most times are far from a change.
    let least = (3.0 * workers).ln() + 2.5 * std::f64::consts::LN_2 * f64::from(all.count.ilog2());
    if ratio_bound(blocks, all) <= variation * least {
        return false;
    }
    let (ratio, count) = likelihood_ratio(blocks);
    // β(n, δ) = ln(3 n^(3/2) / δ) for each worker, with δ = 1/(workers · n).
    ratio / variation > (3.0 * workers * count.powf(2.5)).ln()
}

/// Joins the two oldest of three blocks of the same size, starting from the newest.
fn merge(blocks: &mut Vec<Block>) {
    let mut newest = blocks.len();
    while let Some(oldest) = newest.checked_sub(3)
        && blocks[oldest].count <= blocks[newest - 1].count
    {
        blocks[oldest] = blocks[oldest].join(blocks[oldest + 1]);
        blocks.remove(oldest + 1);
        newest = oldest + 1;
    }
}

/// The largest log-likelihood ratio, over the places where blocks meet, of two means against one, for exponential
/// times; and the number of times. For gamma times the ratio is this divided by their squared coefficient of variation.
fn likelihood_ratio(blocks: &[Block]) -> (f64, f64) {
    let all = sum(blocks);
    let count = all.count as f64;
    let floor_s = (1e-9 * all.total_s / count).max(f64::MIN_POSITIVE);
    let one_mean = all.log_mean(floor_s);
    let mut old = Block::default();
    let mut largest = 0.0_f64;
    for &block in blocks {
        old = old.join(block);
        let new = Block { count: all.count - old.count, total_s: (all.total_s - old.total_s).max(0.0) };
        if old.count.min(new.count) >= FEWEST {
            largest = largest.max(one_mean - old.log_mean(floor_s) - new.log_mean(floor_s));
        }
    }
    (largest, count)
}

/// An upper bound of [`likelihood_ratio`]. With a = m₁/m and b = m₂/m the ratio is n₁·d(a) + n₂·d(b) for
/// d(x) = x − 1 − ln x, which is at most (x − 1)²/(2·min(1, x)).
fn ratio_bound(blocks: &[Block], all: Block) -> f64 {
    let mean_s = all.total_s / all.count as f64;
    let part = |block: Block| {
        let count = block.count as f64;
        let x = block.total_s / (count * mean_s);
        count * (x - 1.0) * (x - 1.0) / (2.0 * x.min(1.0))
    };
    let mut old = Block::default();
    let mut largest = 0.0_f64;
    for &block in blocks {
        old = old.join(block);
        let new = Block { count: all.count - old.count, total_s: (all.total_s - old.total_s).max(0.0) };
        if old.count.min(new.count) >= FEWEST {
            let bound = part(old) + part(new);
            // Times of zero have no bound.
            largest = if bound.is_nan() { f64::INFINITY } else { largest.max(bound) };
        }
    }
    largest
}

fn sum(blocks: &[Block]) -> Block {
    blocks.iter().copied().fold(Block::default(), Block::join)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn worker() -> WorkerId {
        WorkerId::from_slot(1)
    }

    /// The first of these times after which a change is found.
    fn found_after(detector: &mut ChangeDetector, times: impl IntoIterator<Item = f64>) -> Option<usize> {
        times.into_iter().position(|time| {
            detector.observe(worker(), time);
            detector.take_change()
        })
    }

    /// n ln m − n₁ ln m₁ − n₂ ln m₂ at the best split, with at least two times on either side.
    #[test]
    fn likelihood_ratio_of_two_means() {
        let ratio = |times: &[f64]| {
            likelihood_ratio(&times.iter().map(|&total_s| Block { count: 1, total_s }).collect::<Vec<_>>()).0
        };
        assert!((ratio(&[1.0, 1.0, 5.0, 5.0]) - (4.0 * 3.0_f64.ln() - 2.0 * 5.0_f64.ln())).abs() < 1e-12);
        assert!((ratio(&[1.0, 1.0, 1.0, 5.0]) - (4.0 * 2.0_f64.ln() - 2.0 * 3.0_f64.ln())).abs() < 1e-12);
        assert_eq!(ratio(&[1.0, 1.0, 5.0]), 0.0);
    }

    proptest! {
        /// The bound avoids the logarithms, and changes no verdict.
        #[test]
        fn the_bound_is_one(times in prop::collection::vec(prop_oneof![Just(0.0), Just(1e-300), 0.01f64..10.0, 1e3f64..1e9], 1..60)) {
            let mut blocks = Vec::new();
            for total_s in times {
                blocks.push(Block { count: 1, total_s });
                merge(&mut blocks);
                let (ratio, _) = likelihood_ratio(&blocks);
                prop_assert!(ratio_bound(&blocks, sum(&blocks)) >= ratio * (1.0 - 1e-9) - 1e-9, "{:?}", blocks);
            }
        }
    }

    #[test]
    fn blocks_stay_few_and_lose_nothing() {
        let mut detector = ChangeDetector::default();
        for task in 1..=10_000 {
            detector.observe(worker(), 1.0 + f64::from(task % 3));
        }
        let blocks = &detector.streams[1].as_ref().unwrap().blocks;
        assert!(blocks.len() <= 2 * 14, "{}", blocks.len());
        assert!(blocks.windows(2).all(|pair| pair[0].count >= pair[1].count));
        assert_eq!(sum(blocks), Block { count: 10_000, total_s: 20_000.0 });
    }

    #[test]
    fn a_worker_ten_times_slower_or_faster_is_found_within_few_tasks() {
        for (factor, tasks) in [(10.0, 10), (0.1, 30)] {
            let mut detector = ChangeDetector::default();
            assert_eq!(found_after(&mut detector, [1.0; 2000]), None);
            assert!(found_after(&mut detector, vec![factor; tasks]).is_some());
            assert_eq!(found_after(&mut detector, [factor; 2000]), None, "what came before the change is forgotten");
        }
    }

    /// A change of a tenth is not worth a fresh start, however constant the times are.
    #[test]
    fn a_small_drift_is_let_pass() {
        let mut detector = ChangeDetector::default();
        detector.expect(worker(), 1.0, 1e-6);
        assert_eq!(found_after(&mut detector, (0..1000).map(|task| if task < 500 { 1.0 } else { 1.1 })), None);
    }

    #[test]
    fn one_outlier_is_no_change() {
        let mut detector = ChangeDetector::default();
        assert_eq!(found_after(&mut detector, [1.0; 100]), None);
        detector.expect(worker(), 1.0, 0.01);
        assert_eq!(found_after(&mut detector, [1e6, 1.0, 1.0, 1.0]), None);
    }

    #[test]
    fn a_clock_that_reads_zero() {
        assert_eq!(found_after(&mut ChangeDetector::default(), [0.0; 100]), None);
    }
}
