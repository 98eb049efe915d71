//! UTA: uniform task allocation, a baseline that ignores speeds.
//!
//! Source: the ATA paper (arXiv 2502.00775), section 6.

use super::{Decision, PolicyEntry, PolicyKind, stateless};
use crate::allocation::{Rule, uniform};

/// Equal shares of ⌊B/n⌋ tasks; the remainder goes to a random subset that is drawn anew in each iteration.
pub const ENTRY: PolicyEntry = PolicyEntry {
    name: "uta",
    about: "uniform: equal shares, all are waited for",
    parameters: "none",
    kind: PolicyKind::Barrier,
    build: |_| {
        Ok(stateless("uta", |round, rng| {
            Decision::barrier(uniform(round.workers.len(), round.budget, rng), Vec::new(), Rule::Uniform)
        }))
    },
};
