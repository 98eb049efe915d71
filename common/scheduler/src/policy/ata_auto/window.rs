//! The times of one worker since its speed last changed, by rounds, which are the iterations in which it was observed. A generalized
//! likelihood ratio test finds that change, as docs/explanation/ata-auto.md describes.
//!
//! Source of the test: Besson, Kaufmann, Maillard, Seznec, "Efficient Change-Point Detection for Tackling Piecewise-Stationary Bandits",
//! JMLR 2022 (GLR-klUCB), here with the likelihood of gamma times, and split points only where the blocks of an exponential histogram meet
//! (Datar, Gionis, Indyk, Motwani 2002).

use serde::{Deserialize, Serialize};

#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(super) struct WindowBlock {
    pub(super) count: f64,
    pub(super) total_s: f64,
    rounds: f64,
}

impl WindowBlock {
    pub(super) fn new(count: f64, total_s: f64) -> Self {
        Self { count, total_s, rounds: 1.0 }
    }

    fn join(self, next: Self) -> Self {
        Self { count: self.count + next.count, total_s: self.total_s + next.total_s, rounds: self.rounds + next.rounds }
    }

    fn less(self, part: Self) -> Self {
        let total_s = (self.total_s - part.total_s).max(0.0);
        Self { count: self.count - part.count, total_s, rounds: self.rounds - part.rounds }
    }

    pub(super) fn mean_s(self) -> f64 {
        self.total_s / self.count
    }

    /// Returns K·ln(mean): minus the log-likelihood of exponential times at their mean, except for a constant.
    fn log_mean(self, floor_s: f64) -> f64 {
        if self.count > 0.0 { self.count * self.mean_s().max(floor_s).ln() } else { 0.0 }
    }
}

/// The rounds since the last change, summed up.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(super) struct Window {
    /// The blocks, oldest first; at most two have the same number of rounds.
    blocks: Vec<WindowBlock>,
    /// The number K of times, and their sum T.
    pub(super) sum: WindowBlock,
    /// A round that is out of line with those before it.
    held: Option<WindowBlock>,
    /// The rounds that were dropped at the last change, as long as that is not certain.
    before: Option<WindowBlock>,
}

/// The number of rounds from a change until it is certain: twice as many as it takes to find one. With half as many, bursts of a rank
/// with a CPU quota mislead twice as often; with twice as many, a worker that has been slow for a while and has one burst is assumed to be
/// as fast as it was.
const UNCERTAIN: f64 = 4.0;

/// The kind of change that a round can show.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Test {
    /// The round shows no change: the times that finish in a race are the short ones.
    None,
    /// The round can only show that the worker has become faster, because it was a probe that finished.
    Faster,
    /// The round can show any change.
    All,
}

#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Verdict {
    /// The round is one more observation.
    Usual,
    /// The round is out of line, and held aside.
    Held,
    /// The speed has changed by this factor.
    Changed(f64),
}

impl Window {
    pub(super) fn learned(count: f64, total_s: f64) -> Self {
        let block = WindowBlock::new(count, total_s);
        Self { blocks: vec![block], sum: block, ..Self::default() }
    }

    /// Adds a round of times with this squared coefficient of variation.
    pub(super) fn push(&mut self, round: WindowBlock, variation: f64, hazard: f64, test: Test) -> Verdict {
        let floor_s = (1e-9 * self.sum.mean_s()).max(f64::MIN_POSITIVE);
        let least = |count: f64| variation * evidence(count, hazard);
        let ratio = |old: WindowBlock, new: WindowBlock| {
            old.join(new).log_mean(floor_s) - old.log_mean(floor_s) - new.log_mean(floor_s)
        };
        let known = self.sum;
        if test == Test::Faster {
            let is_faster = known.count >= 1.0
                && round.mean_s() < known.mean_s()
                && ratio(known, round) > least(known.count + round.count);
            if is_faster {
                return self.restart(vec![round], None, floor_s);
            }
            self.add(round);
            return Verdict::Usual;
        }
        if test == Test::All {
            if let Some(held) = self.held.take() {
                // The question is which is likelier: one mean and an outlier, or two means.
                let outlier = known.join(round).log_mean(floor_s) + held.log_mean(floor_s);
                let change = known.log_mean(floor_s) + held.join(round).log_mean(floor_s);
                if change < outlier {
                    return self.restart(vec![held, round], Some(known), floor_s);
                }
            }
            let is_out_of_line = |block: WindowBlock| ratio(block, round) > least(block.count + round.count);
            if known.count >= 2.0 && is_out_of_line(known) {
                let before = self.before.filter(|before| known.rounds <= UNCERTAIN && !is_out_of_line(*before));
                if let Some(before) = before {
                    return self.restart(vec![before, round], None, floor_s);
                }
                self.held = Some(round);
                return Verdict::Held;
            }
        }
        self.add(round);
        if test == Test::All
            && let Some(factor) = self.drop_before_change(variation, hazard)
        {
            return Verdict::Changed(factor);
        }
        Verdict::Usual
    }

