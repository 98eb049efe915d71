//! The caller's view of a simulated run, and its decisions in the run.

use std::collections::BTreeMap;
use std::sync::Arc;

use ata_scheduler::{Decision, Effect, Engine, Event, Ledger, Refusal, StepOutcome};
use ata_types::{CollectionId, Lease, LeaseId, MachineId, WorkerId};

use crate::network::Message;

/// Watches a simulated run, and determines the outcome of its steps.
///
/// The first three methods serve every run. The others let a run save its engine, check it, and crash its coordinator.
pub trait Observer {
    /// Called when an iteration begins.
    fn started(&mut self, _start: &IterationStart<'_>) {}

    /// Returns the outcome of an optimizer step. Called once for each step that is committed.
    fn step(&mut self, step: &Step<'_>) -> StepOutcome;

    /// Called when an effect is about to be carried out.
    fn effect(&mut self, _now: f64, _effect: &Effect) {}

    /// Returns how long a step takes, once all gradients have arrived.
    fn step_time(&mut self) -> f64 {
        0.0
    }

    /// Returns whether two results of the same tasks agree, each delivered in a collection of its own, and how long it takes to find out.
    fn compare(&mut self, _first: CollectionId, _second: CollectionId) -> (bool, f64) {
        // Virtual workers compute nothing that could differ.
        (true, 0.0)
    }

    /// Called when an iteration is committed and the next one has not begun: the engine may now be saved, or replaced by another
    /// one. Effects are carried out as usual. `clock` is the engine's time, which stands still while the coordinator is down.
    ///
    /// Returns the virtual time until which the next iteration has to wait, when this is called once more; `None` if it
    /// may begin.
    fn committed(&mut self, _now: f64, _clock: f64, _engine: &mut Engine, _effects: &mut Vec<Effect>) -> Option<f64> {
        None
    }

    /// Called when the engine is about to handle an event.
    fn event(&mut self, _now: f64, _event: &Event) {}

    /// Called when a message arrives across the network; `accepted` is `false` if its receiver ignores it.
    fn message(&mut self, _now: f64, _engine: &Engine, _worker: WorkerId, _message: &Message, _accepted: bool) {}

    /// Called when the engine has handled a worker's report on a lease; `effects` are those that followed from it.
    fn reported(&mut self, _worker: WorkerId, _lease: LeaseId, _answer: Result<(), Refusal>, _effects: &[Effect]) {}

    /// Called when all effects are carried out.
    fn settled(&mut self, _now: f64, _engine: &mut Engine) {}

    /// Returns how long the coordinator is down, if it crashes now. Called before each effect is carried out and, with
    /// `settled`, when all of them are. A coordinator can only crash if its workers are across a network.
    fn crash(&mut self, _settled: bool) -> Option<f64> {
        None
    }

    /// Restarts the coordinator after a crash. With `None` it stays down, and the run ends with an error.
    fn restart(&mut self, _now: f64) -> Option<Restart> {
        None
    }
}

impl<F: FnMut(&Step<'_>) -> StepOutcome> Observer for F {
    fn step(&mut self, step: &Step<'_>) -> StepOutcome {
        self(step)
    }
}

/// The coordinator's state when it starts again after a crash.
pub struct Restart {
    /// The engine, restored from the last save.
    pub engine: Engine,
    /// The engine's time, which continues from the last save.
    pub clock: f64,
    /// The machine of each worker that the saved run knows.
    pub machines: BTreeMap<WorkerId, MachineId>,
}

/// An iteration that begins.
pub struct IterationStart<'a> {
    /// The iteration, k.
    pub iteration: u64,
    /// The workers that the decision is about, ascending.
    pub workers: &'a Arc<[WorkerId]>,
    /// The workers' shares, and the reason for them.
    pub decision: &'a Decision,
    /// The number of changes that happened so far.
    pub changes: usize,
    /// The current mean of a worker, given the laws' means.
    pub(crate) means: &'a dyn Fn(WorkerId, &[f64]) -> f64,
}

impl IterationStart<'_> {
    /// Returns the current mean time of each of [`Self::workers`], where `of_laws` are the laws' means by slot.
    pub fn means(&self, of_laws: &[f64]) -> Vec<f64> {
        self.workers.iter().map(|&worker| (self.means)(worker, of_laws)).collect()
    }
}

/// An optimizer step.
pub struct Step<'a> {
    /// The iteration, k.
    pub iteration: u64,
    /// The virtual time.
    pub now: f64,
    /// The leases whose results enter the step, in the order in which they were reported or, if they have collections of their own, used.
    pub leases: &'a [Lease],
    /// The factor on the learning rate.
    pub lr_factor: f64,
    /// The costs of the previous iterations.
    pub ledger: &'a Ledger,
    /// The first iteration whose parameters may still be needed.
    pub oldest_iteration: u64,
}

/// Adds up the times from the order of a step to the step, in which vectors travel; under a barrier policy nothing is computed meanwhile.
#[derive(Clone, Copy, Debug, Default)]
pub struct ExchangeTime {
    ordered_at: f64,
    /// The sum, in the unit of the laws' times.
    pub total: f64,
}

impl Observer for ExchangeTime {
    fn effect(&mut self, now: f64, effect: &Effect) {
        if let Effect::Step { .. } = effect {
            self.ordered_at = now;
        }
    }

    fn step(&mut self, step: &Step<'_>) -> StepOutcome {
        self.total += step.now - self.ordered_at;
        StepOutcome::default()
    }
}
