//! Sources of virtual task times: laws, and recorded runs.

use ata_types::WorkerId;
use rand::rngs::{ChaCha8Rng, Xoshiro256PlusPlus};
use rand::{RngExt, SeedableRng};

use crate::law::{LawError, TimeLaws, WorkerLaw};

/// The time each task takes.
pub trait TaskTimes {
    /// Draws the time of the next task that `worker` begins.
    fn draw(&mut self, worker: WorkerId) -> f64;

    /// Draws the time of the next `tasks` tasks of `worker` as one batch.
    fn draw_batch(&mut self, worker: WorkerId, tasks: u64) -> f64 {
        (0..tasks).map(|_| self.draw(worker)).sum()
    }

    /// Returns whether `worker` computes a lease as one batch.
    fn fuses(&self, _worker: WorkerId) -> bool {
        false
    }

    /// Prepares for iteration `iteration`; the draws until the next call belong to it.
    fn begins(&mut self, _iteration: u64) {}

    /// Makes `worker` take `slowness` times as long as the law of worker `law` says, from now on.
    fn changed(&mut self, _worker: WorkerId, _law: WorkerId, _slowness: f64) {}
}

/// Times drawn from laws, with a stream for each worker: how long a worker's k-th task takes does not depend on the
/// other workers.
#[derive(Debug)]
pub struct LawTimes {
    pub(crate) workers: Vec<TimeSource>,
    /// Whether any law's times depend on the iteration.
    by_iteration: bool,
}

/// One worker's law and stream, in one cache line: with a hundred thousand workers, each draw is a cache miss.
#[derive(Clone, Debug)]
#[repr(align(64))]
pub(crate) struct TimeSource {
    pub(crate) law: WorkerLaw,
    rng: Xoshiro256PlusPlus,
}

impl LawTimes {
    /// Creates the laws of `workers` workers. `scale(x)` counts as x units.
    pub fn new(laws: &TimeLaws, workers: u32, seed: u64) -> Result<Self, LawError> {
        let workers = (1..=workers)
            .map(|worker| Ok(TimeSource { law: laws.of_worker(worker, workers)?, rng: worker_rng(seed, worker) }))
            .collect::<Result<Vec<_>, LawError>>()?;
        let by_iteration = workers.iter().any(|source| source.law.is_by_iteration());
        Ok(Self { workers, by_iteration })
    }

    /// Replaces traces with blocks by others that could have been recorded as well; see `trace(FILE, block=L)`.
    pub fn resample(&mut self, seed: u64) {
        for source in &mut self.workers {
            source.law.resample(seed);
        }
    }
}

impl TimeSource {
    pub(crate) fn draw(&mut self) -> f64 {
        self.law.sample(1.0, &mut self.rng)
    }

    pub(crate) fn draw_batch(&mut self, tasks: u64) -> f64 {
        self.law.sample_batch(tasks, tasks as f64, &mut self.rng)
    }
}

impl TaskTimes for LawTimes {
    fn draw(&mut self, worker: WorkerId) -> f64 {
        self.workers[worker.slot()].draw()
    }

    fn draw_batch(&mut self, worker: WorkerId, tasks: u64) -> f64 {
        self.workers[worker.slot()].draw_batch(tasks)
    }

    fn fuses(&self, worker: WorkerId) -> bool {
        self.workers[worker.slot()].law.fuses()
    }

    fn begins(&mut self, iteration: u64) {
        if self.by_iteration {
            for source in &mut self.workers {
                source.law.begins(iteration);
            }
        }
    }
}

/// Returns the random stream of one worker under a seed: ChaCha's streams are independent, and each seeds a small generator,
/// because there may be a million workers.
pub fn worker_rng(seed: u64, worker: u32) -> Xoshiro256PlusPlus {
    let mut rng = ChaCha8Rng::seed_from_u64(seed);
    rng.set_stream(u64::from(worker));
    Xoshiro256PlusPlus::from_rng(&mut rng)
}

/// Times that a real run recorded: each worker's tasks take its recorded times, in order; if a policy asks for more,
/// they are drawn from the worker's own times with replacement (the bootstrap).
#[derive(Clone, Debug)]
pub struct RecordedTimes {
    workers: Vec<Playback>,
    /// The number of tasks so far whose time was drawn with replacement.
    pub bootstrapped: u64,
}

#[derive(Clone, Debug)]
struct Playback {
    times: Vec<f64>,
    next: usize,
    rng: Xoshiro256PlusPlus,
}

impl RecordedTimes {
    /// Creates the source from recorded seconds per task, by [`WorkerId::slot`]; `None` if a worker has none.
    pub fn new(workers: Vec<Vec<f64>>, seed: u64) -> Option<Self> {
        let playback = |(worker, times): (u32, Vec<f64>)| {
            (!times.is_empty()).then(|| Playback { times, next: 0, rng: worker_rng(seed, worker) })
        };
        Some(Self { workers: (1..).zip(workers).map(playback).collect::<Option<_>>()?, bootstrapped: 0 })
    }
}

impl TaskTimes for RecordedTimes {
    fn draw(&mut self, worker: WorkerId) -> f64 {
        let Playback { times, next, rng } = &mut self.workers[worker.slot()];
        if let Some(time) = times.get(*next) {
            *next += 1;
            return *time;
        }
        self.bootstrapped += 1;
        times[rng.random_range(0..times.len())]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn recorded_times_come_in_order_and_then_again() {
        let (first, second) = (WorkerId::from_slot(0), WorkerId::from_slot(1));
        let mut times = RecordedTimes::new(vec![vec![1.0, 2.0, 3.0], vec![7.0]], 1).unwrap();
        assert_eq!([(); 3].map(|()| times.draw(first)), [1.0, 2.0, 3.0]);
        assert_eq!(times.bootstrapped, 0);
        assert!((0..50).all(|_| [1.0, 2.0, 3.0].contains(&times.draw(first))));
        assert_eq!(([(); 3].map(|()| times.draw(second)), times.bootstrapped), ([7.0; 3], 52));
        assert!(RecordedTimes::new(vec![vec![1.0], vec![]], 1).is_none());
    }
}
