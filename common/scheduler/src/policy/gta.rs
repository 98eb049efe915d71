//! GTA: greedy task allocation, which is the same as Rennala SGD.
//!
//! Source: Tyurin, Richtárik, "Optimal Time Complexities of Parallel Stochastic Optimization Methods Under a Fixed
//! Computation Model", 2023 (Method 4, Rennala SGD); named GTA in the ATA paper.

use super::{Collect, Decision, PolicyEntry, PolicyKind, stateless};
use crate::allocation::Rule;

/// All workers compute at the current parameters, one task after another. The first B gradients make the step, and the
/// tasks that are then running are cancelled and wasted.
pub const ENTRY: PolicyEntry = PolicyEntry {
    name: "gta",
    about: "greedy (Rennala SGD): all compute, the first B gradients are taken",
    parameters: "none",
    kind: PolicyKind::Racing,
    build: |_| {
        Ok(stateless("gta", |round, _| {
            let collect = Collect::First { take: round.budget, refill: true };
            Decision::new(vec![1; round.workers.len()], collect, Rule::Racing)
        }))
    },
};
