//! ATA-Auto's observations of one worker.

use serde::{Deserialize, Serialize};

use super::pace::Pace;
use super::window::Window;
use crate::batches::BatchStatistics;
use crate::statistics::WorkerStatistics;

/// The weight of the noise of all workers in that of one, in tasks.
const POOLED: f64 = 20.0;

/// The most that a squared coefficient of variation counts for: with heavier tails, no share would be small enough.
const MOST_VARIATION: f64 = 2.0;

/// A worker whose tasks are cancelled so late that there was no more than this chance of it has become slower.
const LEAST_CHANCE: f64 = 1e-4;

/// The test takes times for no less noisy than this: clocks have a resolution.
const LEAST_VARIATION: f64 = 1e-4;

/// The most that one pair of times counts for: clocks may measure zero.
const MOST_SQUARES: f64 = 1e9;

/// Σ ½((x_t − x_{t−1})/m)² over pairs of consecutive times: noise that drift does not inflate.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(super) struct Noise {
    squares: f64,
    pairs: f64,
}

impl Noise {
    pub(super) fn add(&mut self, squares: f64) {
        self.squares += squares.min(MOST_SQUARES);
        self.pairs += 1.0;
    }

    pub(super) fn add_all(&mut self, other: Self, sign: f64) {
        self.squares += sign * other.squares;
        self.pairs += sign * other.pairs;
    }

    /// The squared coefficient of variation, as if one pair of exponential times (1) had been observed first.
    pub(super) fn pooled(self) -> f64 {
        (1.0 + self.squares.max(0.0)) / (1.0 + self.pairs.max(0.0))
    }

    /// That of one worker, given that of all.
    fn of_one(self, pooled: f64) -> f64 {
        (self.squares + POOLED * pooled) / (self.pairs + POOLED)
    }
}

/// A worker's task times, and what else it takes to predict the next ones.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(super) struct WorkerModel {
    window: Window,
    /// Seconds of work that was cancelled since the last change, E.
    pub(super) censored_s: f64,
    /// How much longer than expected the cancelled work took, L.
    late_s: f64,
    last_s: Option<f64>,
    pub(super) noise: Noise,
    /// Tasks ever done.
    done: u64,
    /// The batches of a worker that computes its share as one batch; its times above are then relative to the expected ones.
    batches: BatchStatistics,
}

/// Which changes a time can show.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Test {
    /// None: the times that finish in a race are the short ones.
    None,
    /// That the worker has become faster: a probe finished.
    Last,
    /// Any.
    All,
}

impl WorkerModel {
    /// What an earlier run learned.
    pub(super) fn learned(earlier: &WorkerStatistics) -> Self {
        let &WorkerStatistics { observed, total_s, squares_s2, censored_s, batches, .. } = earlier;
        if observed == 0 {
            return Self::default();
        }
        let count = observed as f64;
        let mean_s = total_s / count;
        let squares = (squares_s2 / (mean_s * mean_s) - count).max(0.0);
        let has_noise = observed > 1 && squares.is_finite();
        let noise = if has_noise { Noise { squares, pairs: count - 1.0 } } else { Noise::default() };
        let is_batched = batches.count > 0.0;
        let window =
            if is_batched { Window::learned(batches.count, batches.count) } else { Window::learned(count, total_s) };
        Self { window, censored_s, late_s: 0.0, last_s: None, noise, done: observed, batches }
    }

    /// Less than a task is expected to take; `None` if no time was observed.
    pub(super) fn least_s(&self) -> Option<f64> {
        let line = self.batches.line();
        let mean_s = self.window.total_s() / self.window.count();
        let least_s = line.map_or(mean_s, |line| line.at_s(1).min(self.batches.total_s / self.batches.tasks));
        (self.window.count() > 0.0).then_some(least_s)
    }

    /// Observations since the last change, K.
    pub(super) fn count(&self) -> f64 {
        self.window.count()
    }

    /// Seconds of work that was cancelled since the last change, E, if no time was observed.
    pub(super) fn only_censored_s(&self) -> Option<f64> {
        (self.window.count() == 0.0).then_some(self.censored_s)
    }

    /// Adds a task time; returns what it adds to the noise.
    pub(super) fn observe(&mut self, busy_s: f64) -> Option<f64> {
        self.done += 1;
        self.push(busy_s)
    }

