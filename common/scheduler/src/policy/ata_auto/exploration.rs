//! ATA-Auto's exploration among workers without promising estimates, any of which may have become faster.

use std::collections::VecDeque;

use rand::RngExt;
use rand::seq::SliceRandom;
use serde::{Deserialize, Serialize};

use super::plan::PlannedWorker;
use crate::policy::SchedulerRng;
use crate::topology::LinkTimes;
use ata_types::WorkerId;

/// The number of changes that are assumed before any was observed: Jeffreys' prior of a rate.
pub(super) const PRIOR: f64 = 0.5;

/// The largest cost of all probes, in iterations.
const MOST: f64 = 0.5;

/// The most workers that are considered in an iteration to find those that can be probed.
const MOST_EXPLORED: usize = 64;

/// The largest span of probe lengths: the longest is at most a factor of exp(20) above the shortest.
const MOST_SPAN: f64 = 20.0;

#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub(super) struct Exploration {
    /// The slots in the order in which they are explored: shuffled when they are added, and then always the same.
    queue: VecDeque<u32>,
}

/// The parts of a plan from which the cost of a probe follows.
#[derive(Clone, Copy, Debug)]
pub(super) struct Outline {
    /// The number of workers with a share, A.
    pub(super) used: usize,
    /// The number of all workers, n.
    pub(super) workers: usize,
    /// The sum of the seconds of all workers with a share, W.
    pub(super) all_s: f64,
    /// The longest time planned for a worker, l.
    pub(super) longest_s: f64,
    /// The time that the fastest of them takes for a task, in seconds.
    pub(super) fastest_s: f64,
    /// The cost of downloading parameters for a probe, in iterations: the download takes capacity of the coordinator's link from those
    /// that the step waits for.
    pub(super) download: f64,
}

impl Outline {
    pub(super) fn new(members: &[PlannedWorker], workers: usize, links: &LinkTimes) -> Self {
        let mut outline =
            Self { used: 0, workers, all_s: 0.0, longest_s: 0.0, fastest_s: f64::INFINITY, download: 0.0 };
        let mut step_s = 0.0_f64;
        for PlannedWorker { pace, share, .. } in members.iter().filter(|member| member.share > 0) {
            let time_s = pace.time_s(*share);
            outline.used += 1;
            outline.all_s += time_s;
            outline.longest_s = outline.longest_s.max(time_s);
            outline.fastest_s = outline.fastest_s.min(pace.time_s(1));
            step_s = step_s.max(time_s + pace.window_s);
        }
        // Whole parameters, which a worker needs that did not take part in the last step, take about as long as its vector and the
        // differences together.
        let download_s = links.up_s + links.down_s;
        outline.download = if download_s > 0.0 { download_s / step_s } else { 0.0 };
        outline
    }

    /// Returns the cost that all probes of iteration `k` may have, in iterations, after changes of speed that add up to `moved`.
    fn allowance(&self, moved: f64, k: u64) -> f64 {
        // A worker's speed changes at a rate of λ = (½ + V·n/A)/k in an iteration, half of the time to a faster one, which is
        // worth 1/A of an iteration. A rate of ν probes costs ν/A, and delays each change by 1/2ν: the best is √(λ/4).
        let (used, workers) = (self.used as f64, self.workers as f64);
        let rate = (PRIOR + moved * workers / used) / k as f64;
        ((workers - used) / workers * (rate / (4.0 * used)).sqrt()).min(MOST)
    }

    /// Returns limits on the length of probes, each a factor of about e apart, and each with the same part of the worker time. So the
    /// worker that would gain most is found soonest, at little cost for each that is explored.
    fn limits_s(&self, allowance: f64, rng: &mut SchedulerRng) -> Vec<f64> {
        let fastest_s = self.fastest_s.min(self.longest_s);
        // A clock may measure zero.
        if fastest_s <= 0.0 {
            return Vec::new();
        }
        let span = (self.longest_s / fastest_s).ln().min(MOST_SPAN);
        let steps = span.ceil().max(0.0);
        let each = allowance / (steps + 1.0);
        let mut limits_s = Vec::new();
        for step in 0..=steps as u32 {
            let limit_s = self.longest_s * (-span * f64::from(step) / steps.max(1.0)).exp();
            let cost = limit_s / self.all_s + self.download;
            let many = (each / cost).min((MOST_EXPLORED / (steps as usize + 1)) as f64);
            let some = usize::from(rng.random_bool(many.fract()));
            limits_s.extend(std::iter::repeat_n(limit_s, many as usize + some));
        }
        limits_s
    }
}

impl Exploration {
    pub(super) fn is_valid(&self) -> bool {
        self.queue.iter().all(|slot| (*slot as usize) < self.queue.len())
    }

    /// Returns idle workers to explore in iteration `k`, each with the longest time that its probe may take. `moved` is the sum of all
    /// changes of speed; `idle` returns a worker's position among those that can be probed.
    pub(super) fn next(
        &mut self,
        workers: usize,
        outline: &Outline,
        (moved, k): (f64, u64),
        idle: impl Fn(WorkerId) -> Option<usize>,
        rng: &mut SchedulerRng,
    ) -> Vec<(usize, f64)> {
        if self.queue.len() < workers {
            let mut new: Vec<u32> = (self.queue.len() as u32..workers as u32).collect();
            new.shuffle(rng);
            self.queue.extend(new);
        }
        let mut limits_s = outline.limits_s(outline.allowance(moved, k), rng);
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

    /// Returns a plan for some of 8 workers.
    fn outline(used: usize) -> Outline {
        Outline { used, workers: 8, all_s: 1.0, longest_s: 1.0, fastest_s: 1.0, download: 0.0 }
    }

    /// The more speeds have changed and the more workers are idle, the more is spent.
    #[test]
    fn the_share_follows_the_changes() {
        let share = |used, moved| outline(used).allowance(moved, 100);
        assert_eq!((share(8, 1.0), share(2, 1e9)), (0.0, MOST));
        assert!(share(4, 1.0) > share(4, 0.0) && share(2, 0.0) > share(4, 0.0));
        // Here 3/4 of the workers are idle, and λ = (½ + 1·8/2)/100.
        assert!((share(2, 1.0) - 0.75 * (0.045_f64 / 8.0).sqrt()).abs() < 1e-12);
    }

    #[test]
    fn all_have_their_turn() {
        let outline = Outline { all_s: 6.0, ..outline(1) };
        let idle = |worker: WorkerId| Some(worker.slot()).filter(|slot| *slot != 4);
        let mut rng = SchedulerRng::seed_from_u64(7);
        let (mut exploration, mut explored) = (Exploration::default(), [0; 10]);
        for _ in 0..3 {
            // The changes are so many that all probes may cost half an iteration.
            for (i, limit_s) in exploration.next(10, &outline, (1e9, 1), idle, &mut rng) {
                assert_eq!(limit_s, 1.0);
                explored[i] += 1;
            }
        }
        assert_eq!(explored, [1, 1, 1, 1, 0, 1, 1, 1, 1, 1]);
    }
}
