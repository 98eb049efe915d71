//! FTA: fixed task allocation for known means; with the true means, the oracle OFTA.
//!
//! Source: the ATA paper (arXiv 2502.00775), section 6. In a simulation, `means=current` are the true means at the
//! beginning of each iteration.

use std::sync::Arc;

use ata_scheduler::policy::{Arguments, Decision, Policy, PolicyError, Round, SchedulerRng, Truth};
use ata_scheduler::policy::{PolicyEntry, PolicyKind};
use ata_scheduler::{Rule, ras};
use ata_types::WorkerId;

pub(crate) const ENTRY: PolicyEntry = PolicyEntry {
    name: "fta",
    about: "fixed: the best allocation for means given by the user",
    parameters: "means=M1/M2/... (default: the means of the emulated task times), or means=current (only in simulation)",
    kind: PolicyKind::Barrier,
    build: |arguments| Ok(Box::new(Fta::from_arguments(arguments)?)),
};

/// Allocates by known means μ: a = RAS(μ). The means may have any unit, because only their ratios matter.
#[derive(Clone, Debug)]
pub struct Fta {
    means: Means,
}

#[derive(Clone, Debug)]
enum Means {
    Given {
        by_slot: Vec<f64>,
        /// The largest given mean, which is assumed for workers without one.
        largest: f64,
    },
    Current(Arc<dyn Truth>),
}

impl Fta {
    /// Creates a policy for fixed `means`, by [`WorkerId::slot`]. A worker without a mean counts as the slowest.
    ///
    /// # Panics
    /// Panics if there is no mean, or one is not positive and finite.
    pub fn new(means: Vec<f64>) -> Self {
        assert!(!means.is_empty() && means.iter().all(|mean| mean.is_finite() && *mean > 0.0));
        let largest = means.iter().copied().fold(0.0, f64::max);
        Self { means: Means::Given { by_slot: means, largest } }
    }

    /// Creates a policy that uses the true means of each iteration.
    pub fn current(truth: Arc<dyn Truth>) -> Self {
        Self { means: Means::Current(truth) }
    }

    /// Reads `means`; the default is the means in the context.
    pub(crate) fn from_arguments(arguments: &mut Arguments<'_>) -> Result<Self, PolicyError> {
        if arguments.accept("means", "current") {
            return Ok(Self::current(arguments.truth("fta:means=current")?));
        }
        Ok(Self::new(arguments.means("fta")?))
    }
}

impl Policy for Fta {
    fn name(&self) -> &'static str {
        "fta"
    }

    fn decide(&mut self, round: &Round<'_>, rng: &mut SchedulerRng) -> Decision {
        let mean = |worker: &WorkerId| match &self.means {
            Means::Given { by_slot, largest } => *by_slot.get(worker.slot()).unwrap_or(largest),
            Means::Current(truth) => truth.mean_s(*worker),
        };
        let means: Vec<f64> = round.workers.iter().map(mean).collect();
        Decision::barrier(ras(&means, round.budget, rng), means, Rule::Ras)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::decide;

    /// ATA paper (arXiv 2502.00775), section 6: a = RAS(μ) for the given means, whatever is observed.
    #[test]
    fn allocation_is_ras_of_the_given_means() {
        let mut policy = Fta::new(vec![1.0, 2.0, 4.0]);
        let decision = decide(&mut policy, 9, 7, &[(5, 100.0), (5, 1.0), (0, 0.0)]);
        assert_eq!(decision.allocation, [4, 2, 1]);
    }

    #[test]
    fn the_true_means_are_those_of_the_moment() {
        let allocation = |truth: Vec<f64>| decide(&mut Fta::current(Arc::new(truth)), 9, 7, &[(5, 9.0); 3]).allocation;
        assert_eq!(allocation(vec![1.0, 2.0, 4.0]), [4, 2, 1]);
        assert_eq!(allocation(vec![4.0, 2.0, 1.0]), [1, 2, 4]);
    }

    #[test]
    fn a_worker_without_a_mean_counts_as_the_slowest() {
        let decision = decide(&mut Fta::new(vec![1.0, 3.0]), 1, 5, &[(0, 0.0); 3]);
        assert_eq!(decision.allocation, [3, 1, 1]);
    }
}