    /// Continues with only these rounds, since the speed has changed.
    fn restart(&mut self, blocks: Vec<WindowBlock>, before: Option<WindowBlock>, floor_s: f64) -> Verdict {
        let known_s = self.sum.mean_s();
        self.sum = blocks.iter().copied().fold(WindowBlock::default(), WindowBlock::join);
        self.blocks = blocks;
        (self.held, self.before) = (None, before);
        Verdict::Changed(self.sum.mean_s().max(floor_s) / known_s.max(floor_s))
    }

    fn add(&mut self, round: WindowBlock) {
        self.sum = self.sum.join(round);
        self.blocks.push(round);
        let mut newest = self.blocks.len();
        while let Some(oldest) = newest.checked_sub(3)
            && self.blocks[oldest].rounds <= self.blocks[newest - 1].rounds
        {
            self.blocks[oldest] = self.blocks[oldest].join(self.blocks[oldest + 1]);
            self.blocks.remove(oldest + 1);
            newest = oldest + 1;
        }
    }

    /// Drops the times before a change, if there was one; returns the factor by which the mean changed.
    fn drop_before_change(&mut self, variation: f64, hazard: f64) -> Option<f64> {
        let least = variation * evidence(self.sum.count, hazard);
        if self.sum.count < 4.0 || !self.may_exceed(least) {
            return None;
        }
        let (ratio, at) = self.likelihood_ratio();
        if ratio <= least {
            return None;
        }
        let sum = |blocks: &[WindowBlock]| blocks.iter().copied().fold(WindowBlock::default(), WindowBlock::join);
        let old = sum(&self.blocks[..at]);
        self.before = Some(old);
        self.blocks.drain(..at);
        self.sum = sum(&self.blocks);
        Some(self.sum.mean_s() / old.mean_s().max(f64::MIN_POSITIVE))
    }

    fn may_split(old: WindowBlock, new: WindowBlock) -> bool {
        old.count >= 2.0 && new.count >= 2.0 && new.rounds >= 2.0
    }

    /// Returns the largest log-likelihood ratio of two means against one, for exponential times, and its position. For gamma times the
    /// ratio is this value divided by their squared coefficient of variation.
    fn likelihood_ratio(&self) -> (f64, usize) {
        let floor_s = (1e-9 * self.sum.mean_s()).max(f64::MIN_POSITIVE);
        let all = self.sum;
        let one_mean = all.log_mean(floor_s);
        let mut old = WindowBlock::default();
        let mut best = (0.0, 0);
        for (at, &block) in self.blocks.iter().enumerate() {
            old = old.join(block);
            let new = all.less(old);
            if Self::may_split(old, new) {
                let ratio = one_mean - old.log_mean(floor_s) - new.log_mean(floor_s);
                if ratio > best.0 {
                    best = (ratio, at + 1);
                }
            }
        }
        best
    }

    /// Returns whether [`Self::likelihood_ratio`] may be more than this, by an upper bound without logarithms, which are expensive.
    /// With a = m₁/m and b = m₂/m the ratio is n₁·d(a) + n₂·d(b) for d(x) = x − 1 − ln x, which is at most
    /// (x − 1)²/(2·min(1, x)); and the deviations n₁·(a − 1) and n₂·(b − 1) cancel out.
    fn may_exceed(&self, least: f64) -> bool {
        let all = self.sum;
        let (mut before, mut relative) = (WindowBlock::default(), 0.0);
        let per_mean = 1.0 / all.mean_s();
        let exceeds = |block: &WindowBlock| {
            before = before.join(*block);
            relative += block.total_s * per_mean;
            let deviation = relative - before.count;
            let old = before.count.min(relative);
            let new = (all.count - before.count.max(relative)).max(0.0);
            Self::may_split(before, all.less(before)) && deviation * deviation * (old + new) > least * 2.0 * old * new
        };
        all.total_s <= 0.0 || self.blocks.iter().any(exceeds)
    }
}

