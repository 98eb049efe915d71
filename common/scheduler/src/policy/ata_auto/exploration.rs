//! ATA-Auto's exploration among workers without promising estimates, any of which may have become faster.

use std::collections::VecDeque;

use rand::RngExt;
use rand::seq::SliceRandom;
use serde::{Deserialize, Serialize};

use super::outline::Outline;
use crate::policy::SchedulerRng;
use ata_types::WorkerId;

/// The number of changes that are assumed before any was observed: Jeffreys' prior of a rate.
pub(super) const PRIOR: f64 = 0.5;

/// The largest cost of all probes, in iterations.
const MOST: f64 = 0.5;

/// The most workers that are considered in an iteration to find those that can be probed.
const MOST_EXPLORED: usize = 64;

/// The largest span of probe lengths: the longest is at most a factor of exp(20) above the shortest.
const MOST_SPAN: f64 = 20.0;

/// Probes idle workers in turn.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub(super) struct Exploration {
    /// The slots in the order in which they are explored: shuffled when they are added, and then always the same.
    queue: VecDeque<u32>,
}

/// The cost that exploration may have in an iteration.
#[derive(Clone, Copy, Debug)]
pub(super) struct Allowance {
    /// The cost of all probes, in iterations.
    share: f64,
    outline: Outline,
}

impl Allowance {
    /// Creates the allowance for iteration `k`, after changes of speed that add up to `moved`.
    pub(super) fn new(outline: Outline, moved: f64, k: u64) -> Self {
        // A worker's speed changes at a rate of λ = (½ + V·n/A)/k in an iteration, half of the time to a faster one, which is
        // worth 1/A of an iteration. A rate of ν probes costs ν/A, and delays each change by 1/2ν: the best is √(λ/4).
        let (used, workers) = (outline.used as f64, outline.workers as f64);
        let rate = (PRIOR + moved * workers / used) / k as f64;
        let share = (workers - used) / workers * (rate / (4.0 * used)).sqrt();
        Self { share: share.min(MOST), outline }
    }

    /// Returns limits on the length of probes: from the length of the fastest worker's task to the whole iteration, each a factor of
    /// about e apart, and each with the same part of the worker time. So the worker that would gain most is found soonest, at
    /// little cost for each that is explored.
    fn limits_s(&self, rng: &mut SchedulerRng) -> Vec<f64> {
        let Outline { longest_s, .. } = self.outline;
        let fastest_s = self.outline.fastest_s.min(longest_s);
        // A clock may measure zero.
        if fastest_s <= 0.0 {
            return Vec::new();
        }
        let span = (longest_s / fastest_s).ln().min(MOST_SPAN);
        let steps = span.ceil().max(0.0);
        let each = self.share / (steps + 1.0);
        let mut limits_s = Vec::new();
        for step in 0..=steps as u32 {
            let limit_s = longest_s * (-span * f64::from(step) / steps.max(1.0)).exp();
            let many = (each / self.outline.probe_cost(limit_s)).min((MOST_EXPLORED / (steps as usize + 1)) as f64);
            let some = usize::from(rng.random_bool(many.fract()));
            limits_s.extend(std::iter::repeat_n(limit_s, many as usize + some));
        }
        limits_s
    }
}

impl Exploration {
    /// Returns whether the queue can be one of workers.
    pub(super) fn is_valid(&self) -> bool {
        self.queue.iter().all(|slot| (*slot as usize) < self.queue.len())
    }

    /// Returns idle workers to explore, each with the longest time that its probe may take. `idle` returns a worker's position among
    /// those that can be probed.
    pub(super) fn next(
        &mut self,
        workers: usize,
        allowance: &Allowance,
        idle: impl Fn(WorkerId) -> Option<usize>,
        rng: &mut SchedulerRng,
    ) -> Vec<(usize, f64)> {
        if self.queue.len() < workers {
            let mut new: Vec<u32> = (self.queue.len() as u32..workers as u32).collect();
            new.shuffle(rng);
            self.queue.extend(new);
        }
        let mut limits_s = allowance.limits_s(rng);
        let mut chosen = Vec::new();
        for _ in 0..MOST_EXPLORED.min(self.queue.len()) {
            let Some(&limit_s) = limits_s.last() else { break };
            self.queue.rotate_left(1);
            let slot = self.queue[self.queue.len() - 1];
            if let Some(i) = idle(WorkerId::from_slot(slot as usize)) {
                chosen.push((i, limit_s));
                limits_s.pop();
            }
        }
        chosen
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rand::SeedableRng;

    fn rng() -> SchedulerRng {
        SchedulerRng::seed_from_u64(7)
    }

    /// Returns a plan for some of 8 workers.
    fn outline(used: usize) -> Outline {
        Outline { used, workers: 8, all_s: 1.0, longest_s: 1.0, fastest_s: 1.0, download: 0.0 }
    }

    /// Each length of probe gets the same part of the worker time, and together they get the allowed share.
    #[test]
    fn short_probes_cost_as_much_in_all_as_long_ones() {
        let allowance = Allowance {
            share: 0.01,
            outline: Outline { all_s: 5000.0, longest_s: 800.0, fastest_s: 100.0, ..outline(1) },
        };
        let mut rng = rng();
        let mut spent_s = [0.0; 4];
        for _ in 0..100_000 {
            for limit_s in allowance.limits_s(&mut rng) {
                spent_s[((800.0 / limit_s).ln() / 8.0_f64.ln() * 3.0).round() as usize] += limit_s;
            }
        }
        for spent_s in spent_s {
            let share = spent_s / (5000.0 * 100_000.0);
            assert!((share / 0.0025 - 1.0).abs() < 0.1, "{share}");
        }
    }

    /// The more speeds have changed and the more workers are idle, the more is spent.
    #[test]
    fn the_share_follows_the_changes() {
        let share = |used, moved| Allowance::new(outline(used), moved, 100).share;
        assert_eq!((share(8, 1.0), share(2, 1e9)), (0.0, MOST));
        assert!(share(4, 1.0) > share(4, 0.0) && share(2, 0.0) > share(4, 0.0));
        // Here 3/4 of the workers are idle, and λ = (½ + 1·8/2)/100.
        assert!((share(2, 1.0) - 0.75 * (0.045_f64 / 8.0).sqrt()).abs() < 1e-12);
    }

    /// Every idle worker has its turn before any has its second.
    #[test]
    fn all_have_their_turn() {
        let allowance = Allowance { share: 0.5, outline: Outline { all_s: 6.0, ..outline(1) } };
        let (mut exploration, mut rng, mut explored) = (Exploration::default(), rng(), [0; 10]);
        for _ in 0..3 {
            for (i, limit_s) in
                exploration.next(10, &allowance, |worker| Some(worker.slot()).filter(|slot| *slot != 4), &mut rng)
            {
                assert_eq!(limit_s, 1.0);
                explored[i] += 1;
            }
        }
        assert_eq!(explored, [1, 1, 1, 1, 0, 1, 1, 1, 1, 1]);
    }
}
