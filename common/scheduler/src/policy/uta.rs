//! UTA: uniform task allocation, a baseline that ignores speeds.
//!
//! Source: the ATA paper (arXiv 2502.00775), section 6.

use super::entry::{PolicyEntry, PolicyKind};
use super::{Decision, Policy, Round, SchedulerRng};
use crate::allocation::{Rule, uniform};

/// The policy's entry in the registry.
pub const ENTRY: PolicyEntry = PolicyEntry {
    name: "uta",
    about: "uniform: equal shares, all are waited for",
    parameters: "none",
    kind: PolicyKind::Barrier,
    build: |_| Ok(Box::new(Uta)),
};

/// Allocates equal shares of ⌊B/n⌋ tasks; the remainder goes to a random subset that is drawn anew in each iteration.
#[derive(Clone, Copy, Debug, Default)]
pub struct Uta;

impl Policy for Uta {
    fn name(&self) -> &'static str {
        "uta"
    }

    fn decide(&mut self, round: &Round<'_>, rng: &mut SchedulerRng) -> Decision {
        Decision::barrier(uniform(round.workers.len(), round.budget, rng), Vec::new(), Rule::Uniform)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::policy::tests::decide;

    /// ATA paper (arXiv 2502.00775), section 6: observations make no difference.
    #[test]
    fn speeds_are_ignored() {
        let decision = decide(&mut Uta, 50, 6, &[(100, 1.0), (100, 1000.0), (0, 0.0)]);
        assert_eq!(decision.allocation, [2, 2, 2]);
    }
}
