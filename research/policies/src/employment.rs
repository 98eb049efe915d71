//! The number of workers that the bandit paper's policies employ in each iteration.
//!
//! Source: Egger, Bitar, Wachter-Zeh, Gündüz, "Cost-Efficient Distributed Learning via Combinatorial Multi-Armed
//! Bandits", Entropy 2025 (arXiv 2202.08302).

use ata_scheduler::Rule;
use ata_scheduler::policy::{Arguments, Decision, PolicyError, Round, SchedulerRng};
use rand::seq::SliceRandom;

/// The schedule of r, the number of employed workers. Either r grows at given iterations, or r is fixed and the step size shrinks at them.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Schedule {
    /// The value of r in each round.
    workers: Vec<u64>,
    /// The first iteration of every round except the first, ascending.
    changes: Vec<u64>,
    /// The factor on the learning rate at each change.
    lr_decay: f64,
}

impl Schedule {
    pub(crate) const PARAMETERS: &'static str = "r=R1/R2/... (default: 1, growing by 1), at=K1/K2/... (iterations of \
         the changes; default: every 100), lr_decay=X (fixed r: the learning rate times X at each change)";

    pub(crate) fn from_arguments(arguments: &mut Arguments<'_>) -> Result<Self, PolicyError> {
        let workers = arguments.count_list("r")?;
        let changes = arguments.count_list("at")?;
        let lr_decay = arguments.positive("lr_decay")?;
        let conflict = |reason: String| Err(PolicyError::conflict(reason));
        if changes.as_ref().is_some_and(|changes| !changes.is_sorted_by(|a, b| a < b)) {
            return conflict("'at' must be ascending iterations".into());
        }
        let largest = workers.iter().flatten().max().copied();
        arguments.at_most_workers("r", largest)?;
        match (workers, changes, lr_decay) {
            (Some(workers), _, Some(_)) if workers.len() > 1 => {
                conflict("lr_decay is for a fixed r: give one r, or no lr_decay".into())
            }
            (workers, changes, Some(lr_decay)) => {
                let changes = changes.unwrap_or_else(|| Self::every_hundred(50));
                let workers = vec![workers.map_or(1, |workers| workers[0]); changes.len() + 1];
                Ok(Self { workers, changes, lr_decay })
            }
            (workers, changes, None) => {
                let rounds = workers.as_ref().map_or(arguments.context().workers.unwrap_or(1) as usize, Vec::len);
                let changes = changes.unwrap_or_else(|| Self::every_hundred(rounds - 1));
                let workers = workers.unwrap_or_else(|| (1..=changes.len() as u64 + 1).collect());
                if workers.len() != changes.len() + 1 {
                    let (r, at) = (workers.len(), changes.len());
                    return conflict(format!("{r} values of r need {} changes in 'at', found {at}", r - 1));
                }
                Ok(Self { workers, changes, lr_decay: 1.0 })
            }
        }
    }

    fn every_hundred(changes: usize) -> Vec<u64> {
        (1..=changes as u64).map(|change| 100 * change).collect()
    }

    /// Returns the round of an iteration, from 0.
    pub(crate) fn round(&self, iteration: u64) -> usize {
        self.changes.partition_point(|&change| change <= iteration)
    }

    /// Returns the decision to give one task to each of the r workers with the smallest scores and to wait for all.
    /// Ties are broken at random.
    pub(crate) fn employ(&self, round: &Round<'_>, scores: Vec<f64>, rng: &mut SchedulerRng) -> Decision {
        let at = self.round(round.iteration.number());
        let workers = self.workers[at].min(round.workers.len() as u64);
        let mut order: Vec<usize> = (0..scores.len()).collect();
        order.shuffle(rng);
        order.sort_by(|&a, &b| scores[a].total_cmp(&scores[b]));
        let mut allocation = vec![0; scores.len()];
        for &worker in &order[..workers as usize] {
            allocation[worker] = 1;
        }
        Decision {
            lr_factor: self.lr_decay.powi(i32::try_from(at).unwrap_or(i32::MAX)),
            ..Decision::barrier(allocation, scores, Rule::Fastest { workers })
        }
    }
}

#[cfg(test)]
mod tests {
    use crate::build_policy;
    use crate::tests::decide;
    use ata_scheduler::policy::PolicyContext;

    fn employed(specification: &str, iteration: u64) -> (u64, f64) {
        let context = PolicyContext { workers: Some(5), ..PolicyContext::default() };
        let mut policy = build_policy(specification, &context).unwrap();
        let decision = decide(&mut *policy, iteration, 1, &[(9, 9.0); 5]);
        assert!(decision.allocation.iter().all(|&tasks| tasks <= 1));
        (decision.allocation.iter().sum(), decision.lr_factor)
    }

    /// By default, r grows by one to all workers. In the variant with `lr_decay`, r is fixed and the step size decays.
    #[test]
    fn r_grows_or_the_step_shrinks() {
        for (iteration, workers) in [(1, 1), (9, 1), (10, 3), (19, 3), (20, 5), (1000, 5)] {
            assert_eq!(employed("cmab-kl:r=1/3/5,at=10/20", iteration), (workers, 1.0));
        }
        for (iteration, workers) in [(1, 1), (99, 1), (100, 2), (399, 4), (400, 5), (5000, 5)] {
            assert_eq!(employed("cmab-lcb", iteration), (workers, 1.0));
        }
        for (iteration, lr_factor) in [(9, 1.0), (10, 0.5), (25, 0.25)] {
            assert_eq!(employed("cmab-kl:r=2,lr_decay=0.5,at=10/20", iteration), (2, lr_factor));
        }
    }
}
