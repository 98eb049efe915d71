//! ATA-Auto's search among workers of which nothing is expected: any of them may have become faster.

use std::collections::VecDeque;

use rand::RngExt;
use rand::seq::SliceRandom;
use serde::{Deserialize, Serialize};

use crate::ids::WorkerId;
use crate::policy::SchedulerRng;

/// The least share of worker time that is spent if nearly all workers are idle.
const LEAST: f64 = 0.01;

/// The factor on √(V ln k/k), the share for V changes of speed in k iterations.
const PER_CHANGE: f64 = 0.3;

/// The most of it.
const MOST: f64 = 0.5;

/// Workers looked at in an iteration, to find those that can be probed.
const MOST_LOOKS: usize = 64;

/// Whose turn it is, and how long it may take.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub(super) struct Search {
    /// Slots in the order in which they are looked at: shuffled as they were first seen, and then always the same.
    queue: VecDeque<u32>,
}

/// What the search may cost in an iteration.
#[derive(Clone, Copy, Debug)]
pub(super) struct Allowance {
    /// The share of worker time.
    share: f64,
    /// All worker time planned, W, in seconds.
    all_s: f64,
    /// The longest time planned for a worker, l.
    longest_s: f64,
    /// How long the fastest worker in use takes for a task.
    fastest_s: f64,
}

impl Allowance {
    /// In iteration `k`, after changes of speed that sum up to `moved`, if this share of the workers is idle.
    pub(super) fn new(idle: f64, moved: f64, k: u64, all_s: f64, longest_s: f64, fastest_s: f64) -> Self {
        let k = k as f64;
        let share = idle * idle * LEAST.max(PER_CHANGE * (moved * k.ln().max(1.0) / k).sqrt());
        Self { share: share.min(MOST), all_s, longest_s, fastest_s: fastest_s.min(longest_s) }
    }

    /// How long probes may take: lengths from that of the fastest worker's task to the whole iteration, each a factor of
    /// about e apart, and each with the same part of the worker time. So the worker that would gain most is found soonest, at
    /// little cost for each that is looked at.
    fn limits_s(&self, rng: &mut SchedulerRng) -> Vec<f64> {
        let span = (self.longest_s / self.fastest_s).ln();
        let steps = span.ceil().max(0.0);
        let each_s = self.share * self.all_s / (steps + 1.0);
        let mut limits_s = Vec::new();
        for step in 0..=steps as u32 {
            let limit_s = self.longest_s * (-span * f64::from(step) / steps.max(1.0)).exp();
            let many = each_s / limit_s;
            let some = usize::from(rng.random_bool(many.fract()));
            limits_s.extend(std::iter::repeat_n(limit_s, many as usize + some));
        }
        limits_s.truncate(MOST_LOOKS);
        limits_s
    }
}

impl Search {
    /// Idle workers to look at, each with the longest time that its probe may take. `idle` says where a worker stands among
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
        for _ in 0..MOST_LOOKS.min(self.queue.len()) {
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
