//! What a caller learns of a simulated run, and decides in it.

use std::collections::BTreeMap;
use std::sync::Arc;

use ata_scheduler::{Decision, Effect, Engine, Event, Ledger, Refusal, StepOutcome};
use ata_types::{Lease, LeaseId, MachineId, WorkerId};

use crate::cluster::SpeedView;
use crate::network::Message;

/// Watches a simulated run, and decides what comes of its steps.
///
/// The first three methods serve every run. The others let a run save its engine, check it, and crash its coordinator.
pub trait Observer {
    /// An iteration begins.
    fn started(&mut self, _start: &IterationStart<'_>) {}

    /// An optimizer step is taken; returns its outcome. Called once for each step that is committed.
    fn step(&mut self, step: &Step<'_>) -> StepOutcome;

    /// An effect is about to be carried out.
    fn effect(&mut self, _now: f64, _effect: &Effect) {}

    /// How long a step takes, once all gradients are there.
    fn step_time(&mut self) -> f64 {
        0.0
    }

    /// An iteration is committed, and the next one has not begun: the engine may now be saved, or replaced by another
    /// one. Effects are carried out as usual.
    ///
    /// Returns the virtual time until which the next iteration has to wait, when this is called once more; `None` if it
    /// may begin.
    fn committed(&mut self, _time: EngineTime, _engine: &mut Engine, _effects: &mut Vec<Effect>) -> Option<f64> {
        None
    }

    /// An event is about to be handled by the engine.
    fn event(&mut self, _now: f64, _event: &Event) {}

    /// A message arrives across the network; `accepted` is false if its receiver ignores it.
    fn message(&mut self, _now: f64, _engine: &Engine, _worker: WorkerId, _message: &Message, _accepted: bool) {}

    /// The engine has handled a worker's report on a lease; `effects` are what came of it.
    fn reported(&mut self, _worker: WorkerId, _lease: LeaseId, _answer: Result<(), Refusal>, _effects: &[Effect]) {}

    /// All effects are carried out.
    fn settled(&mut self, _now: f64, _engine: &mut Engine) {}

    /// Whether the coordinator crashes now, and how long it is down. Asked before each effect is carried out and, with
    /// `settled`, when all of them are. A coordinator can only crash if its workers are across a network.
    fn crash(&mut self, _settled: bool) -> Option<f64> {
        None
    }

    /// The coordinator starts again after a crash. With `None` it stays down, and the run ends with an error.
    fn restart(&mut self, _now: f64) -> Option<Restart> {
        None
    }
}

impl<F: FnMut(&Step<'_>) -> StepOutcome> Observer for F {
    fn step(&mut self, step: &Step<'_>) -> StepOutcome {
        self(step)
    }
}

/// A time, for those who deal with the engine itself.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct EngineTime {
    /// The virtual time.
    pub now: f64,
    /// The engine's time: it stands still while the coordinator is down.
    pub clock: f64,
}

/// The coordinator's state when it starts again after a crash.
pub struct Restart {
    /// The engine, restored from what was saved last.
    pub engine: Engine,
    /// The engine's time, which goes on from that of the save.
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
    /// Their shares, and why.
    pub decision: &'a Decision,
    /// Changes that happened so far.
    pub changes: usize,
    pub(crate) speeds: &'a dyn SpeedView,
}

impl IterationStart<'_> {
    /// The current mean time of each of [`Self::workers`], if the laws' means are `of_laws`, by slot.
    pub fn means(&self, of_laws: &[f64]) -> Vec<f64> {
        self.workers.iter().map(|&worker| self.speeds.mean(worker, of_laws)).collect()
    }
}

/// An optimizer step.
pub struct Step<'a> {
    /// The iteration, k.
    pub iteration: u64,
    /// The virtual time.
    pub now: f64,
    /// The leases whose results enter it, in the order in which they were reported or, if they have collections of their own, used.
    pub leases: &'a [Lease],
    /// Factor on the learning rate.
    pub lr_factor: f64,
    /// What the iterations before it cost.
    pub ledger: &'a Ledger,
    /// Parameters of iterations before this one will not be needed again.
    pub oldest_iteration: u64,
}
