//! Helpers for tests of policies.

use ata_scheduler::{Decision, LinkTimes, Policy, Round, SchedulerRng, WorkerStatistics};
use ata_types::{Iteration, WorkerId};
use rand::SeedableRng;

/// Returns the decision of `policy` in iteration `iteration` for workers with these (K_i, T_i).
pub(crate) fn decide(policy: &mut dyn Policy, iteration: u64, budget: u64, observed: &[(u64, f64)]) -> Decision {
    let statistics: Vec<_> = observed
        .iter()
        .map(|&(observed, total_s)| WorkerStatistics { observed, total_s, ..Default::default() })
        .collect();
    let workers: Vec<_> = (0..observed.len()).map(WorkerId::from_slot).collect();
    let round = Round {
        iteration: Iteration(iteration),
        budget,
        workers: &workers,
        statistics: &statistics,
        fuses: &[],
        links: &LinkTimes::default(),
    };
    policy.decide(&round, &mut SchedulerRng::seed_from_u64(5))
}
