//! k-sync SGD: a step takes the first k of n gradients.
//!
//! Source: Dutta, Joshi, Ghosh, Dube, Nagpurkar, "Slow and Stale Gradients Can Win the Race", AISTATS 2018 (k-sync
//! SGD).

use ata_scheduler::Rule;
use ata_scheduler::policy::{Arguments, Collect, Decision, Policy, PolicyError, Round, SchedulerRng};
use ata_scheduler::policy::{PolicyEntry, PolicyKind};

pub(crate) const ENTRY: PolicyEntry = PolicyEntry {
    name: "k-sync",
    about: "one task each, the first k gradients are taken",
    parameters: "k=K (default: half of the workers)",
    kind: PolicyKind::Racing,
    build: |arguments| Ok(Box::new(KSync::from_arguments(arguments)?)),
};

/// Each worker gets one task; the first k gradients make the step, the rest are cancelled and wasted.
#[derive(Clone, Copy, Debug)]
pub struct KSync {
    k: u64,
}

impl KSync {
    /// Reads `k`.
    pub(crate) fn from_arguments(arguments: &mut Arguments<'_>) -> Result<Self, PolicyError> {
        let k = arguments.count("k")?.unwrap_or_else(|| half(arguments.context().workers));
        arguments.at_most_workers("k", Some(k))?;
        Ok(Self { k })
    }
}

/// Returns half the number of workers, rounded up; 1 if it is unknown.
fn half(workers: Option<u32>) -> u64 {
    u64::from(workers.unwrap_or(1)).div_ceil(2)
}

/// Returns the decision to take the first k results of one task each.
pub(crate) fn first_of_each(round: &Round<'_>, k: u64) -> Decision {
    let take = k.min(round.workers.len() as u64);
    Decision::new(vec![1; round.workers.len()], Collect::First { take, refill: false }, Rule::Racing)
}

impl Policy for KSync {
    fn name(&self) -> &'static str {
        "k-sync"
    }

    fn decide(&mut self, round: &Round<'_>, _rng: &mut SchedulerRng) -> Decision {
        first_of_each(round, self.k)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::build_policy;
    use crate::testing::decide;
    use ata_scheduler::policy::PolicyContext;

    /// Dutta et al. (AISTATS 2018), k-sync SGD: each of n workers gets one task; the first k are taken.
    #[test]
    fn the_first_k_of_all() {
        let decision = decide(&mut KSync { k: 3 }, 1, 99, &[(0, 0.0); 5]);
        assert_eq!(decision.allocation, [1; 5]);
        assert_eq!(decision.collect, Collect::First { take: 3, refill: false });
    }

    #[test]
    fn more_than_there_are_workers() {
        let context = PolicyContext { workers: Some(4), ..PolicyContext::default() };
        let error = build_policy("k-sync:k=5", &context).err().unwrap().to_string();
        assert!(error.contains("k=5: there are only 4 workers"), "{error}");
        let decision = decide(&mut KSync { k: 5 }, 1, 99, &[(0, 0.0); 2]);
        assert_eq!(decision.collect, Collect::First { take: 2, refill: false }, "some were lost");
    }
}
