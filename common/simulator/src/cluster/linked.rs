//! Workers over links: gradients take time to reach the coordinator, and parameters to reach the workers.

use std::collections::{BTreeMap, BTreeSet};

use ata_scheduler::{Collection, Engine, Event, LinkTimes, Observed, Report};
use ata_types::{CollectionId, Iteration, Lease, LeaseId, MachineId, TaskOutcome, WorkerId};

use super::workers::VirtualWorkers;
use super::{Cluster, Occurrence};
use crate::agenda::Agenda;
use crate::change::Change;
use crate::links::{CurrentLinks, LinkUpload, Links, Parcel};
use crate::observer::Observer;
use crate::order::Order;
use crate::shards::{ShardExchange, VectorPart};
use crate::times::TaskTimes;

pub(crate) struct LinkedCluster<'a, T> {
    workers: VirtualWorkers<'a, T>,
    pub(crate) links: CurrentLinks,
    /// The links that the engine assumes.
    known: LinkTimes,
    /// The observations of the links since the last step.
    observed: Vec<Observed>,
    /// The times at which the uploads of collections began that have arrived but are in no step yet.
    arrived: BTreeMap<CollectionId, f64>,
    /// The computed leases whose gradients their workers keep.
    kept: BTreeSet<LeaseId>,
    /// The collections that workers are asked for, until they send them.
    asked: BTreeMap<VectorPart, Vec<LeaseId>>,
    /// The part of these that they were asked for since the effects were last carried out, except for collections of one lease.
    fresh: Vec<VectorPart>,
    /// Whether they were asked for a collection before that, in this iteration.
    has_asked: bool,
    /// The exchange in shards of the step, if there is one: among all workers that were asked first.
    shards: Option<ShardExchange>,
    /// The seconds that workers wait for the parameters before they begin these leases.
    waits: BTreeMap<LeaseId, f64>,
    /// The latest iteration whose parameters each worker has.
    parameters: Vec<Option<Iteration>>,
    iteration: Iteration,
    /// Whether an iteration is just beginning.
    begins: bool,
    /// What is on its way, besides vectors.
    messages: Agenda<LinkMessage>,
    /// The times of the lease that was reported last.
    reported: Vec<f64>,
}

enum LinkMessage {
    /// A worker's report on a lease, without the times of its tasks if it failed.
    Report { worker: WorkerId, lease: LeaseId, busy: Option<Vec<f64>>, waited: f64 },
    /// The beginning of a vector.
    Vector(VectorPart),
}

impl<'a, T: TaskTimes> LinkedCluster<'a, T> {
    pub(crate) fn new(workers: VirtualWorkers<'a, T>, count: u32, links: Links) -> Self {
        Self {
            workers,
            links: CurrentLinks::new(links, count as usize),
            known: LinkTimes::default(),
            observed: Vec::new(),
            arrived: BTreeMap::new(),
            kept: BTreeSet::new(),
            asked: BTreeMap::new(),
            fresh: Vec::new(),
            has_asked: false,
            shards: None,
            waits: BTreeMap::new(),
            parameters: vec![None; count as usize],
            iteration: Iteration::FIRST,
            begins: false,
            messages: Agenda::default(),
            reported: Vec::new(),
        }
    }

    fn latency(&self) -> f64 {
        self.links.links.latency
    }

    /// Begins to send a part at `at`. Its first byte arrives later.
    fn send(&mut self, at: f64, part: VectorPart) {
        self.messages.add(at + self.latency(), LinkMessage::Vector(part));
    }

    /// Lets a worker send the collections that it has computed, from `at` on.
    fn send_computed(&mut self, at: f64, worker: WorkerId) {
        let kept = &self.kept;
        let of_worker = (worker, CollectionId(0))..=(worker, CollectionId(u64::MAX));
        let computed = self.asked.extract_if(of_worker, |_, leases| leases.iter().all(|lease| kept.contains(lease)));
        for (part, _) in computed.collect::<Vec<_>>() {
            match &mut self.shards {
                Some(shards) if shards.contains(part) => shards.compute(at, part),
                _ => self.send(at, part),
            }
        }
    }

    /// Starts the sums that were asked for. All workers that are asked first in an iteration exchange their sums in shards, if that
    /// takes less time. Workers that are asked later, because another one was lost or overtaken, send theirs to the coordinator.
    fn send_fresh(&mut self, now: f64) {
        let mut fresh = std::mem::take(&mut self.fresh);
        fresh.retain(|part| self.asked.contains_key(part));
        if fresh.is_empty() {
            return;
        }
        let workers: BTreeSet<WorkerId> = fresh.iter().map(|(worker, _)| *worker).collect();
        if !std::mem::replace(&mut self.has_asked, true) && workers.len() == fresh.len() {
            self.shards = ShardExchange::new(&self.known, &self.links.setting().times, fresh.clone());
        }
        for (worker, _) in fresh {
            self.send_computed(now + self.latency(), worker);
        }
    }

