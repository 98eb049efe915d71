//! The clairvoyant policy knows the times of each worker's next tasks. It shows how early an iteration that waits for a fixed allocation
//! can end.
//!
//! Its allocation minimizes the longest of these times, by [`ras_by_cost`]. It does not plan beyond the iteration,
//! works only in simulations, and is not from a paper.

use std::sync::Arc;

use ata_scheduler::policy::{Arguments, Decision, Policy, PolicyError, Round, SchedulerRng, Truth};
use ata_scheduler::policy::{PolicyEntry, PolicyKind};
use ata_scheduler::{Rule, ras_by_cost};

pub(crate) const ENTRY: PolicyEntry = PolicyEntry {
    name: "clairvoyant",
    about: "only in simulation: the best allocation for the task times to come",
    parameters: "none",
    kind: PolicyKind::Barrier,
    build: |arguments| Ok(Box::new(Clairvoyant::from_arguments(arguments)?)),
};

/// A policy that allocates by the actual times of the next tasks.
#[derive(Clone, Debug)]
pub struct Clairvoyant {
    truth: Arc<dyn Truth>,
}

impl Clairvoyant {
    /// Creates a policy that allocates by the times in `truth`.
    pub fn new(truth: Arc<dyn Truth>) -> Self {
        Self { truth }
    }

    pub(crate) fn from_arguments(arguments: &mut Arguments<'_>) -> Result<Self, PolicyError> {
        Ok(Self::new(arguments.truth("clairvoyant")?))
    }
}

impl Policy for Clairvoyant {
    fn name(&self) -> &'static str {
        "clairvoyant"
    }

    fn decide(&mut self, round: &Round<'_>, rng: &mut SchedulerRng) -> Decision {
        let workers = round.workers;
        let cost = |i: usize, tasks| self.truth.coming_s(workers[i], tasks);
        let allocation = ras_by_cost(workers.len(), round.budget, cost, rng);
        let means = workers.iter().map(|&worker| self.truth.mean_s(worker)).collect();
        Decision::barrier(allocation, means, Rule::Ras)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::decide;
    use ata_types::WorkerId;
    use proptest::prelude::*;

    /// The task times of each worker, in order.
    #[derive(Debug)]
    struct Times(Vec<Vec<f64>>);

    impl Truth for Times {
        fn mean_s(&self, _worker: WorkerId) -> f64 {
            1.0
        }

        fn coming_s(&self, worker: WorkerId, tasks: u64) -> f64 {
            self.0[worker.slot()][..tasks as usize].iter().sum()
        }
    }

    /// Returns all allocations of `budget` tasks to `workers` workers.
    fn allocations(workers: usize, budget: u64) -> Vec<Vec<u64>> {
        if workers == 1 {
            return vec![vec![budget]];
        }
        let with = |first: u64| {
            allocations(workers - 1, budget - first).into_iter().map(move |rest| [&[first], &rest[..]].concat())
        };
        (0..=budget).flat_map(with).collect()
    }

    proptest! {
        /// No other allocation of the same tasks ends sooner.
        #[test]
        fn nothing_ends_sooner(
            times in prop::collection::vec(prop::collection::vec(0.1f64..9.0, 8), 1..5),
            budget in 1u64..7,
        ) {
            let truth = Times(times);
            let cost = |i: usize, tasks| truth.coming_s(WorkerId::from_slot(i), tasks);
            let longest = |allocation: &[u64]| (0..).zip(allocation).map(|(i, &a)| cost(i, a)).fold(0.0, f64::max);
            let all = allocations(truth.0.len(), budget);
            let least = all.iter().map(|allocation| longest(allocation)).fold(f64::INFINITY, f64::min);
            let observed = vec![(0, 0.0); truth.0.len()];
            let mut policy = Clairvoyant::new(Arc::new(Times(truth.0.clone())));
            let allocation = decide(&mut policy, 1, budget, &observed).allocation;
            prop_assert_eq!(allocation.iter().sum::<u64>(), budget);
            prop_assert_eq!(longest(&allocation), least);
        }
    }
}
