//! UTA: uniform task allocation, a baseline that ignores speeds.
//!
//! Source: the ATA paper (arXiv 2502.00775), section 6.

use super::{Decision, Policy, PolicyEntry, PolicyKind, Round, SchedulerRng};
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
struct Uta;

impl Policy for Uta {
    fn name(&self) -> &'static str {
        "uta"
    }

    fn decide(&mut self, round: &Round<'_>, rng: &mut SchedulerRng) -> Decision {
        Decision::barrier(uniform(round.workers.len(), round.budget, rng), Vec::new(), Rule::Uniform)
    }
}
