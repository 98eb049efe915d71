//! Decides which worker gets how many gradient tasks.
//!
//! This crate contains the engine that runs policies, and the policies that are meant for use; `research/policies` has the others.
//! It uses no async runtime, transport, tensor, clock, file or global randomness. The coordinator drives the engine with real
//! workers, the simulator with virtual ones, so what is simulated is what is deployed.
//!
//! Times are in seconds, as `f64`; in the simulator they have no unit.
//!
//! The README shows how to use the crate on its own; docs/reference/policies.md describes the policies.
//!
//! # Layout
//! - [`statistics`](WorkerStatistics): observed task times of a worker
//! - [`batches`](BatchStatistics): the cost o + a·s of leases computed as one batch
//! - `allocation`: [`ras`], [`ras_by_cost`], [`uniform`], and the warm-up rule of [`allocate_by_score`]
//! - [`policy`]: one policy per file, and how registries build them by name
//! - [`engine`]: events in, effects out
//! - [`lockstep`](Lockstep): shares for workers that step together, without an engine
//! - [`topology`]: what is known about the [links](LinkRates), the [time](LinkTimes) that vectors take, and which workers exchange them
//! - [`ledger`](Ledger): the costs of a run
//! - `round_times`: how many tasks a round of local steps must have
//! - [`goodput`](Goodput): what the steps of a second achieve

mod allocation;
mod batches;
pub mod engine;
mod goodput;
mod ledger;
mod lockstep;
pub mod policy;
mod round_times;
mod statistics;
pub mod topology;

pub use allocation::{PerWorker, Rule, allocate_by_score, ras, ras_by_cost, uniform};
pub use batches::{BatchStatistics, CostLine};
pub use engine::{
    AbortReason, Collection, Effect, Engine, EngineConfig, Event, FinishReason, LeaseTime, Limits, RateScaling,
    Refusal, Report, RestoreError, SavedEngine, TaskChoice, TaskRule, Verify,
};
pub use goodput::{Goodput, Release, progress};
pub use ledger::{IterationCost, Ledger, WorkerCost};
pub use lockstep::{Lockstep, LockstepError, SavedLockstep};
pub use policy::{
    Collect, Decision, Policy, PolicyContext, PolicyEntry, PolicyError, PolicyKind, PolicyResolver, PolicyState,
    Registry, Round, SchedulerRng, StepOutcome, Truth,
};
pub use statistics::WorkerStatistics;
pub use topology::{LinkRates, LinkSetting, LinkTimes, Observed, OwnTimes, Seen, Topology};

/// Compiles and runs the README's programs with the tests.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
