//! GTA: greedy task allocation, which is the same as Rennala SGD.
//!
//! Source: Tyurin, Richtárik, "Optimal Time Complexities of Parallel Stochastic Optimization Methods Under a Fixed
//! Computation Model", 2023 (Method 4, Rennala SGD); named GTA in the ATA paper.

use super::{Collect, Decision, Policy, PolicyEntry, PolicyKind, Round, SchedulerRng};
use crate::allocation::Rule;

/// The policy's entry in the registry.
pub const ENTRY: PolicyEntry = PolicyEntry {
    name: "gta",
    about: "greedy (Rennala SGD): all compute, the first B gradients are taken",
    parameters: "none",
    kind: PolicyKind::Racing,
    build: |_| Ok(Box::new(Gta)),
};

/// Lets all workers compute at the current parameters, one task after another. The first B gradients make the step, and the
/// tasks that are then running are cancelled and wasted.
struct Gta;

impl Policy for Gta {
    fn name(&self) -> &'static str {
        "gta"
    }

    fn decide(&mut self, round: &Round<'_>, _rng: &mut SchedulerRng) -> Decision {
        let allocation = vec![1; round.workers.len()];
        Decision::new(allocation, Collect::First { take: round.budget, refill: true }, Rule::Racing)
    }
}
