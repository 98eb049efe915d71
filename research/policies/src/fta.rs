//! FTA: fixed task allocation for known means; with the true means, the oracle OFTA.
//!
//! Source: the ATA paper (arXiv 2502.00775), section 6. In a simulation, `means=current` are the true means at the
//! beginning of each iteration.

use std::sync::Arc;

use ata_scheduler::policy::{Decision, Policy, PolicyEntry, PolicyKind, Round, SchedulerRng, Truth};
use ata_scheduler::{Rule, ras};

pub(crate) const ENTRY: PolicyEntry = PolicyEntry {
    name: "fta",
    about: "fixed: the best allocation for means given by the user",
    parameters: "means=M1/M2/... (default: the means of the emulated task times), or means=current (only in simulation)",
    kind: PolicyKind::Barrier,
    build: |arguments| {
        if arguments.accept("means", "current") {
            return Ok(Box::new(Fta::Current(arguments.truth("fta:means=current")?)));
        }
        Ok(Box::new(Fta::Given(arguments.means("fta")?)))
    },
};

/// Allocates by known means μ: a = RAS(μ). The means may have any unit, because only their ratios matter.
enum Fta {
    /// Fixed means by slot. A worker without a mean counts as the slowest.
    Given(Vec<f64>),
    /// The true means of each iteration.
    Current(Arc<dyn Truth>),
}

impl Policy for Fta {
    fn name(&self) -> &'static str {
        "fta"
    }

    fn decide(&mut self, round: &Round<'_>, rng: &mut SchedulerRng) -> Decision {
        let truth: &dyn Truth = match &*self {
            Self::Given(means) => means,
            Self::Current(truth) => &**truth,
        };
        let means: Vec<f64> = round.workers.iter().map(|worker| truth.mean_s(*worker)).collect();
        Decision::barrier(ras(&means, round.budget, rng), means, Rule::Ras)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tests::decide;

    /// ATA paper (arXiv 2502.00775), section 6: a = RAS(μ) for the given means, whatever is observed.
    #[test]
    fn allocation_is_ras_of_the_means() {
        let observed = [(5, 100.0), (5, 1.0), (0, 0.0)];
        for (mut policy, allocation) in [
            (Fta::Given(vec![1.0, 2.0, 4.0]), [4, 2, 1]),
            // A worker without a mean counts as the slowest.
            (Fta::Given(vec![1.0, 3.0]), [5, 1, 1]),
            (Fta::Current(Arc::new(vec![4.0, 2.0, 1.0])), [1, 2, 4]),
        ] {
            assert_eq!(decide(&mut policy, 9, 7, &observed).allocation, allocation);
        }
    }
}
