//! Policies: what chooses the allocation of each iteration. One file each, named as in its paper.

mod arguments;
mod ata;
mod ata_empirical;
mod fta;
mod gta;
mod registry;
mod uta;

pub use arguments::{Arguments, PolicyError};
pub use ata::Ata;
pub use ata_empirical::AtaEmpirical;
pub use fta::Fta;
pub use gta::Gta;
pub use registry::{POLICIES, PolicyContext, PolicyEntry, build_policy};
pub use uta::Uta;

use rand::rngs::ChaCha8Rng;

use crate::allocation::Rule;
use crate::ids::WorkerId;
use crate::statistics::WorkerStatistics;

/// The one source of randomness in the scheduler: seeded, and the same on every platform.
pub type SchedulerRng = ChaCha8Rng;

/// Chooses how many tasks each worker computes in an iteration.
pub trait Policy: Send {
    /// The policy's name, as `--policy` takes it.
    fn name(&self) -> &'static str;

    /// The allocation for one iteration.
    fn decide(&mut self, round: &Round<'_>, rng: &mut SchedulerRng) -> Decision;
}

/// What a policy may look at when it decides.
#[derive(Clone, Copy, Debug)]
pub struct Round<'a> {
    /// k, from 1.
    pub iteration: u64,
    /// B, tasks per iteration.
    pub budget: u64,
    /// The workers present, at least one, in ascending order.
    pub workers: &'a [WorkerId],
    /// Statistics of every worker ever seen, by [`WorkerId::slot`].
    pub statistics: &'a [WorkerStatistics],
}

impl Round<'_> {
    /// Statistics of the i-th worker present.
    pub fn of(&self, i: usize) -> &WorkerStatistics {
        &self.statistics[self.workers[i].slot()]
    }

    /// A score for each worker present: `bound(statistics)` where there are observations, 0 where there are none.
    pub fn scores(&self, bound: impl Fn(&WorkerStatistics) -> f64) -> Vec<f64> {
        (0..self.workers.len())
            .map(|i| self.of(i))
            .map(|statistics| if statistics.observed == 0 { 0.0 } else { bound(statistics) })
            .collect()
    }
}

/// An allocation, how its results are collected, and why.
#[derive(Clone, Debug, PartialEq)]
pub struct Decision {
    /// Tasks for each of [`Round::workers`].
    pub allocation: Vec<u64>,
    /// Which results make the step.
    pub collect: Collect,
    /// Seconds per task the allocation was made for, parallel to it; empty if the rule looks at no speeds.
    pub scores: Vec<f64>,
    /// The rule that made the allocation.
    pub rule: Rule,
}

/// Which results make the step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Collect {
    /// Barrier: every allocated task is waited for; a lost one is given to another worker.
    All,
    /// Racing: the first `take` results; the rest is cancelled, and counted as wasted.
    First {
        /// How many results make the step.
        take: u64,
        /// Whether a worker whose result came in computes another task at once.
        refill: bool,
    },
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use rand::SeedableRng;

    /// What `policy` decides in iteration `iteration` for workers of these (K_i, T_i).
    pub(crate) fn decide(policy: &mut dyn Policy, iteration: u64, budget: u64, observed: &[(u64, f64)]) -> Decision {
        let statistics: Vec<_> =
            observed.iter().map(|&(observed, total_s)| WorkerStatistics { observed, total_s }).collect();
        let workers: Vec<_> = (0..observed.len()).map(WorkerId::from_slot).collect();
        let round = Round { iteration, budget, workers: &workers, statistics: &statistics };
        policy.decide(&round, &mut SchedulerRng::seed_from_u64(5))
    }
}
