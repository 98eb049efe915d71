//! The number of tasks of an iteration, if the engine chooses it.
//!
//! An iteration of A tasks takes A/R + x seconds: workers compute R tasks a second, and for x seconds they do not compute, while vectors and
//! parameters travel and the step is taken. Local steps leave x as it is, however many there are. So workers compute for a share u of the
//! time with A = R·x·u/(1 − u) tasks.
//!
//! The mean of B gradients achieves B/(B + N) of what the gradient without noise would (see `noise`): with B = N, half of it. Fewer take more
//! steps, and more take more samples, than that is worth (McCandlish et al., "An Empirical Model of Large-Batch Training", 2018, section 2.3).

use std::collections::VecDeque;

use serde::{Deserialize, Serialize};

/// How the engine chooses the number of tasks of each iteration.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TaskChoice {
    /// What the number follows.
    pub rule: TaskRule,
    /// The least number; at least 1.
    pub least: u64,
    /// The largest number.
    pub most: u64,
    /// How the learning rate follows the number.
    pub rate: RateScaling,
}

/// What the number of tasks of an iteration follows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TaskRule {
    /// What is not computation: workers compute for nine tenths of the time.
    Exchange,
    /// The noise scale of the gradients, which does not depend on who computes how fast.
    Noise,
}

/// How the learning rate of a step follows the number of its tasks, B, if it was chosen for B₀ of them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RateScaling {
    /// It does not.
    Constant,
    /// It grows with √(B/B₀), which suits Adam (Malladi et al., "On the SDEs and Scaling Rules for Adaptive Gradient Algorithms", 2022).
    SquareRoot,
    /// It grows as the progress of a step does, (B/(B + N))/(B₀/(B₀ + N)), which suits SGD (Johnson et al., "AdaScale SGD", 2020, equation 3).
    Progress,
}

impl RateScaling {
    /// Returns the factor of the learning rate of a step of `tasks` tasks. If the noise scale is not known, it is taken to be as large.
    pub(super) fn factor(self, tasks: u64, base: u64, noise: Option<f64>) -> f64 {
        let (tasks, base) = (tasks as f64, base as f64);
        let noise = noise.unwrap_or(tasks);
        match self {
            Self::Constant => 1.0,
            Self::SquareRoot => (tasks / base).sqrt(),
            Self::Progress => tasks / (tasks + noise) * (base + noise) / base,
        }
    }
}

/// The share of the time in which workers are to compute, u. Beyond it, twice as many tasks gain a twentieth of the time at most.
const UTILIZATION: f64 = 0.9;

/// The number of iterations whose medians count: up to two of them may be unlike the others, such as those in which a worker was lost.
const REMEMBERED: usize = 5;

/// The largest factor by which the number changes at once: what is measured over very few tasks may be far from what lasts, and the integers
/// of differences have room for those that are four times as large, as they are for twice as many steps of twice as many tasks.
const MOST_CHANGE: f64 = 2.0;

/// The same if the number follows the noise, which changes slowly and is estimated over 50 steps. A smaller difference changes nothing.
const NOISE_CHANGE: f64 = 1.25;

/// Chooses the number of tasks of each iteration.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct TaskCount {
    /// The number that was chosen last.
    tasks: u64,
    measured: VecDeque<MeasuredRound>,
    /// The last iteration, whose time ends when the next one begins.
    #[serde(skip)]
    last: Option<LastRound>,
}

/// What was measured of an iteration.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct MeasuredRound {
    tasks_per_s: f64,
    /// Seconds in which the worker that computed for longest did not compute.
    exchange_s: f64,
}

#[derive(Clone, Copy, Debug, PartialEq)]
struct LastRound {
    tasks: u64,
    started_s: f64,
    /// Seconds for which the worker computed that computed for longest.
    busy_s: f64,
}

impl TaskCount {
    /// Begins with so many tasks.
    pub(super) fn new(tasks: u64) -> Self {
        Self { tasks, measured: VecDeque::new(), last: None }
    }

    /// An iteration that began at `started_s` was committed.
    pub(super) fn committed(&mut self, tasks: u64, started_s: f64, busy_s: f64) {
        self.last = Some(LastRound { tasks, started_s, busy_s });
    }

    /// The run waits for workers, so that the time of the last iteration says nothing.
    pub(super) fn interrupt(&mut self) {
        self.last = None;
    }

    /// Returns the number of tasks of the iteration that begins now, given the noise scale, if it is known.
    pub(super) fn next(&mut self, now_s: f64, noise: Option<f64>, choice: &TaskChoice) -> u64 {
        self.measure(now_s);
        let last = self.tasks as f64;
        let next = match choice.rule {
            TaskRule::Exchange => self.hiding().map(|tasks| tasks.clamp(last / MOST_CHANGE, last * MOST_CHANGE)),
            TaskRule::Noise => noise.and_then(|tasks| following(last, tasks)),
        };
        let next = next.map_or(self.tasks, |tasks| tasks.round() as u64);
        self.tasks = next.clamp(choice.least, choice.most.max(choice.least));
        self.tasks
    }

    /// Measures the last iteration.
    fn measure(&mut self, now_s: f64) {
        if let Some(LastRound { tasks, started_s, busy_s }) = self.last.take().filter(|last| last.busy_s > 0.0) {
            self.measured.truncate(REMEMBERED - 1);
            let exchange_s = (now_s - started_s - busy_s).max(0.0);
            self.measured.push_front(MeasuredRound { tasks_per_s: tasks as f64 / busy_s, exchange_s });
        }
    }