    /// Adds a batch.
    pub(super) fn observe_batch(&mut self, tasks: u64, busy_s: f64) -> Option<f64> {
        self.done += tasks;
        let line = self.batches.line().filter(|line| line.has_slope && tasks <= self.batches.largest);
        self.batches.observe(tasks, busy_s);
        let Some(line) = line else {
            // There is nothing to compare it with, but it is one more observation.
            self.window.push(1.0);
            return None;
        };
        self.push(busy_s / line.at_s(tasks).max(1e-100))
    }

    fn push(&mut self, time: f64) -> Option<f64> {
        let squares = self.last_s.map(|last| {
            let count = self.window.count();
            let mean = if count >= 2.0 { self.window.total_s() / count } else { 0.5 * (time + last) };
            0.5 * ((time - last) / mean.max(1e-300)).powi(2)
        });
        if let Some(squares) = squares {
            self.noise.add(squares);
        }
        self.last_s = Some(time);
        self.window.push(time);
        squares
    }

    /// Tests whether the speed has changed, and drops what was observed before; returns by which factor. `pooled` is the
    /// squared coefficient of variation of all workers.
    pub(super) fn review(&mut self, pooled: f64, test: Test) -> Option<f64> {
        let variation = self.noise.of_one(pooled).max(pooled).max(LEAST_VARIATION);
        let factor = match test {
            Test::All => self.window.drop_before_change(variation),
            Test::Last => self.window.drop_before_last(variation),
            Test::None => None,
        }?;
        (self.censored_s, self.late_s) = (0.0, 0.0);
        if self.batches.count > 0.0 {
            self.batches = self.batches.changed(factor, self.window.count() / self.batches.count);
        }
        Some(factor)
    }

    /// Its tasks were cancelled after `elapsed_s`; returns whether that is longer than chance explains. Then it has become
    /// slower, and what is model of it is that it takes at least as long.
    pub(super) fn censored(&mut self, tasks: u64, elapsed_s: f64, pooled: f64, test: Test) -> bool {
        let variation = self.noise.of_one(pooled).max(pooled);
        let is_batched = self.batches.count > 0.0;
        let pace = self.pace(pooled, 0.0, is_batched);
        let is_slower = |pace: &Pace| test == Test::All && pace.chance(tasks, elapsed_s, variation) < LEAST_CHANCE;
        let Some(pace) = pace.filter(is_slower) else {
            let late_s = pace.map_or(0.0, |pace| (elapsed_s - pace.time_s(tasks)).max(0.0));
            self.censored_s += elapsed_s - late_s;
            self.late_s += late_s;
            return false;
        };
        if is_batched {
            self.batches = self.batches.changed(elapsed_s / pace.time_s(tasks), 1.0 / self.batches.count);
        }
        self.window = Window::learned(1.0, if is_batched { 1.0 } else { elapsed_s });
        (self.censored_s, self.late_s) = (0.0, 0.0);
        true
    }

