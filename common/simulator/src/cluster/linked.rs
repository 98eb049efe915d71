//! Workers over links: gradients take time to the coordinator, and parameters to the workers.

use std::collections::{BTreeMap, BTreeSet};

use ata_scheduler::{Engine, Report};
use ata_types::{CollectionId, Iteration, Lease, LeaseId, MachineId, TaskOutcome, WorkerId};

use super::workers::VirtualWorkers;
use super::{Cluster, Occurrence, SpeedView};
use crate::change::Change;
use crate::links::{Links, Uploads};
use crate::observer::Observer;
use crate::times::TaskTimes;

/// What a worker sends.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Parcel {
    /// The gradient of a lease that is sent alone.
    Alone(LeaseId),
    Collection(CollectionId),
}

pub(crate) struct LinkedCluster<'a, T> {
    workers: VirtualWorkers<'a, T>,
    links: Links,
    uploads: Uploads<Parcel>,
    /// Leases that will be sent alone, until they are computed.
    alone: BTreeSet<LeaseId>,
    /// The times of leases that are sent alone, and have not arrived.
    sent: BTreeMap<LeaseId, Vec<f64>>,
    /// When the uploads of leases began that have arrived alone, and not ended.
    arrived: BTreeMap<LeaseId, f64>,
    /// Leases that are computed, and whose workers keep the gradients.
    kept: BTreeSet<LeaseId>,
    /// What workers are asked for, until they send it.
    asked: BTreeMap<(WorkerId, CollectionId), Vec<LeaseId>>,
    /// When the last upload of the step began.
    last_began: f64,
    /// The latest iteration whose parameters each worker has.
    parameters: Vec<Option<Iteration>>,
    iteration: Iteration,
    /// The times of the lease that was reported last.
    reported: Vec<f64>,
}

impl<'a, T: TaskTimes> LinkedCluster<'a, T> {
    pub(crate) fn new(workers: VirtualWorkers<'a, T>, count: u32, links: Links) -> Self {
        Self {
            workers,
            links,
            uploads: Uploads::new(links),
            alone: BTreeSet::new(),
            sent: BTreeMap::new(),
            arrived: BTreeMap::new(),
            kept: BTreeSet::new(),
            asked: BTreeMap::new(),
            last_began: f64::NEG_INFINITY,
            parameters: vec![None; count as usize],
            iteration: Iteration::FIRST,
            reported: Vec::new(),
        }
    }

    /// A worker sends the collections that it has computed.
    fn send_computed(&mut self, now: f64, worker: WorkerId) {
        let kept = &self.kept;
        let of_worker = (worker, CollectionId(0))..=(worker, CollectionId(u64::MAX));
        let computed = self.asked.extract_if(of_worker, |_, leases| leases.iter().all(|lease| kept.contains(lease)));
        for ((_, collection), _) in computed.collect::<Vec<_>>() {
            self.uploads.begin(now, worker, Parcel::Collection(collection));
        }
    }

    /// A worker has computed a lease.
    fn computed(&mut self) -> Option<(f64, Occurrence<'_>)> {
        let ended = self.workers.next_ended()?;
        let (at, worker, lease) = (ended.at, ended.worker, ended.lease);
        let is_alone = self.alone.remove(&lease);
        let Some(busy) = ended.busy else {
            return Some((at, Occurrence::Report(worker, lease, Report::Failed)));
        };
        if is_alone {
            self.sent.insert(lease, busy.to_vec());
            self.uploads.begin(at, worker, Parcel::Alone(lease));
            return Some((at, Occurrence::Unnoticed));
        }
        self.reported.clear();
        self.reported.extend_from_slice(busy);
        self.kept.insert(lease);
        self.send_computed(at, worker);
        Some((at, Occurrence::Report(worker, lease, Report::Done { busy_s: &self.reported })))
    }

