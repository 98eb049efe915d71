//! The driver's interface to its workers.

mod completions;
mod linked;
mod remote;
mod workers;

use std::collections::BTreeMap;

use ata_scheduler::{Collection, Engine, Event, LinkTimes, Observed, Report};
use ata_types::{CollectionId, Lease, LeaseId, MachineId, TaskOutcome, WorkerId};

pub(crate) use linked::LinkedCluster;
pub(crate) use remote::RemoteCluster;
pub(crate) use workers::VirtualWorkers;

use crate::change::Change;
use crate::observer::Observer;
use crate::order::Order;

/// The workers of a run, as its coordinator reaches them.
pub(crate) trait Cluster {
    /// Starts a worker; returns its machine if the coordinator notices it at once.
    fn start(&mut self, now: f64, worker: WorkerId) -> Option<MachineId>;

    /// Stops a worker; returns whether the coordinator notices it at once.
    fn stop(&mut self, now: f64, worker: WorkerId) -> bool;

    /// Applies a change of speed or health.
    fn change(&mut self, now: f64, change: Change);

    /// Prepares for iteration `iteration`, which is about to begin.
    fn begins(&mut self, iteration: u64);

    /// Returns the current mean time of a worker's tasks, given the laws' means.
    fn mean(&self, worker: WorkerId, of_laws: &[f64]) -> f64;

    fn fuses(&self, worker: WorkerId) -> bool;

    /// Gives a worker a lease, and asks it for the lease's own collection, if there is one.
    fn assign(&mut self, now: f64, worker: WorkerId, lease: Lease);

    /// Ends a lease of the coordinator; `is_computed` is `true` if its worker had reported it as done.
    fn end(&mut self, now: f64, worker: WorkerId, lease: &Lease, outcome: TaskOutcome, is_computed: bool);

    /// Asks a worker for the sum over some of its leases.
    fn collect(&mut self, _now: f64, _asked: Collection) {}

    /// Returns whether collections take time and are reported as delivered. Otherwise they arrive at once.
    fn delivers(&self) -> bool {
        false
    }

    /// Returns how long the parameters still travel, once all gradients of a step have arrived.
    fn exchange(&mut self, _now: f64, _order: &Order) -> f64 {
        0.0
    }

    /// Lets a worker send bytes that no step waits for.
    fn probe_link(&mut self, _now: f64, _worker: WorkerId, _bytes: u64) {}

    /// Returns what the coordinator observed about the links since the last step.
    fn observed(&mut self, _now: f64) -> Vec<Observed> {
        Vec::new()
    }

    /// Sets the links that the engine assumes from now on.
    fn counts_with(&mut self, _links: &LinkTimes) {}

    /// Closes a worker's session; returns the time at which the worker is to be started again, if that is up to the
    /// driver.
    fn close(&mut self, now: f64, worker: WorkerId) -> Option<f64>;

    /// Reacts after all effects are carried out.
    fn settle(&mut self, now: f64);

    fn next_at(&mut self) -> Option<f64>;

    fn pop(&mut self, engine: &Engine, observer: &mut impl Observer) -> Option<(f64, Occurrence<'_>)>;

    /// Crashes the coordinator; returns whether that is possible.
    fn crash(&mut self) -> bool {
        false
    }

    /// Restarts the coordinator, which knows the machines of these workers.
    fn restart(&mut self, _machines: BTreeMap<WorkerId, MachineId>) {}
}

/// Something that happens to the coordinator.
pub(crate) enum Occurrence<'a> {
    Report(WorkerId, LeaseId, Report<'a>),
    Delivered(WorkerId, CollectionId),
    Joined(WorkerId, MachineId),
    /// Another event of the engine.
    Event(Event),
    /// Nothing happens that concerns the coordinator.
    Unnoticed,
}
