//! ASGD: asynchronous SGD, which applies every gradient as it arrives.
//!
//! Source: Recht, Ré, Wright, Niu, "Hogwild", NIPS 2011; Mishchenko, Bach, Even, Woodworth, "Asynchronous SGD Beats
//! Minibatch SGD Under Arbitrary Delays", NeurIPS 2022.

use ata_scheduler::Rule;
use ata_scheduler::policy::{Collect, Decision, Policy, PolicyEntry, PolicyKind, Round, SchedulerRng};

pub(crate) const ENTRY: PolicyEntry = PolicyEntry {
    name: "asgd",
    about: "asynchronous: every gradient makes a step as it arrives",
    parameters: "none",
    kind: PolicyKind::Asynchronous,
    build: |_| Ok(Box::new(Asgd)),
};

/// A policy under which every worker always computes, and each gradient makes its own step, whatever its delay.
struct Asgd;

/// Returns the decision to apply each gradient with a delay below `max_delay`.
pub(crate) fn each(max_delay: u64, cancel: bool) -> Decision {
    Decision::new(Vec::new(), Collect::Each { max_delay, cancel }, Rule::Asynchronous)
}

impl Policy for Asgd {
    fn name(&self) -> &'static str {
        "asgd"
    }

    fn decide(&mut self, _round: &Round<'_>, _rng: &mut SchedulerRng) -> Decision {
        each(u64::MAX, false)
    }
}
