//! The coordinator's side of the network.

use std::collections::BTreeMap;

use ata_scheduler::{Engine, Event, Report};
use ata_types::{CollectionId, LeaseId, MachineId, WorkerId};

use super::{ClusterEvent, Coordinator, Occurrence, OpenSession, RemoteCluster, SILENCE_S};
use crate::network::{Message, VirtualSession};
use crate::times::TaskTimes;

impl<T: TaskTimes> RemoteCluster<'_, T> {
    /// Handles a message that arrives at the coordinator; returns whether it counts, and what follows from it.
    pub(super) fn coordinate(
        &mut self,
        now: f64,
        engine: &Engine,
        worker: WorkerId,
        message: &Message,
    ) -> (bool, Occurrence<'_>) {
        let session = match *message {
            _ if self.coordinator.is_down => return (false, Occurrence::Unnoticed),
            Message::Hello(process, machine) => return self.hello(now, worker, machine, process),
            Message::Heartbeat(session)
            | Message::Done(session, ..)
            | Message::Failed(session, _)
            | Message::Sum(session, ..)
            | Message::GivenUp(session, _) => session,
            _ => unreachable!("only workers send to the coordinator"),
        };
        let open = self.coordinator.sessions.get_mut(&worker).filter(|open| open.name == session);
        let is_open = open.map(|open| open.heard_s = now).is_some();
        if let Message::Heartbeat(_) = message {
            let answer = if is_open { Message::Alive(session) } else { Message::Gone(session) };
            self.send(now, worker, &answer);
            self.ask_again(now, worker, session);
        }
        let occurrence = match message {
            _ if !is_open => Occurrence::Unnoticed,
            Message::Failed(_, lease) => Occurrence::Report(worker, *lease, Report::Failed { uncomputable: false }),
            Message::Done(_, lease, busy_s) => {
                self.arrived.clone_from(busy_s);
                Occurrence::Report(worker, lease.id, Report::Done { busy_s: &self.arrived, waited_s: 0.0 })
            }
            Message::Sum(_, collection, leases) => return self.collected(engine, worker, *collection, leases),
            Message::GivenUp(_, collection) => return self.given_up(worker, *collection),
            _ => Occurrence::Unnoticed,
        };
        (is_open, occurrence)
    }

    /// Asks a worker again for what it has not delivered, since a message may be lost.
    fn ask_again(&mut self, now: f64, worker: WorkerId, session: VirtualSession) {
        let open = self.coordinator.sessions.get(&worker).filter(|open| open.name == session);
        let collections = open.map_or_else(BTreeMap::new, |open| open.collections.clone());
        for (collection, leases) in collections {
            self.send(now, worker, &Message::Collect(session, collection, leases));
        }
    }

    /// Handles a sum that arrives. It counts if it has exactly the leases that are currently asked for, and all of them were reported.
    fn collected(
        &mut self,
        engine: &Engine,
        worker: WorkerId,
        collection: CollectionId,
        leases: &[LeaseId],
    ) -> (bool, Occurrence<'static>) {
        let Some(open) = self.coordinator.sessions.get_mut(&worker) else { return (false, Occurrence::Unnoticed) };
        let is_expected = open.collections.get(&collection).is_some_and(|expected| expected == leases)
            && leases.iter().all(|lease| engine.lease(worker, *lease).is_none());
        if !is_expected {
            return (false, Occurrence::Unnoticed);
        }
        open.collections.remove(&collection);
        (true, Occurrence::Delivered(worker, collection))
    }

    fn given_up(&mut self, worker: WorkerId, collection: CollectionId) -> (bool, Occurrence<'static>) {
        let open = self.coordinator.sessions.get_mut(&worker);
        match open.and_then(|open| open.collections.remove(&collection)) {
            Some(_) => (true, Occurrence::Event(Event::CollectionFailed { worker, collection })),
            None => (false, Occurrence::Unnoticed),
        }
    }

    /// Handles a worker's request for a session. Obstacles are removed first, one at a time.
    fn hello(&mut self, now: f64, worker: WorkerId, machine: MachineId, process: u64) -> (bool, Occurrence<'static>) {
        let Coordinator { restarts, opened, sessions, machines, .. } = &mut self.coordinator;
        let again = ClusterEvent::Arrival(Message::Hello(process, machine));
        match sessions.get(&worker) {
            // Another process has a session, whether alive or not: this process tries again.
            Some(open) if open.process != process => return (false, Occurrence::Unnoticed),
            Some(_) => {
                sessions.remove(&worker);
                self.events.add_first(now, (worker, again));
                return (true, Occurrence::Event(Event::WorkerLost { worker }));
            }
            None => {}
        }
        if machines.insert(worker, machine).is_some_and(|before| before != machine) {
            self.events.add_first(now, (worker, again));
            return (true, Occurrence::Event(Event::WorkerForgotten { worker }));
        }
        let session = VirtualSession { restarts: *restarts, number: *opened };
        *opened += 1;
        sessions.insert(worker, OpenSession { name: session, process, heard_s: now, collections: BTreeMap::new() });
        self.send(now, worker, &Message::Welcome(process, session));
        self.events.add(now + SILENCE_S, (worker, ClusterEvent::Silence(session)));
        (true, Occurrence::Joined(worker, machine))
    }

    pub(super) fn check_silence(&mut self, now: f64, worker: WorkerId, session: VirtualSession) -> Occurrence<'static> {
        let sessions = &mut self.coordinator.sessions;
        let Some(open) = sessions.get(&worker).filter(|open| open.name == session) else {
            return Occurrence::Unnoticed;
        };
        let until_s = open.heard_s + SILENCE_S;
        if now >= until_s {
            sessions.remove(&worker);
            return Occurrence::Event(Event::WorkerLost { worker });
        }
        self.events.add(until_s, (worker, ClusterEvent::Silence(session)));
        Occurrence::Unnoticed
    }
}
