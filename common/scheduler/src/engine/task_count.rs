//! The number of tasks of an iteration, if the engine chooses it.
//!
//! That of a round of local steps follows from [`RoundTimes`]. One that follows the goodput (see `goodput`) is chosen between two iterations.

use std::sync::Arc;

use ata_types::Iteration;
use serde::{Deserialize, Serialize};

use crate::goodput::{Goodput, progress};
use crate::round_times::{RoundTime, RoundTimes};

/// The largest factor by which the number changes at once: what is measured over very few tasks may be far from what lasts, and the integers
/// of differences have room for those that are four times as large, as they are for twice as many steps of twice as many tasks.
const MOST_CHANGE: f64 = 2.0;

/// The same if the number follows the noise, which changes slowly and is estimated over 50 steps. A smaller difference changes nothing.
const NOISE_CHANGE: f64 = 1.25;

/// The largest share of a round's steps that are taken ahead, before its parameters are there. On the links of the how-to on machines far
/// apart, a test loss of 2.9 is reached after 126 s with 0.9 (two seeds), 100 s with 0.6 and 95 s with 0.4 (one).
const AHEAD: f64 = 0.4;

/// The number of iterations for which a number is kept that follows the goodput: those over which the noise is estimated.
const KEPT: u64 = 50;

/// About how many numbers are tried for the largest goodput, which is flat around its maximum.
const TRIED: u64 = 64;

/// The least factor by which the goodput must grow. Around its maximum, half as many tasks again cost 2 % of it.
const GAIN: f64 = 1.05;

/// How the engine chooses the number of tasks of each iteration.
#[derive(Clone, Debug, PartialEq)]
pub struct TaskChoice {
    /// What the number follows.
    pub rule: TaskRule,
    /// The least number; at least 1.
    pub least: u64,
    /// The largest number.
    pub most: u64,
    /// How the learning rate follows the number.
    pub rate: RateScaling,
    /// The number of tasks of the steps that the learning rate is for. It is positive, and may be a fraction.
    pub rate_tasks: f64,
}

impl TaskChoice {
    /// Makes iterations rounds of local steps, of so many tasks at least and at most.
    pub const fn of_rounds(least: u64, most: u64) -> Self {
        Self { rule: TaskRule::Exchange, least, most, rate: RateScaling::Constant, rate_tasks: 1.0 }
    }

    /// Returns the factor of the learning rate of a step of `tasks` tasks. If the noise scale is not known, it is taken to be as large.
    pub(super) fn rate_factor(&self, tasks: u64, noise: Option<f64>) -> f64 {
        let tasks = tasks as f64;
        let noise = noise.unwrap_or(tasks);
        let progress = progress(tasks, noise) / progress(self.rate_tasks, noise);
        match self.rate {
            RateScaling::Constant => 1.0,
            RateScaling::Adaptive => progress / (tasks / self.rate_tasks).sqrt(),
            RateScaling::Progress => progress,
        }
    }
}

/// What the number of tasks of an iteration follows.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum TaskRule {
    /// What is not computation: workers compute for nine tenths of the time.
    Exchange,
    /// The noise scale of the gradients, which does not depend on who computes how fast.
    Noise,
    /// The goodput, which depends on both. A number is kept for 50 iterations at least, and changes only once that is saved, so that no
    /// iteration is repeated with another one.
    Goodput,
    /// The numbers of another run: each one with the number of iterations that had it. The last one is that of all further iterations.
    Path(Arc<[(u64, u64)]>),
}

/// How the learning rate of a step follows the number of its tasks, B, if it was chosen for steps on b of them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RateScaling {
    /// It does not.
    Constant,
    /// It grows with √(B/b) where B is far below N (Malladi et al., "On the SDEs and Scaling Rules for Adaptive Gradient Algorithms", 2022), is
    /// largest at N, and falls beyond it, as 1/(√(N/B) + √(B/N)), which suits Adam (Li et al., "Surge Phenomenon in Optimal Learning Rate and
    /// Batch Size Scaling", 2024).
    Adaptive,
    /// It grows as the progress of a step does, (B/(B + N))/(b/(b + N)), which suits SGD (Johnson et al., "AdaScale SGD", 2020, equation 3).
    Progress,
}

