//! ASGD: asynchronous SGD, which applies every gradient as it arrives.
//!
//! Source: Recht, Ré, Wright, Niu, "Hogwild", NIPS 2011; Mishchenko, Bach, Even, Woodworth, "Asynchronous SGD Beats
//! Minibatch SGD Under Arbitrary Delays", NeurIPS 2022.

use ata_scheduler::Rule;
use ata_scheduler::policy::{Collect, Decision, PolicyEntry, PolicyKind, stateless};

/// Every worker always computes, and each gradient makes its own step, whatever its delay.
pub(crate) const ENTRY: PolicyEntry = PolicyEntry {
    name: "asgd",
    about: "asynchronous: every gradient makes a step as it arrives",
    parameters: "none",
    kind: PolicyKind::Asynchronous,
    build: |_| Ok(stateless("asgd", |_, _| each(u64::MAX, false))),
};

/// Returns the decision to apply each gradient with a delay below `max_delay`.
pub(crate) fn each(max_delay: u64, cancel: bool) -> Decision {
    Decision::new(Vec::new(), Collect::Each { max_delay, cancel }, Rule::Asynchronous)
}
