//! Workers across a network: they connect, get their leases and report on them by messages.
//!
//! Either side ends a session after a silence, and a worker then connects again. It still finishes and reports what it computes for
//! a session that has ended.

mod coordinator;

use std::collections::{BTreeMap, BTreeSet};

use ata_scheduler::{Collection, Engine, Report};
use ata_types::{CollectionId, Lease, LeaseId, MachineId, TaskOutcome, WorkerId};

use super::workers::VirtualWorkers;
use super::{Cluster, Occurrence};
use crate::agenda::Agenda;
use crate::change::Change;
use crate::network::{Direction, Message, VirtualNetwork, VirtualSession};
use crate::observer::Observer;
use crate::times::TaskTimes;

/// The interval between heartbeats, in seconds.
const HEARTBEAT_S: f64 = 0.5;
/// Seconds without a message after which either side ends a session.
const SILENCE_S: f64 = 2.0;

pub(crate) struct RemoteCluster<'a, T> {
    /// The workers, which compute jobs: leases with new numbers, since a coordinator that crashed reuses its numbers.
    workers: VirtualWorkers<'a, T>,
    network: &'a mut VirtualNetwork,
    processes: Vec<Process>,
    jobs: u64,
    events: Agenda<(WorkerId, ClusterEvent)>,
    coordinator: Coordinator,
    /// The last result that arrived.
    arrived: Vec<f64>,
}

#[derive(Default)]
struct Process {
    /// A number that changes with every start; `None` while the worker is down.
    number: Option<u64>,
    starts: u64,
    /// The machine that has the worker's number: the worker's own, until another one gets the number.
    machine: u64,
    session: Option<VirtualSession>,
    heard_s: f64,
    /// The jobs, in the order in which they are computed.
    jobs: BTreeMap<LeaseId, RemoteJob>,
    /// The computed leases of the session whose gradients the worker keeps.
    kept: BTreeSet<LeaseId>,
    /// The sums that the worker was asked for and has not sent since.
    asked: BTreeMap<CollectionId, Vec<LeaseId>>,
}

#[derive(Clone, Copy)]
struct RemoteJob {
    session: VirtualSession,
    lease: Lease,
}

/// The coordinator's state about a worker.
#[derive(Default)]
struct Coordinator {
    is_down: bool,
    restarts: u32,
    opened: u64,
    sessions: BTreeMap<WorkerId, OpenSession>,
    machines: BTreeMap<WorkerId, MachineId>,
}

struct OpenSession {
    name: VirtualSession,
    process: u64,
    heard_s: f64,
    /// The collections that the worker was asked for and has not delivered.
    collections: BTreeMap<CollectionId, Vec<LeaseId>>,
}

enum ClusterEvent {
    Arrival(Message),
    /// A process sends a heartbeat, or asks for a session.
    Tick(u64),
    /// The coordinator may have received nothing from a session for too long.
    Silence(VirtualSession),
}

impl<'a, T: TaskTimes> RemoteCluster<'a, T> {
    pub(crate) fn new(workers: VirtualWorkers<'a, T>, count: u32, network: &'a mut VirtualNetwork) -> Self {
        let processes = (0..count.into()).map(|machine| Process { machine, ..Process::default() }).collect();
        let coordinator = Coordinator::default();
        Self { workers, network, processes, jobs: 0, events: Agenda::default(), coordinator, arrived: Vec::new() }
    }

    fn send(&mut self, now: f64, worker: WorkerId, message: &Message) {
        for at in self.network.arrivals(now, worker, message.direction()) {
            self.events.add(at, (worker, ClusterEvent::Arrival(message.clone())));
        }
    }

    /// Handles a job that a worker has computed, on which it reports.
    fn computed(&mut self) -> f64 {
        let (at, worker, job, report) = self.workers.next_ended().expect("it is the next event");
        let process = &mut self.processes[worker.slot()];
        let RemoteJob { session, lease } = process.jobs.remove(&job).expect("it was assigned");
        let message = match report {
            Report::Done { busy_s, .. } if !self.network.fails(at) => {
                if process.session == Some(session) {
                    process.kept.insert(lease.id);
                }
                let factor = self.network.misreport();
                Message::Done(session, lease, busy_s.iter().map(|time| factor * time).collect())
            }
            _ => Message::Failed(session, lease.id),
        };
        self.send(at, worker, &message);
        self.send_sums(at, worker);
        at
    }