    /// Gives up an exchange in shards that lacks a member. The other members send their sums to the coordinator.
    fn give_up_shards(&mut self, now: f64, left: WorkerId) {
        for part in self.shards.take().into_iter().flat_map(ShardExchange::give_up) {
            if part.0 != left {
                self.send(now, part);
            }
        }
    }

    fn computed(&mut self) -> Option<(f64, Occurrence<'_>)> {
        let (at, worker, lease, report) = self.workers.next_ended()?;
        let waited = self.waits.remove(&lease).unwrap_or(0.0);
        let busy = if let Report::Done { busy_s, .. } = report { Some(busy_s.to_vec()) } else { None };
        let is_done = busy.is_some();
        self.messages.add(at + self.latency(), LinkMessage::Report { worker, lease, busy, waited });
        if is_done {
            self.kept.insert(lease);
            self.send_computed(at, worker);
        }
        Some((at, Occurrence::Unnoticed))
    }

    fn receive(&mut self) -> Option<(f64, Occurrence<'_>)> {
        let (at, message) = self.messages.pop()?;
        let occurrence = match message {
            LinkMessage::Vector((worker, collection)) => {
                self.links.begin(at, worker, Parcel::Collection(collection), self.links.links.up_bytes);
                Occurrence::Unnoticed
            }
            LinkMessage::Report { worker, lease, busy: None, .. } => {
                Occurrence::Report(worker, lease, Report::Failed { uncomputable: false })
            }
            LinkMessage::Report { worker, lease, busy: Some(busy), waited: waited_s } => {
                self.reported = busy;
                Occurrence::Report(worker, lease, Report::Done { busy_s: &self.reported, waited_s })
            }
        };
        Some((at, occurrence))
    }

    fn arrive(&mut self) -> Option<(f64, Occurrence<'_>)> {
        let (at, mut upload) = self.links.end()?;
        let occurrence = match upload.parcel {
            Parcel::Probe => {
                let LinkUpload { worker, bytes, began, .. } = upload;
                Occurrence::Event(Event::LinkObserved(Observed::Probed { worker, bytes, seconds: at - began }))
            }
            Parcel::Collection(collection) => {
                self.observed.extend(upload.observe());
                self.arrived.insert(collection, upload.began);
                Occurrence::Delivered(upload.worker, collection)
            }
        };
        Some((at, occurrence))
    }

    /// Handles the sums of an exchange in shards, which arrive one member after the other at the same time.
    fn arrive_in_shards(&mut self) -> Option<(f64, Occurrence<'_>)> {
        let shards = self.shards.as_mut()?;
        let at = shards.arrives_at()?;
        let (worker, collection) = shards.deliver()?;
        if shards.is_delivered() {
            self.observed.extend(shards.observe(at));
        }
        Some((at, Occurrence::Delivered(worker, collection)))
    }

    fn clear(&mut self, now: f64, worker: WorkerId) {
        if self.shards.as_ref().is_some_and(|shards| shards.has_member(worker) && !shards.is_delivered()) {
            self.give_up_shards(now, worker);
        }
        self.links.cancel(now, worker, None);
        self.messages.retain(|message| match message {
            LinkMessage::Report { worker: of, .. } | LinkMessage::Vector((of, _)) => *of != worker,
        });
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
        match change {
            Change::SlowLink(worker, factor) => self.links.change(now, worker, factor),
            _ => self.workers.change(now, change),
        }
    }

    fn begins(&mut self, iteration: u64) {
        self.iteration = Iteration(iteration);
        self.has_asked = false;
        self.shards = None;
        self.begins = true;
        self.workers.begins(iteration);
    }

    fn mean(&self, worker: WorkerId, of_laws: &[f64]) -> f64 {
        self.workers.mean(worker, of_laws)
    }

    fn fuses(&self, worker: WorkerId) -> bool {
        self.workers.fuses(worker)
    }

    fn assign(&mut self, now: f64, worker: WorkerId, lease: Lease) {
        self.asked.extend(lease.own.map(|own| ((worker, own), vec![lease.id])));
        // The first leases of an iteration arrive with its parameters.
        let arrives = if self.begins { now } else { now + self.latency() };
        let parameters = &mut self.parameters[worker.slot()];
        // Local steps of the next iteration begin where the worker is.
        let needed = Some(lease.iteration.min(self.iteration));
        let has_them = *parameters >= needed;
        let ready = if has_them { arrives } else { arrives + self.links.download(worker) };
        if ready > arrives {
            self.waits.insert(lease.id, ready - arrives);
        }
        *parameters = (*parameters).max(needed);
        self.workers.assign_from(now, ready, worker, lease);
    }

