//! Ringmaster ASGD: asynchronous SGD that ignores gradients with too large a delay.
//!
//! Source: Maranjyan, Tyurin, Richtárik, "Ringmaster ASGD: The First Asynchronous SGD with Optimal Time Complexity",
//! ICML 2025 (arXiv 2501.16168): Algorithm 4 without, Algorithm 5 with calculation stops.

use crate::asgd::each;
use ata_scheduler::policy::{PolicyEntry, PolicyKind, stateless};

/// A gradient of delay δ is applied if δ < R, and ignored otherwise. With calculation stops, a computation whose delay
/// reaches R is cancelled at once and restarted at the current parameters.
pub(crate) const ENTRY: PolicyEntry = PolicyEntry {
    name: "ringmaster",
    about: "asynchronous, but a gradient delayed by R steps is ignored",
    parameters: "R=STEPS (default: the number of workers), stops=on|off (off; on: cancelled once it is too late)",
    kind: PolicyKind::Asynchronous,
    build: |arguments| {
        let max_delay = arguments.count("R")?;
        let stops = arguments.switch("stops")?.unwrap_or(false);
        Ok(stateless("ringmaster", move |round, _| {
            // With R = n, a worker of average speed is never too late.
            each(max_delay.unwrap_or(round.workers.len() as u64), stops)
        }))
    },
};

#[cfg(test)]
mod tests {
    use crate::tests::{built, decide};
    use ata_scheduler::policy::Collect;

    /// Ringmaster ASGD (arXiv 2501.16168), Algorithm 4: a gradient is applied if δ < R (with R = ∞ this is ASGD).
    #[test]
    fn thresholds() {
        for (specification, max_delay, cancel) in [
            ("asgd", u64::MAX, false),
            ("ringmaster", 5, false),
            ("ringmaster:R=2", 2, false),
            ("ringmaster:R=2,stops=on", 2, true),
        ] {
            let mut policy = built(specification);
            let decision = decide(&mut *policy, 1, 9, &[(0, 0.0); 5]);
            assert_eq!(decision.allocation, [0; 0], "all workers compute");
            assert_eq!(decision.collect, Collect::Each { max_delay, cancel });
        }
    }
}