    /// Lets a worker send the sums that it was asked for and has computed.
    fn send_sums(&mut self, now: f64, worker: WorkerId) {
        let Process { session, kept, asked, .. } = &mut self.processes[worker.slot()];
        let Some(session) = *session else { return };
        let computed = asked.extract_if(.., |_, leases| leases.iter().all(|lease| kept.contains(lease)));
        for (collection, leases) in computed.collect::<Vec<_>>() {
            let has_failed = self.network.fails(now);
            let sum = Message::Sum(session, collection, leases);
            let message = if has_failed { Message::GivenUp(session, collection) } else { sum };
            self.send(now, worker, &message);
        }
    }

    fn tick(&mut self, now: f64, worker: WorkerId, number: u64) {
        let process = &mut self.processes[worker.slot()];
        if process.number != Some(number) {
            return;
        }
        if now - process.heard_s > SILENCE_S {
            process.session = None;
        }
        let hello = Message::Hello(number, MachineId(process.machine));
        let message = process.session.map_or(hello, Message::Heartbeat);
        self.send(now, worker, &message);
        self.events.add(now + HEARTBEAT_S, (worker, ClusterEvent::Tick(number)));
    }

    /// Handles a message that arrives at a worker; returns whether it counts.
    fn receive(&mut self, now: f64, worker: WorkerId, message: &Message) -> bool {
        let process = &mut self.processes[worker.slot()];
        match *message {
            Message::Welcome(number, _) if process.number != Some(number) || process.session.is_some() => return false,
            Message::Alive(session)
            | Message::Gone(session)
            | Message::Assign(session, _)
            | Message::Cancel(session, _)
            | Message::Collect(session, ..)
                if process.number.is_none() || process.session != Some(session) =>
            {
                return false;
            }
            Message::Welcome(_, session) => {
                (process.session, process.heard_s) = (Some(session), now);
                process.kept.clear();
                process.asked.clear();
                // The worker finishes the job that it is computing.
                let waiting: Vec<LeaseId> = process.jobs.keys().skip(1).copied().collect();
                self.discard(now, worker, &waiting);
            }
            Message::Gone(_) => process.session = None,
            Message::Assign(session, lease) => {
                process.heard_s = now;
                let job = LeaseId(self.jobs);
                self.jobs += 1;
                process.jobs.insert(job, RemoteJob { session, lease });
                process.asked.extend(lease.own.map(|own| (own, vec![lease.id])));
                self.workers.assign(now, worker, Lease { id: job, ..lease });
            }
            Message::Cancel(session, lease) => {
                let is_cancelled = |job: &RemoteJob| (job.session, job.lease.id) == (session, lease);
                let jobs = process.jobs.iter().filter(|(_, job)| is_cancelled(job)).map(|(number, _)| *number);
                let jobs: Vec<LeaseId> = jobs.collect();
                self.discard(now, worker, &jobs);
            }
            Message::Collect(_, collection, ref leases) => {
                process.asked.insert(collection, leases.clone());
                self.send_sums(now, worker);
            }
            _ => process.heard_s = now,
        }
        true
    }

    fn discard(&mut self, now: f64, worker: WorkerId, jobs: &[LeaseId]) {
        for job in jobs {
            self.processes[worker.slot()].jobs.remove(job);
            self.workers.cancel(worker, *job);
        }
        self.workers.settle(now);
    }
}

