//! What the driver asks of its workers.
//!
//! # Layout
//! - here: [`Cluster`]
//! - `workers`: [`VirtualWorkers`], which compute; by themselves, a cluster within reach
//! - `completions`: their pending results
//! - `linked`: [`LinkedCluster`], the same workers over links
//! - `remote`: [`RemoteCluster`], the same workers across a network

mod completions;
mod linked;
mod remote;
mod workers;

use std::collections::BTreeMap;

use ata_scheduler::{Collection, Engine, LinkTimes, Observed, Report};
use ata_types::{CollectionId, Lease, LeaseId, MachineId, TaskOutcome, WorkerId};

pub(crate) use linked::LinkedCluster;
pub(crate) use remote::RemoteCluster;
pub(crate) use workers::VirtualWorkers;

use crate::change::Change;
use crate::observer::Observer;
use crate::order::Order;

/// The workers of a run, as its coordinator reaches them.
pub(crate) trait Cluster: SpeedView + Sized {
    /// A worker starts; returns its machine if the coordinator learns of it at once.
    fn start(&mut self, now: f64, worker: WorkerId) -> Option<MachineId>;

    /// A worker is gone; returns whether the coordinator learns of it at once.
    fn stop(&mut self, now: f64, worker: WorkerId) -> bool;

    /// A change of speed or health.
    fn change(&mut self, now: f64, change: Change);

    /// Iteration `iteration` is about to begin.
    fn begins(&mut self, iteration: u64);

    /// Whether a worker computes a lease as one batch.
    fn fuses(&self, worker: WorkerId) -> bool;

    /// The coordinator gives a worker a lease, and asks it for the collection of its own, if it has one.
    fn assign(&mut self, now: f64, worker: WorkerId, lease: Lease);

    /// A lease of the coordinator is over; `is_computed` says whether its worker had reported it as done.
    fn end(&mut self, now: f64, worker: WorkerId, lease: &Lease, outcome: TaskOutcome, is_computed: bool);

    /// The coordinator asks a worker for the sum over some of its leases.
    fn collect(&mut self, _now: f64, _asked: Collection) {}

    /// Whether collections take time: each one is said to be delivered. If not, they are there at once.
    fn delivers(&self) -> bool {
        false
    }

    /// All gradients of a step arrived; returns how long the parameters still travel.
    fn exchange(&mut self, _now: f64, _order: &Order) -> f64 {
        0.0
    }

    /// The coordinator has a worker send bytes that no step waits for.
    fn probe_link(&mut self, _now: f64, _worker: WorkerId, _bytes: u64) {}

    /// What the coordinator observed of the links since the last step.
    fn observed(&mut self, _now: f64) -> Vec<Observed> {
        Vec::new()
    }

    /// The engine counts with these links from now on.
    fn counts_with(&mut self, _links: &LinkTimes) {}

    /// The coordinator closes a worker's session; returns when the worker is to be started again, if that is up to the
    /// driver.
    fn close(&mut self, now: f64, worker: WorkerId) -> Option<f64>;

    /// All effects are carried out.
    fn settle(&mut self, now: f64);

    /// When something happens next.
    fn next_at(&mut self) -> Option<f64>;

    /// What happens next, and when.
    fn pop(&mut self, engine: &Engine, observer: &mut impl Observer) -> Option<(f64, Occurrence<'_>)>;

    /// The coordinator is gone; returns whether that is possible.
    fn crash(&mut self) -> bool {
        false
    }

    /// The coordinator is back, and knows the machines of these workers.
    fn restart(&mut self, _machines: BTreeMap<WorkerId, MachineId>) {}
}

/// What happens to the coordinator.
pub(crate) enum Occurrence<'a> {
    /// A worker reports on a lease.
    Report(WorkerId, LeaseId, Report<'a>),
    /// A worker's collection arrived.
    Delivered(WorkerId, CollectionId),
    /// A worker gives a collection up.
    CollectionFailed(WorkerId, CollectionId),
    /// Something is known of a link.
    Observed(Observed),
    /// A worker joins.
    Joined(WorkerId, MachineId),
    /// A worker is lost.
    Lost(WorkerId),
    /// A worker's number is given to another machine.
    Forgotten(WorkerId),
    /// Nothing that concerns the coordinator.
    Unnoticed,
}

/// What an observer may ask of a cluster.
pub(crate) trait SpeedView {
    /// The current mean of a worker, from the laws' means.
    fn mean(&self, worker: WorkerId, of_laws: &[f64]) -> f64;
}