    /// A gradient arrives.
    fn arrive(&mut self) -> Option<(f64, Occurrence<'_>)> {
        let (at, upload) = self.uploads.end()?;
        let occurrence = match upload.key {
            Parcel::Alone(lease) => {
                self.arrived.insert(lease, upload.began);
                self.reported = self.sent.remove(&lease)?;
                Occurrence::Report(upload.worker, lease, Report::Done { busy_s: &self.reported })
            }
            Parcel::Collection(collection) => {
                self.last_began = self.last_began.max(upload.began);
                Occurrence::Delivered(upload.worker, collection)
            }
        };
        Some((at, occurrence))
    }

    /// A worker loses what it has.
    fn clear(&mut self, now: f64, worker: WorkerId) {
        self.uploads.lose(now, worker);
        self.asked.retain(|(holder, _), _| *holder != worker);
        self.parameters[worker.slot()] = None;
    }
}

impl<T: TaskTimes> Cluster for LinkedCluster<'_, T> {
    fn start(&mut self, now: f64, worker: WorkerId) -> Option<MachineId> {
        self.clear(now, worker);
        self.workers.start(now, worker)
    }

    fn stop(&mut self, now: f64, worker: WorkerId) -> bool {
        self.clear(now, worker);
        Cluster::stop(&mut self.workers, now, worker)
    }

    fn change(&mut self, now: f64, change: Change) {
        self.workers.change(now, change);
    }

    fn begins(&mut self, iteration: u64) {
        self.iteration = Iteration(iteration);
        self.workers.begins(iteration);
    }

    fn fuses(&self, worker: WorkerId) -> bool {
        self.workers.fuses(worker)
    }

    fn assign(&mut self, now: f64, worker: WorkerId, lease: Lease) {
        if lease.is_alone {
            self.alone.insert(lease.id);
        }
        let parameters = &mut self.parameters[worker.slot()];
        let has_them = *parameters >= Some(lease.iteration);
        let ready = if has_them { now } else { now + self.links.download() };
        *parameters = (*parameters).max(Some(lease.iteration));
        self.workers.assign_from(now, ready, worker, lease);
    }

    fn collect(&mut self, now: f64, worker: WorkerId, collection: CollectionId, leases: Vec<LeaseId>) {
        self.asked.remove(&(worker, collection));
        if !leases.is_empty() {
            self.asked.insert((worker, collection), leases);
            self.send_computed(now, worker);
        }
    }

    fn delivers(&self) -> bool {
        true
    }

    /// The step goes on chunk by chunk behind the last upload, and the parameters with it.
    fn exchange(&mut self, now: f64, contributors: &[WorkerId]) -> f64 {
        for worker in contributors {
            self.parameters[worker.slot()] = Some(self.iteration.next());
        }
        let began = std::mem::replace(&mut self.last_began, f64::NEG_INFINITY);
        (began + self.links.downloads(contributors.len()) - now).max(0.0)
    }

    fn end(&mut self, now: f64, worker: WorkerId, lease: &Lease, outcome: TaskOutcome, is_computed: bool) {
        self.alone.remove(&lease.id);
        self.kept.remove(&lease.id);
        if self.sent.remove(&lease.id).is_some() {
            self.uploads.cancel(now, worker, Parcel::Alone(lease.id));
            return;
        }
        if let (Some(began), TaskOutcome::Applied) = (self.arrived.remove(&lease.id), outcome) {
            self.last_began = self.last_began.max(began);
        }
        self.workers.end(now, worker, lease, outcome, is_computed);
    }

    fn close(&mut self, now: f64, worker: WorkerId) -> Option<f64> {
        self.clear(now, worker);
        self.workers.close(now, worker)
    }

    fn settle(&mut self, now: f64) {
        self.workers.settle(now);
    }

    fn next_at(&mut self) -> Option<f64> {
        self.workers.next_at().into_iter().chain(self.uploads.next_at()).min_by(f64::total_cmp)
    }

    fn pop(&mut self, _engine: &Engine, _observer: &mut impl Observer) -> Option<(f64, Occurrence<'_>)> {
        let at = self.next_at()?;
        if self.uploads.next_at() == Some(at) { self.arrive() } else { self.computed() }
    }
}

impl<T> SpeedView for LinkedCluster<'_, T> {
    fn mean(&self, worker: WorkerId, of_laws: &[f64]) -> f64 {
        self.workers.mean(worker, of_laws)
    }
}