/// Returns the log-likelihood ratio beyond which there is a change: the odds against one, and the cost of another mean (Schwarz).
fn evidence(count: f64, hazard: f64) -> f64 {
    0.5 * (1.0 + count).ln() - hazard.ln()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const HAZARD: f64 = 0.01;

    fn push(window: &mut Window, time: f64, variation: f64) -> Verdict {
        window.push(WindowBlock::new(1.0, time), variation, HAZARD, Test::All)
    }

    fn window(times: impl IntoIterator<Item = f64>) -> Window {
        let mut window = Window::default();
        times.into_iter().for_each(|time| {
            window.push(WindowBlock::new(1.0, time), 1.0, HAZARD, Test::None);
        });
        window
    }

    /// Returns how many of these times it takes to find a change.
    fn found_after(window: &mut Window, variation: f64, times: impl IntoIterator<Item = f64>) -> Option<usize> {
        times.into_iter().position(|time| matches!(push(window, time, variation), Verdict::Changed(_)))
    }

    /// The ratio is n ln m − n₁ ln m₁ − n₂ ln m₂ at the best split, with at least two times on either side.
    #[test]
    fn likelihood_ratio_of_two_means() {
        let ratio = |times: &[f64]| window(times.iter().copied()).likelihood_ratio().0;
        assert!((ratio(&[3.0, 3.0, 5.0, 5.0]) - (4.0 * 4.0_f64.ln() - 2.0 * (15.0_f64).ln())).abs() < 1e-12);
        assert_eq!(ratio(&[1.0, 1.0, 5.0]), 0.0);
        assert_eq!(found_after(&mut Window::default(), 1.0, [0.0; 100]), None, "a clock may measure zero");
    }

    proptest! {
        /// The bound avoids the logarithms, and changes no verdict.
        #[test]
        fn the_bound_is_one(times in prop::collection::vec(prop_oneof![Just(0.0), Just(1e-300), 0.01f64..10.0, 1e3f64..1e9], 1..60)) {
            let mut window = Window::default();
            for time in times {
                window.add(WindowBlock::new(1.0, time));
                let (ratio, _) = window.likelihood_ratio();
                prop_assert!(ratio < 1e-9 || window.may_exceed(ratio * (1.0 - 1e-9) - 1e-9), "{:?}", window);
            }
        }
    }

    #[test]
    fn blocks_stay_few_and_lose_nothing() {
        let window = window((0..10_000).map(|task| 1.0 + f64::from(task % 3)));
        assert!(window.blocks.len() <= 2 * 14, "{}", window.blocks.len());
        assert!(window.blocks.windows(2).all(|pair| pair[0].rounds >= pair[1].rounds));
        assert_eq!((window.sum.count, window.sum.total_s), (10_000.0, 19_999.0));
    }

    #[test]
    fn a_worker_ten_times_slower_or_faster_is_found_within_few_tasks() {
        for (factor, tasks) in [(10.0, 4), (0.1, 20)] {
            let mut window = Window::default();
            assert_eq!(found_after(&mut window, 1.0, [1.0; 2000]), None);
            assert!(found_after(&mut window, 1.0, vec![factor; tasks]).is_some());
            assert_eq!(found_after(&mut window, 1.0, [factor; 2000]), None, "what came before the change is forgotten");
            assert!((window.sum.total_s / window.sum.count - factor).abs() < 0.1 * factor);
        }
    }

    /// An outlier is dropped, however large it is and however little the times vary otherwise; two in a row are a change.
    #[test]
    fn one_outlier_is_dropped() {
        for (variation, outlier) in [(1.0, 1e6), (0.01, 10.0), (0.01, 1e9)] {
            let mut window = window([1.0; 100]);
            assert_eq!(push(&mut window, outlier, variation), Verdict::Held);
            assert_eq!(push(&mut window, 1.0, variation), Verdict::Usual);
            assert_eq!((window.sum.count, window.sum.total_s), (101.0, 101.0));
            assert_eq!(push(&mut window, outlier, variation), Verdict::Held);
            assert_eq!(push(&mut window, outlier, variation), Verdict::Changed(outlier));
            assert_eq!((window.sum.count, window.sum.total_s), (2.0, 2.0 * outlier));
        }
    }

    /// Two short rounds in a row, as in bursts, look like a change. A change that the next round contradicts was none, and nothing else is
    /// forgotten.
    #[test]
    fn a_change_that_is_contradicted_at_once_was_none() {
        for usual in 0..=2 {
            let mut window = window([1.0; 100]);
            assert_eq!(found_after(&mut window, 0.1, [0.2, 0.2]), Some(1));
            assert_eq!(found_after(&mut window, 0.1, vec![0.2; usual]), None);
            let verdict = push(&mut window, 1.0, 0.1);
            assert!(
                matches!(verdict, Verdict::Changed(factor) if (factor - 5.0).abs() < 1e-9),
                "after {usual} more: {verdict:?}"
            );
            assert_eq!((window.sum.count, window.sum.total_s), (101.0, 101.0));
        }
        // Later, a single round is an outlier, even if it matches the earlier speed.
        let mut window = window([1.0; 100]);
        for time in [0.2; 10] {
            push(&mut window, time, 0.1);
        }
        assert_eq!(push(&mut window, 1.0, 0.1), Verdict::Held);
    }

    /// One probe that finishes is enough if it was much faster, and says nothing otherwise.
    #[test]
    fn a_probe_tells_of_a_faster_worker_only() {
        for (last_s, factor) in [(0.001, Some(0.0001)), (5.0, None), (1e4, None)] {
            let mut window = window([10.0, 10.0]);
            let verdict = window.push(WindowBlock::new(1.0, last_s), 1.0, HAZARD, Test::Faster);
            assert_eq!(verdict, factor.map_or(Verdict::Usual, Verdict::Changed), "{last_s}");
            assert_eq!(window.sum.count, if factor.is_some() { 1.0 } else { 3.0 });
        }
    }
}