/// Chooses the number of tasks of each iteration.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct TaskCount {
    tasks: u64,
    /// The number of iterations since it changed, if it follows the goodput. The first change may come as soon as the noise is known.
    kept: u64,
    /// The number before it, which is restored if the change cannot be saved.
    #[serde(skip)]
    before: Option<u64>,
    measured: RoundTimes,
    /// The last iteration, if it is not measured: its time ends when the next one begins.
    #[serde(skip)]
    computed: Option<ComputedTasks>,
}

#[derive(Clone, Copy, Debug, PartialEq)]
struct ComputedTasks {
    tasks: u64,
    /// Seconds for which the worker computed that computed for longest.
    busy_s: f64,
    began_s: f64,
}

impl TaskCount {
    pub(super) fn new(tasks: u64) -> Self {
        Self { tasks, kept: KEPT, before: None, measured: RoundTimes::default(), computed: None }
    }

    /// All tasks of an iteration that began at `began_s` are computed. The worker that computed for longest did so for `busy_s` seconds.
    pub(super) fn computed(&mut self, tasks: u64, busy_s: f64, began_s: f64) {
        self.computed = (busy_s > 0.0).then_some(ComputedTasks { tasks, busy_s, began_s });
    }

    /// Measures the last iteration, which was followed by one that began at `next_s`. For `beside_s` seconds of that one, it was not over.
    pub(super) fn measure(&mut self, next_s: f64, beside_s: f64) {
        if let Some(ComputedTasks { tasks, busy_s, began_s }) = self.computed.take() {
            let exchange_s = (next_s - began_s - busy_s).max(0.0);
            self.measured.add(RoundTime { tasks_per_s: tasks as f64 / busy_s, exchange_s, beside_s });
        }
    }

    /// The run waits for workers, so that the time of the last iteration says nothing.
    pub(super) fn interrupt(&mut self) {
        self.computed = None;
    }

    /// Returns the number of tasks of an iteration that begins now, given the noise scale, if it is known.
    pub(super) fn next(&mut self, iteration: Iteration, now_s: f64, noise: Option<f64>, choice: &TaskChoice) -> u64 {
        self.measure(now_s, 0.0);
        let last = self.tasks as f64;
        let next = match &choice.rule {
            TaskRule::Exchange => {
                self.measured.hiding(AHEAD).map(|tasks| tasks.clamp(last / MOST_CHANGE, last * MOST_CHANGE))
            }
            TaskRule::Noise => noise.and_then(|tasks| following(last, tasks)),
            TaskRule::Goodput => None,
            TaskRule::Path(path) => on_path(path, iteration).map(|tasks| tasks as f64),
        };
        let next = next.map_or(self.tasks, |tasks| tasks.round() as u64);
        self.tasks = next.clamp(choice.least, choice.most.max(choice.least));
        self.tasks
    }

    /// Chooses the number of tasks that follows the goodput, between two iterations. Returns whether it has changed, and has to be saved.
    /// `means` are the mean times of the workers' tasks, if they are known.
    pub(super) fn choose(&mut self, noise: Option<f64>, means: Option<Vec<f64>>, choice: &TaskChoice) -> bool {
        self.kept = self.kept.saturating_add(1);
        self.before = None;
        let measured = self.measured.medians().filter(|_| self.kept >= KEPT);
        let Some((noise, RoundTime { tasks_per_s, exchange_s, .. })) = noise.zip(measured) else { return false };
        // Workers without mean times of single tasks count as one that is as fast as all of them together.
        let goodput = Goodput { means_s: means.unwrap_or_else(|| vec![1.0 / tasks_per_s]), exchange_s, noise };
        let nearest = |factor: f64| ((self.tasks as f64 * factor) as u64).clamp(choice.least, choice.most);
        let (least, most) = (nearest(1.0 / MOST_CHANGE), nearest(MOST_CHANGE));
        let tried = (least..=most).step_by(((most - least) / TRIED + 1) as usize);
        let best = tried.max_by(|a, b| goodput.of(*a).total_cmp(&goodput.of(*b))).unwrap_or(self.tasks);
        let has_changed = goodput.of(best) >= GAIN * goodput.of(self.tasks);
        if has_changed {
            (self.before, self.tasks, self.kept) = (Some(self.tasks), best, 0);
        }
        has_changed
    }

