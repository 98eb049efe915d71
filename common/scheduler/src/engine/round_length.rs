//! The number of tasks of an iteration, if the engine chooses it.
//!
//! An iteration of A tasks takes A/R + x seconds: workers compute R tasks a second, and for x seconds they do not compute, while vectors and
//! parameters travel and the step is taken. Local steps leave x as it is, however many there are. So workers compute for a share u of the
//! time with A = R·x·u/(1 − u) tasks.

use std::collections::VecDeque;

use serde::{Deserialize, Serialize};

/// The share of the time in which workers are to compute, u. Beyond it, twice as many tasks gain a twentieth of the time at most.
const UTILIZATION: f64 = 0.9;

/// The number of iterations whose medians count: up to two of them may be unlike the others, such as those in which a worker was lost.
const REMEMBERED: usize = 5;

/// The largest factor by which the number changes at once: what is measured over very few tasks may be far from what lasts, and the integers
/// of differences have room for those that are four times as large, as they are for twice as many steps of twice as many tasks.
const MOST_CHANGE: f64 = 2.0;

/// Chooses the number of tasks of each iteration.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct RoundLength {
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

impl RoundLength {
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

    /// Returns the number of tasks of the iteration that begins now, of at least `least` and at most `most`.
    pub(super) fn next(&mut self, now_s: f64, least: u64, most: u64) -> u64 {
        if let Some(LastRound { tasks, started_s, busy_s }) = self.last.take().filter(|last| last.busy_s > 0.0) {
            self.measured.truncate(REMEMBERED - 1);
            let exchange_s = (now_s - started_s - busy_s).max(0.0);
            self.measured.push_front(MeasuredRound { tasks_per_s: tasks as f64 / busy_s, exchange_s });
        }
        let median = |of: fn(&MeasuredRound) -> f64| {
            let mut all: Vec<f64> = self.measured.iter().map(of).collect();
            all.sort_by(f64::total_cmp);
            all.get(all.len() / 2).copied()
        };
        let rates = median(|measured| measured.tasks_per_s).zip(median(|measured| measured.exchange_s));
        if let Some((tasks_per_s, exchange_s)) = rates {
            let last = self.tasks as f64;
            let hiding = tasks_per_s * exchange_s * UTILIZATION / (1.0 - UTILIZATION);
            self.tasks = hiding.clamp(last / MOST_CHANGE, last * MOST_CHANGE).round() as u64;
        }
        self.tasks = self.tasks.clamp(least, most.max(least));
        self.tasks
    }

    /// Returns whether an engine can have saved this.
    pub(super) fn is_valid(&self) -> bool {
        let is_time = |value: f64| (0.0..=crate::batches::MOST).contains(&value);
        let are_times = |of: &MeasuredRound| is_time(of.tasks_per_s) && is_time(of.exchange_s);
        self.tasks >= 1 && self.measured.len() <= REMEMBERED && self.measured.iter().all(are_times)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Runs iterations of workers that compute so many tasks a second, where each iteration takes `exchange_s` longer. Returns the numbers.
    fn run(length: &mut RoundLength, tasks_per_s: f64, exchange_s: &[f64]) -> Vec<u64> {
        let mut now_s = 0.0;
        let each = exchange_s.iter().map(|exchange_s| {
            let tasks = length.next(now_s, 8, 960);
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
        let mut length = RoundLength::new(24);
        assert_eq!(run(&mut length, 100.0, &[0.2; 6]), [24, 48, 96, 180, 180, 180]);
        length.interrupt();
        assert_eq!(
            run(&mut length, 100.0, &[0.002; 9])[5..],
            [23, 12, 8, 8],
            "it takes three of five, and then steps of two"
        );
        assert_eq!(run(&mut RoundLength::new(24), 100.0, &[9.0; 8])[5..], [768, 960, 960], "the largest is 960");
    }

    #[test]
    fn single_iterations_and_pauses_change_nothing() {
        let mut length = RoundLength::new(180);
        let odd = [0.2, 0.2, 0.2, 60.0, 0.2, 0.2, 60.0, 0.2];
        assert_eq!(run(&mut length, 100.0, &odd), [180; 8]);
        length.interrupt();
        assert_eq!(length.next(1e6, 8, 960), 180);
        // A clock may measure zero.
        length.committed(180, 1e6, 0.0);
        assert_eq!((length.next(2e6, 8, 960), length.is_valid()), (180, true));
        assert_eq!(length.next(2e6, 8, 100), 100);
    }
}