    /// Returns the number of tasks with which workers compute for a share of the time of [`UTILIZATION`].
    fn hiding(&self) -> Option<f64> {
        let median = |of: fn(&MeasuredRound) -> f64| {
            let mut all: Vec<f64> = self.measured.iter().map(of).collect();
            all.sort_by(f64::total_cmp);
            all.get(all.len() / 2).copied()
        };
        let tasks_per_s = median(|measured| measured.tasks_per_s)?;
        Some(tasks_per_s * median(|measured| measured.exchange_s)? * UTILIZATION / (1.0 - UTILIZATION))
    }

    /// Returns whether an engine can have saved this.
    pub(super) fn is_valid(&self) -> bool {
        let is_time = |value: f64| (0.0..=crate::batches::MOST).contains(&value);
        let are_times = |of: &MeasuredRound| is_time(of.tasks_per_s) && is_time(of.exchange_s);
        self.tasks >= 1 && self.measured.len() <= REMEMBERED && self.measured.iter().all(are_times)
    }
}

/// Returns the number of tasks after `last` on the way to `wanted`, if that is far enough.
fn following(last: f64, wanted: f64) -> Option<f64> {
    let ratio = wanted / last;
    // At least one task more or less, or small numbers would never change.
    (ratio >= NOISE_CHANGE)
        .then_some((last * NOISE_CHANGE).max(last + 1.0))
        .or((ratio * NOISE_CHANGE <= 1.0).then_some((last / NOISE_CHANGE).min(last - 1.0)))
}

#[cfg(test)]
mod tests {
    use super::*;

    const UP_TO_960: TaskChoice =
        TaskChoice { rule: TaskRule::Exchange, least: 8, most: 960, rate: RateScaling::Constant };

    /// Runs iterations of workers that compute so many tasks a second, where each iteration takes `exchange_s` longer. Returns the numbers.
    fn run(length: &mut TaskCount, tasks_per_s: f64, exchange_s: &[f64]) -> Vec<u64> {
        let mut now_s = 0.0;
        let each = exchange_s.iter().map(|exchange_s| {
            let tasks = length.next(now_s, None, &UP_TO_960);
            let busy_s = tasks as f64 / tasks_per_s;
            length.committed(tasks, now_s, busy_s);
            now_s += busy_s + exchange_s;
            tasks
        });
        each.collect()
    }

    /// 180 tasks hide an exchange of 0.2 s, if workers compute 100 a second: 1.8 s of 2 s.
    #[test]
    fn the_exchange_takes_a_tenth_of_the_time() {
        let mut length = TaskCount::new(24);
        assert_eq!(run(&mut length, 100.0, &[0.2; 6]), [24, 48, 96, 180, 180, 180]);
        length.interrupt();
        assert_eq!(
            run(&mut length, 100.0, &[0.002; 9])[5..],
            [23, 12, 8, 8],
            "it takes three of five, and then steps of two"
        );
        assert_eq!(run(&mut TaskCount::new(24), 100.0, &[9.0; 8])[5..], [768, 960, 960], "the largest is 960");
    }

    #[test]
    fn single_iterations_and_pauses_change_nothing() {
        let mut length = TaskCount::new(180);
        let odd = [0.2, 0.2, 0.2, 60.0, 0.2, 0.2, 60.0, 0.2];
        assert_eq!(run(&mut length, 100.0, &odd), [180; 8]);
        length.interrupt();
        assert_eq!(length.next(1e6, None, &UP_TO_960), 180);
        // A clock may measure zero.
        length.committed(180, 1e6, 0.0);
        assert_eq!((length.next(2e6, None, &UP_TO_960), length.is_valid()), (180, true));
        assert_eq!(length.next(2e6, None, &TaskChoice { most: 100, ..UP_TO_960 }), 100);
    }

    #[test]
    fn the_number_follows_the_noise_slowly_and_within_its_limits() {
        let choice = TaskChoice { rule: TaskRule::Noise, least: 2, most: 60, rate: RateScaling::Constant };
        let run = |first: u64, noise: Option<f64>| {
            let mut count = TaskCount::new(first);
            // Times do not matter.
            let mut next = |step| {
                count.committed(1, step, 1.0);
                count.next(9.0 * step, noise, &choice)
            };
            [1.0, 2.0, 3.0, 4.0, 5.0, 6.0].map(&mut next)
        };
        assert_eq!(run(16, None), [16; 6]);
        assert_eq!(run(16, Some(19.0)), [16; 6]);
        assert_eq!(run(16, Some(27.0)), [20, 25, 25, 25, 25, 25]);
        assert_eq!(run(16, Some(1e9)), [20, 25, 31, 39, 49, 60]);
        assert_eq!(run(5, Some(0.0)), [4, 3, 2, 2, 2, 2]);
        assert_eq!(run(2, Some(4.0)), [3, 4, 4, 4, 4, 4]);
    }

    #[test]
    fn the_learning_rate_follows_the_number() {
        let factor = |scaling: RateScaling, noise| scaling.factor(64, 16, noise);
        assert_eq!(factor(RateScaling::Constant, Some(1.0)), 1.0);
        assert_eq!(factor(RateScaling::SquareRoot, Some(1.0)), 2.0);
        // With as much noise as gradient in 64 tasks: from a fifth of what a step could achieve to a half.
        assert_eq!(factor(RateScaling::Progress, None), 2.5);
        assert!((factor(RateScaling::Progress, Some(1e9)) - 4.0).abs() < 1e-6, "as the mean without a gradient");
        assert!(
            (factor(RateScaling::Progress, Some(0.0)) - 1.0).abs() < 1e-12,
            "without noise, more tasks give nothing"
        );
    }
}