    /// Takes back a change that could not be saved.
    pub(super) fn revert(&mut self) {
        self.tasks = self.before.take().unwrap_or(self.tasks);
    }

    pub(super) fn is_valid(&self) -> bool {
        self.tasks >= 1 && self.measured.is_valid()
    }
}

fn on_path(path: &[(u64, u64)], iteration: Iteration) -> Option<u64> {
    let mut left = iteration.since(Iteration::FIRST);
    let reached = path.iter().find(|(_, iterations)| {
        let is_reached = left < *iterations;
        left = left.saturating_sub(*iterations);
        is_reached
    });
    reached.or(path.last()).map(|(tasks, _)| *tasks)
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

    const UP_TO_960: TaskChoice = TaskChoice::of_rounds(8, 960);

    /// Runs iterations of workers that compute so many tasks a second, where each iteration takes `exchange_s` longer. Returns the numbers.
    fn run(length: &mut TaskCount, tasks_per_s: f64, exchange_s: &[f64]) -> Vec<u64> {
        let mut now_s = 0.0;
        let each = exchange_s.iter().map(|exchange_s| {
            let tasks = length.next(Iteration::FIRST, now_s, None, &UP_TO_960);
            let busy_s = tasks as f64 / tasks_per_s;
            length.computed(tasks, busy_s, now_s);
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
        let shorter = run(&mut length, 100.0, &[0.002; 9]);
        assert_eq!(shorter[5..], [23, 12, 8, 8], "it takes three of five, and then steps of two");
        assert_eq!(run(&mut TaskCount::new(24), 100.0, &[9.0; 8])[5..], [768, 960, 960], "the largest is 960");
    }

    #[test]
    fn single_iterations_and_pauses_change_nothing() {
        let mut length = TaskCount::new(180);
        let odd = [0.2, 0.2, 0.2, 60.0, 0.2, 0.2, 60.0, 0.2];
        assert_eq!(run(&mut length, 100.0, &odd), [180; 8]);
        length.interrupt();
        assert_eq!(length.next(Iteration::FIRST, 1e6, None, &UP_TO_960), 180);
        // A clock may measure zero.
        length.computed(180, 0.0, 1e6);
        assert_eq!((length.next(Iteration::FIRST, 2e6, None, &UP_TO_960), length.is_valid()), (180, true));
        assert_eq!(length.next(Iteration::FIRST, 2e6, None, &TaskChoice { most: 100, ..UP_TO_960 }), 100);
    }

    #[test]
    fn the_number_follows_the_noise_slowly_and_within_its_limits() {
        let choice = TaskChoice { rule: TaskRule::Noise, least: 2, most: 60, ..UP_TO_960 };
        let run = |first: u64, noise: Option<f64>| {
            let mut count = TaskCount::new(first);
            // Times do not matter.
            let mut next = |step| {
                count.computed(1, 1.0, 9.0 * (step - 1.0));
                count.next(Iteration::FIRST, 9.0 * step, noise, &choice)
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

    /// Workers compute 100 tasks a second, and 0.04 s of an iteration are not computation: with a noise scale of 25, 10 tasks achieve most.
    #[test]
    fn the_number_follows_the_goodput_once_that_is_saved() {
        let choice = TaskChoice { rule: TaskRule::Goodput, least: 2, most: 60, ..UP_TO_960 };
        let mut count = TaskCount::new(40);
        let mut now_s = 0.0;
        let mut run = |noise: Option<f64>, is_saved: bool| {
            let mut steps = (0..60).map(|_| {
                let tasks = count.next(Iteration::FIRST, now_s, noise, &choice);
                count.computed(tasks, tasks as f64 / 100.0, now_s);
                now_s += tasks as f64 / 100.0 + 0.04;
                let has_changed = count.choose(noise, None, &choice);
                if has_changed && !is_saved {
                    count.revert();
                }
                assert!(count.is_valid());
                (has_changed, count.next(Iteration::FIRST, now_s, noise, &choice))
            });
            steps.find(|(has_changed, _)| *has_changed).map(|(_, tasks)| tasks)
        };
        assert_eq!(run(None, true), None);
        assert_eq!(run(Some(25.0), false), Some(40), "it could not be saved");
        assert_eq!(run(Some(25.0), true), Some(20), "at most by half");
        assert_eq!([run(Some(25.0), true), run(Some(25.0), true)], [Some(10), None]);
        assert_eq!(run(Some(28.0), true), None, "the gain is too small");
        assert_eq!([run(Some(1e9), true), run(Some(0.0), true)], [Some(20), Some(10)]);
    }

    /// These workers are all busy to the end with 15 tasks, and three of them with 7.
    #[test]
    fn the_goodput_knows_whole_shares() {
        let choice = TaskChoice { rule: TaskRule::Goodput, least: 2, most: 128, ..UP_TO_960 };
        let means = [0.02, 0.04, 0.08, 0.16];
        let mut count = TaskCount::new(16);
        count.computed(16, 0.18, 0.0);
        count.measure(0.192, 0.0);
        let mut next = || {
            count.kept = KEPT;
            count.choose(Some(30.0), Some(means.into()), &choice);
            count.tasks
        };
        assert_eq!([next(), next(), next()], [15, 7, 7]);
    }

    #[test]
    fn a_path_is_followed_and_its_last_number_stays() {
        let path = [(4, 2), (9, 1), (100, 2), (8, 3)];
        let choice = TaskChoice { rule: TaskRule::Path(path.into()), least: 2, most: 60, ..UP_TO_960 };
        let mut count = TaskCount::new(4);
        let found = (1..=10).map(|iteration| count.next(Iteration(iteration), 0.0, Some(1e9), &choice));
        assert_eq!(found.collect::<Vec<_>>(), [4, 4, 9, 60, 60, 8, 8, 8, 8, 8]);
        assert_eq!(on_path(&[], Iteration(3)), None);
    }

    #[test]
    fn the_learning_rate_follows_the_number() {
        let factor = |rate, rate_tasks, noise| TaskChoice { rate, rate_tasks, ..UP_TO_960 }.rate_factor(64, noise);
        assert_eq!(factor(RateScaling::Constant, 1.0, Some(1.0)), 1.0);
        let adaptive = |noise| factor(RateScaling::Adaptive, 4.0, Some(noise));
        assert!((adaptive(1e9) - 4.0).abs() < 1e-6, "the square root where there is hardly anything but noise");
        // 1/(√(N/64) + √(64/N)) relative to 1/(√(N/4) + √(4/N)).
        assert_eq!([64.0, 16.0, 1.0].map(adaptive), [4.25 / 2.0, 1.0, 5.0 / 16.25]);
        // With as much noise as gradient in 64 tasks: from one in 65 of what a step could achieve to a half.
        assert_eq!(factor(RateScaling::Progress, 1.0, None), 32.5);
        assert_eq!(factor(RateScaling::Progress, 64.0, None), 1.0);
        assert!((factor(RateScaling::Progress, 1.0, Some(1e9)) - 64.0).abs() < 1e-5, "as the mean without a gradient");
        assert!((factor(RateScaling::Progress, 1.0, Some(0.0)) - 1.0).abs() < 1e-12, "more tasks give nothing");
    }
}