    fn collect(&mut self, now: f64, Collection { worker, id, leases }: Collection) {
        let part = (worker, id);
        let is_new = self.asked.remove(&part).is_none();
        if leases.is_empty() {
            if self.shards.as_ref().is_some_and(|shards| shards.contains(part)) {
                self.give_up_shards(now, worker);
            }
            return;
        }
        self.asked.insert(part, leases.into_iter().map(|lease| lease.id).collect());
        if is_new {
            self.fresh.push(part);
        } else {
            self.send_computed(now + self.latency(), worker);
        }
    }

    fn delivers(&self) -> bool {
        true
    }

    /// Starts the exchange of a step. The step proceeds chunk by chunk behind the last upload, and the parameters follow.
    fn exchange(&mut self, now: f64, order: &Order) -> f64 {
        let contributors: BTreeSet<WorkerId> = order.collected.iter().map(|(worker, _)| *worker).collect();
        for worker in &contributors {
            self.parameters[worker.slot()] = Some(self.iteration.next());
        }
        let began = order.collections.iter().filter_map(|id| self.arrived.remove(id));
        let last_began = began.fold(f64::NEG_INFINITY, f64::max);
        let follows = if self.links.links.whole { now } else { last_began };
        let shards = self.shards.take();
        let is_member = |worker: &WorkerId| shards.as_ref().is_some_and(|shards| shards.has_member(*worker));
        let others = || contributors.iter().copied().filter(|worker| !is_member(worker));
        let ends_at = shards.as_ref().and_then(ShardExchange::ends_at);
        // The coordinator sends the members of an exchange in shards one set of parameters together.
        let sets = others().count() + usize::from(shards.is_some());
        let star_ends_at = follows + self.links.downloads(sets, others());
        (ends_at.map_or(star_ends_at, |ends_at| star_ends_at.max(ends_at)) - now).max(0.0) + self.latency()
    }

    fn end(&mut self, now: f64, worker: WorkerId, lease: &Lease, outcome: TaskOutcome, is_computed: bool) {
        self.kept.remove(&lease.id);
        self.waits.remove(&lease.id);
        if let Some(own) = lease.own {
            self.asked.remove(&(worker, own));
            self.arrived.remove(&own);
            self.messages.retain(|message| !matches!(message, LinkMessage::Vector(part) if *part == (worker, own)));
            self.links.cancel(now, worker, Some(Parcel::Collection(own)));
        }
        self.workers.end(now, worker, lease, outcome, is_computed);
    }

    fn close(&mut self, now: f64, worker: WorkerId) -> Option<f64> {
        self.clear(now, worker);
        self.workers.close(now, worker)
    }

    fn probe_link(&mut self, now: f64, worker: WorkerId, bytes: u64) {
        if !self.links.has(worker, Parcel::Probe) {
            self.links.begin(now, worker, Parcel::Probe, bytes as f64);
        }
    }

    fn observed(&mut self, now: f64) -> Vec<Observed> {
        let mut observed = std::mem::take(&mut self.observed);
        observed.extend(self.links.observe(now));
        let Links { up_bytes, down_bytes, topology, chunk, .. } = self.links.links;
        observed.push(Observed::Step { up_bytes, down_bytes, topology, chunk });
        observed
    }

    fn counts_with(&mut self, links: &LinkTimes) {
        self.known.clone_from(links);
    }

    fn settle(&mut self, now: f64) {
        self.begins = false;
        self.send_fresh(now);
        self.workers.settle(now);
    }

    fn next_at(&mut self) -> Option<f64> {
        let in_shards = self.shards.as_ref().and_then(ShardExchange::arrives_at);
        let times = [self.messages.next_at(), self.workers.next_at(), self.links.next_at(), in_shards];
        times.into_iter().flatten().min_by(f64::total_cmp)
    }

    fn pop(&mut self, _engine: &Engine, _observer: &mut impl Observer) -> Option<(f64, Occurrence<'_>)> {
        let at = self.next_at()?;
        if self.messages.next_at() == Some(at) {
            self.receive()
        } else if self.shards.as_ref().and_then(ShardExchange::arrives_at) == Some(at) {
            self.arrive_in_shards()
        } else if self.links.next_at() == Some(at) {
            self.arrive()
        } else {
            self.computed()
        }
    }
}
