//! FTA: fixed task allocation for known means; with the true means, the oracle OFTA.
//!
//! Source: the ATA paper (arXiv 2502.00775), section 6. In a simulation, `means=current` are the true means at the
//! beginning of each iteration.

use std::sync::Arc;

use ata_scheduler::policy::{Decision, PolicyEntry, PolicyKind, Truth, stateless};
use ata_scheduler::{Rule, ras};

/// Allocates by known means μ: a = RAS(μ). The means may have any unit, because only their ratios matter.
pub(crate) const ENTRY: PolicyEntry = PolicyEntry {
    name: "fta",
    about: "fixed: the best allocation for means given by the user",
    parameters: "means=M1/M2/... (default: the means of the emulated task times), or means=current (only in simulation)",
    kind: PolicyKind::Barrier,
    build: |arguments| {
        let truth: Arc<dyn Truth> = if arguments.accept("means", "current") {
            arguments.truth("fta:means=current")?
        } else {
            Arc::new(arguments.means("fta")?)
        };
        Ok(stateless("fta", move |round, rng| {
            let means: Vec<f64> = round.workers.iter().map(|worker| truth.mean_s(*worker)).collect();
            Decision::barrier(ras(&means, round.budget, rng), means, Rule::Ras)
        }))
    },
};

#[cfg(test)]
mod tests {
    use super::*;
    use crate::build_policy;
    use crate::tests::decide;
    use ata_scheduler::PolicyContext;

    /// ATA paper (arXiv 2502.00775), section 6: a = RAS(μ) for the given means, whatever is observed.
    #[test]
    fn allocation_is_ras_of_the_means() {
        let truth = Some(Arc::new(vec![4.0, 2.0, 1.0]) as Arc<dyn Truth>);
        let context = PolicyContext { truth, ..PolicyContext::default() };
        for (specification, allocation) in [
            ("fta:means=1/2/4", [4, 2, 1]),
            // A worker without a mean counts as the slowest.
            ("fta:means=1/3", [5, 1, 1]),
            ("fta:means=current", [1, 2, 4]),
        ] {
            let mut policy = build_policy(specification, &context).unwrap();
            let observed = [(5, 100.0), (5, 1.0), (0, 0.0)];
            assert_eq!(decide(&mut *policy, 9, 7, &observed).allocation, allocation);
        }
    }
}
