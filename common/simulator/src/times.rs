//! Where virtual task times come from.

use ata_scheduler::WorkerId;
use rand::rngs::ChaCha8Rng;
use rand::{RngExt, SeedableRng};

use crate::law::{LawError, TimeLaws, WorkerLaw};

/// The time each task takes.
pub trait TaskTimes {
    /// The time of the next task that `worker` begins.
    fn draw(&mut self, worker: WorkerId) -> f64;
}

/// Times drawn from laws, each worker from its own stream: what a worker's k-th task takes does not depend on the others.
#[derive(Debug)]
pub struct LawTimes {
    workers: Vec<(WorkerLaw, ChaCha8Rng)>,
}

impl LawTimes {
    /// The laws of `workers` workers. `scale(x)` counts as x units.
    pub fn new(laws: &TimeLaws, workers: u32, seed: u64) -> Result<Self, LawError> {
        let workers = (1..=workers)
            .map(|worker| Ok((laws.of_worker(worker, workers)?, worker_rng(seed, worker))))
            .collect::<Result<_, LawError>>()?;
        Ok(Self { workers })
    }
}

impl TaskTimes for LawTimes {
    fn draw(&mut self, worker: WorkerId) -> f64 {
        let (law, rng) = &mut self.workers[worker.slot()];
        law.sample(1.0, rng)
    }
}

/// The random stream of one worker under a seed.
pub fn worker_rng(seed: u64, worker: u32) -> ChaCha8Rng {
    let mut rng = ChaCha8Rng::seed_from_u64(seed);
    rng.set_stream(u64::from(worker));
    rng
}

/// Times that a real run recorded: each worker draws from its own, with replacement (the bootstrap).
#[derive(Debug)]
pub struct RecordedTimes {
    workers: Vec<Vec<f64>>,
    rng: ChaCha8Rng,
}

impl RecordedTimes {
    /// Recorded seconds per task, by [`WorkerId::slot`]; `None` if a worker has none.
    pub fn new(workers: Vec<Vec<f64>>, seed: u64) -> Option<Self> {
        workers.iter().all(|times| !times.is_empty()).then(|| Self { workers, rng: ChaCha8Rng::seed_from_u64(seed) })
    }
}

impl TaskTimes for RecordedTimes {
    fn draw(&mut self, worker: WorkerId) -> f64 {
        let times = &self.workers[worker.slot()];
        times[self.rng.random_range(0..times.len())]
    }
}
