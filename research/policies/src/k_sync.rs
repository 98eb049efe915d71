//! k-sync SGD: a step takes the first k of n gradients.
//!
//! Source: Dutta, Joshi, Ghosh, Dube, Nagpurkar, "Slow and Stale Gradients Can Win the Race", AISTATS 2018 (k-sync SGD); Begunov, Tyurin,
//! "Do We Need Asynchronous SGD? On the Near-Optimality of Synchronous Methods", 2026 (arXiv 2602.03802), Algorithm 3 (m-synchronous SGD).

use ata_scheduler::Rule;
use ata_scheduler::policy::{Collect, Decision, PolicyEntry, PolicyKind, Round, stateless};

pub(crate) const ENTRY: PolicyEntry = PolicyEntry {
    name: "k-sync",
    about: "one task each, the first k gradients are taken",
    parameters: "k=K (default: half of the workers)",
    kind: PolicyKind::Racing,
    build: |arguments| {
        let half = u64::from(arguments.context().workers.unwrap_or(1)).div_ceil(2);
        let k = arguments.count("k")?.unwrap_or(half);
        arguments.at_most_workers("k", Some(k))?;
        Ok(stateless("k-sync", move |round, _| first_of_each(round, k)))
    },
};

/// Each worker gets one task; the first k gradients make the step, the rest are cancelled and wasted.
pub(crate) fn first_of_each(round: &Round<'_>, k: u64) -> Decision {
    let take = k.min(round.workers.len() as u64);
    Decision::new(vec![1; round.workers.len()], Collect::First { take, refill: false }, Rule::Racing)
}