    /// What its tasks are expected to take; `None` if no time was observed. `overhead_s` is the time per assignment.
    pub(super) fn pace(&self, pooled: f64, overhead_s: f64, fuses: bool) -> Option<Pace> {
        let count = self.window.count();
        if count <= 0.0 {
            return None;
        }
        let variation = self.noise.of_one(pooled).min(MOST_VARIATION);
        let doubt = variation / count;
        let lost_s = (pooled.min(MOST_VARIATION) * self.censored_s + self.late_s) / count;
        if fuses && let Some(line) = self.batches.line() {
            let (fixed_s, mean_s) = (line.fixed_s + lost_s, line.per_task_s.max(1e-100));
            return Some(Pace {
                overhead_s,
                fixed_s,
                mean_s,
                variation,
                count,
                doubt,
                most: Some(self.done),
                window_s: 0.0,
            });
        }
        // Before it computed a batch, or after it ceased to.
        let mean_s = if self.batches.count > 0.0 {
            self.batches.total_s / self.batches.tasks
        } else {
            self.window.total_s() / count
        };
        let mean_s = (mean_s + lost_s).max(1e-100);
        // Rounding errors in differences of clock readings are not overhead.
        let overhead_s = if overhead_s > 1e-6 * mean_s { overhead_s } else { 0.0 };
        Some(Pace { overhead_s, fixed_s: 0.0, mean_s, variation, count, doubt, most: None, window_s: 0.0 })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn model(times: &[f64]) -> WorkerModel {
        let mut model = WorkerModel::default();
        for time in times {
            model.observe(*time);
        }
        model
    }

    /// ½((x_t − x_{t−1})/m)², so that a slow drift is no noise.
    #[test]
    fn noise_is_of_consecutive_times() {
        let drifting: Vec<f64> = (0..1000).map(|task| 1.0 + f64::from(task) / 100.0).collect();
        assert!(model(&drifting).noise.of_one(0.0) < 1e-4);
        let alternating: Vec<f64> = (0..1000).map(|task| if task % 2 == 0 { 0.5 } else { 1.5 }).collect();
        // The squared coefficient of variation is 1/4, and half the squared difference twice that: it is not random.
        assert!((model(&alternating).noise.of_one(0.0) - 0.5).abs() < 0.02);
        assert_eq!(Noise::default().pooled(), 1.0);
        assert_eq!(Noise::default().of_one(0.3), 0.3);
    }

    /// m = (T + c·E + L)/K: for exponential times (c = 1) the maximum likelihood estimate under censoring.
    #[test]
    fn cancelled_work_counts_as_far_as_times_vary() {
        for (pooled, mean_s) in [(1.0, 6.0), (0.25, 5.0), (9.0, 22.0 / 3.0)] {
            let mut model = model(&[4.0, 4.0, 4.0]);
            assert!(!model.censored(1, 6.0, pooled, Test::None));
            let pace = model.pace(pooled, 0.0, false).unwrap();
            assert!((pace.mean_s - mean_s).abs() < 1e-12, "{pooled}: {}", pace.mean_s);
        }
    }

    /// A task that is cancelled later than chance explains shows that its worker has become slower.
    #[test]
    fn a_task_cancelled_far_too_late_is_a_change() {
        let steady = model(&[1.0; 50]);
        for (elapsed_s, test, slower) in [(1.2, Test::All, false), (40.0, Test::All, true), (40.0, Test::Last, false)] {
            let mut model = steady.clone();
            assert_eq!(model.censored(1, elapsed_s, 0.05, test), slower, "{elapsed_s}");
            let mean_s = model.pace(0.05, 0.0, false).unwrap().mean_s;
            assert_eq!(mean_s == elapsed_s, slower, "{mean_s}");
        }
    }

    #[test]
    fn what_was_learned_before_counts_like_own_observations() {
        let earlier = WorkerStatistics { observed: 8, total_s: 16.0, squares_s2: 48.0, ..WorkerStatistics::default() };
        let pace = WorkerModel::learned(&earlier).pace(1.0, 0.0, false).unwrap();
        assert_eq!((pace.mean_s, pace.count), (2.0, 8.0));
        // Σ(x/m − 1)² = 48/4 − 8 = 4 in 7 pairs.
        assert!((pace.variation - (4.0 + 20.0) / (7.0 + 20.0)).abs() < 1e-12);
        assert_eq!(WorkerModel::learned(&WorkerStatistics::default()), WorkerModel::default());
    }

    /// o + a·s by least squares; a batch that takes ten times as long scales both.
    #[test]
    fn batches_are_a_line_that_may_change() {
        let mut model = WorkerModel::default();
        for round in 0..40 {
            let tasks = 10 + 20 * (round % 2);
            model.observe_batch(tasks, 20.0 + 0.5 * tasks as f64);
        }
        let pace = model.pace(0.01, 1.0, true).unwrap();
        assert!((pace.time_s(100) - 71.0).abs() < 1e-6 && pace.most == Some(800));
        model.observe_batch(30, 350.0);
        model.observe_batch(30, 350.0);
        let factor = model.review(0.01, Test::All).unwrap();
        // The blocks of the window hold a few of the times before.
        assert!((5.0..=10.0).contains(&factor), "{factor}");
        assert!(model.pace(0.01, 0.0, true).unwrap().time_s(30) > 150.0);
        let alone = model.pace(0.01, 0.0, false).unwrap();
        assert!(alone.fixed_s == 0.0 && alone.mean_s > 0.0, "one by one, each counts an equal share");
    }
}