impl<T: TaskTimes> Cluster for RemoteCluster<'_, T> {
    fn start(&mut self, now: f64, worker: WorkerId) -> Option<MachineId> {
        self.stop(now, worker);
        let count = self.processes.len() as u64;
        let process = &mut self.processes[worker.slot()];
        process.machine += if self.network.replaces() { count } else { 0 };
        process.starts += 1;
        process.number = Some(process.starts);
        let number = process.starts;
        self.events.add(now, (worker, ClusterEvent::Tick(number)));
        None
    }

    fn stop(&mut self, now: f64, worker: WorkerId) -> bool {
        let process = &mut self.processes[worker.slot()];
        (process.number, process.session) = (None, None);
        for _ in std::mem::take(&mut process.jobs) {
            self.workers.lose(now, worker);
        }
        self.workers.interrupt(now, worker);
        false
    }

    fn change(&mut self, now: f64, change: Change) {
        self.workers.change(now, change);
    }

    fn begins(&mut self, iteration: u64) {
        self.workers.begins(iteration);
    }

    fn mean(&self, worker: WorkerId, of_laws: &[f64]) -> f64 {
        self.workers.mean(worker, of_laws)
    }

    fn fuses(&self, worker: WorkerId) -> bool {
        self.workers.fuses(worker)
    }

    fn assign(&mut self, now: f64, worker: WorkerId, lease: Lease) {
        let open = self.coordinator.sessions.get_mut(&worker).expect("only workers that are present get leases");
        open.collections.extend(lease.own.map(|own| (own, vec![lease.id])));
        let message = Message::Assign(open.name, lease);
        self.send(now, worker, &message);
    }

    fn end(&mut self, now: f64, worker: WorkerId, lease: &Lease, outcome: TaskOutcome, _is_computed: bool) {
        let Some(open) = self.coordinator.sessions.get_mut(&worker) else { return };
        if let Some(own) = &lease.own {
            open.collections.remove(own);
        }
        if outcome == TaskOutcome::Cancelled {
            let message = Message::Cancel(open.name, lease.id);
            self.send(now, worker, &message);
        }
    }

    fn collect(&mut self, now: f64, Collection { worker, id, leases }: Collection) {
        let leases: Vec<LeaseId> = leases.into_iter().map(|lease| lease.id).collect();
        let open = self.coordinator.sessions.get_mut(&worker).expect("only workers that are present are asked");
        open.collections.remove(&id);
        if !leases.is_empty() {
            open.collections.insert(id, leases.clone());
            let message = Message::Collect(open.name, id, leases);
            self.send(now, worker, &message);
        }
    }

    fn delivers(&self) -> bool {
        true
    }

    fn close(&mut self, now: f64, worker: WorkerId) -> Option<f64> {
        // A worker may be expelled after it has left.
        let open = self.coordinator.sessions.remove(&worker)?;
        self.send(now, worker, &Message::Gone(open.name));
        None
    }

    fn settle(&mut self, _now: f64) {}

    fn next_at(&mut self) -> Option<f64> {
        let event = self.events.next_at();
        let computed = self.workers.next_at();
        event.into_iter().chain(computed).min_by(f64::total_cmp)
    }

    fn pop(&mut self, engine: &Engine, observer: &mut impl Observer) -> Option<(f64, Occurrence<'_>)> {
        let at = self.next_at()?;
        if self.events.next_at() != Some(at) {
            return Some((self.computed(), Occurrence::Unnoticed));
        }
        let (at, (worker, event)) = self.events.pop()?;
        let occurrence = match event {
            ClusterEvent::Arrival(message) if message.direction() == Direction::ToWorker => {
                let accepted = self.receive(at, worker, &message);
                observer.message(at, engine, worker, &message, accepted);
                Occurrence::Unnoticed
            }
            ClusterEvent::Arrival(message) => {
                let (accepted, occurrence) = self.coordinate(at, engine, worker, &message);
                observer.message(at, engine, worker, &message, accepted);
                occurrence
            }
            ClusterEvent::Tick(process) => {
                self.tick(at, worker, process);
                Occurrence::Unnoticed
            }
            ClusterEvent::Silence(session) => self.check_silence(at, worker, session),
        };
        Some((at, occurrence))
    }

    fn crash(&mut self) -> bool {
        self.coordinator.is_down = true;
        self.coordinator.sessions.clear();
        true
    }

    fn restart(&mut self, machines: BTreeMap<WorkerId, MachineId>) {
        let restarts = self.coordinator.restarts + 1;
        self.coordinator =
            Coordinator { restarts, machines, opened: self.coordinator.opened, ..Coordinator::default() };
    }
}
