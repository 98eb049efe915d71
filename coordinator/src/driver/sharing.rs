//! Steps whose vectors workers exchange in shards among each other.

use std::collections::BTreeMap;

use ata_record::RefusalKind;
use ata_scheduler::Event;
use ata_types::{Iteration, LeaseId, VectorId, WorkerId};
use ata_wire::{Collection, ExchangeReport, PeerAddress, SessionToken, Shard, ToWorker};

use super::Driver;
use super::collections::{Member, Requests};
use super::exchanges::{ExchangeMember, Heard, Probe};
use super::sessions::random_token;
use super::vectors::Asked;

impl Driver {
    /// Asks those of the workers that exchange their vectors in shards, if that is shorter. Returns the others.
    pub(super) fn collect_in_shards(&mut self, asked: Vec<Asked>) -> Vec<Asked> {
        let workers = self.members(&asked);
        let is_new = asked.iter().all(|(_, collection, _)| !self.collections.has(*collection));
        let is_worth_it = self.exchanges.plan.is_worth_it(&workers, self.engine.links());
        if !is_new || !is_worth_it || !self.collections.may_share(workers.len()) {
            return asked;
        }
        let Some(keys) = keys(workers.len()) else { return asked };
        let (shared, apart): (Vec<Asked>, Vec<Asked>) =
            asked.into_iter().partition(|(worker, ..)| workers.contains(worker));
        let (mut members, mut machines) = (Vec::new(), Vec::new());
        for (worker, collection, leases) in shared {
            let leases = self.with_tasks(worker, &leases);
            if let Some(session) = self.sessions.of_worker(worker)
                && let Some(address) = session.peer_address().cloned()
            {
                machines.push(session.machine());
                members.push(Member { worker, collection, leases, address });
            }
        }
        let (iteration, times) = (self.engine.iteration(), self.engine.links().times());
        let timeout_s = self.exchanges.plan.chunk_timeout_s(&workers, self.collections.chunks(), times);
        let predicted_s = times.shards_s(&times.of(workers));
        let requests = self.collections.ask_in_shards(iteration, members, &keys, timeout_s);
        let member = |((worker, request), machine): (&(WorkerId, Collection), _)| ExchangeMember {
            worker: *worker,
            machine,
            vector: request.id,
            has_parameters: false,
        };
        let exchanged = requests.iter().filter(|(_, request)| request.shards.is_some());
        let exchanged = exchanged.zip(machines).map(member).collect();
        self.exchanges.begin(iteration, exchanged, timeout_s, predicted_s);
        tracing::debug!(requests = requests.len(), timeout_s, "vectors are exchanged in shards");
        for (worker, request) in requests {
            self.request(worker, request.into());
        }
        apart
    }

    /// The workers that may exchange their vectors in shards in this iteration.
    fn members(&mut self, asked: &[Asked]) -> Vec<WorkerId> {
        // The units of the first iteration are known only once all vectors are announced.
        let iteration = self.engine.iteration();
        if !self.exchanges.plan.is_due(iteration) || self.steps.units().is_none() {
            return Vec::new();
        }
        let workers = asked.iter().map(|(worker, ..)| *worker);
        let reachable: Vec<WorkerId> = workers.filter(|worker| self.peer_address(*worker).is_some()).collect();
        self.exchanges.fit(iteration, &reachable)
    }

    fn peer_address(&mut self, worker: WorkerId) -> Option<PeerAddress> {
        self.sessions.of_worker(worker).and_then(|session| session.peer_address().cloned())
    }

    /// Has a worker connect to another one, if it is not known whether it can and their vectors may be exchanged in shards.
    pub(super) fn probe(&mut self) {
        if !self.exchanges.plan.is_allowed() || self.collections.are_separate() || self.is_ending {
            return;
        }
        let iteration = self.engine.iteration();
        let working = self.sessions.ready().filter(|session| !session.is_idle(iteration));
        let ready: BTreeMap<WorkerId, PeerAddress> =
            working.filter_map(|session| Some((session.worker(), session.peer_address()?.clone()))).collect();
        let workers: Vec<WorkerId> = ready.keys().copied().collect();
        if !self.exchanges.plan.is_worth_it(&workers, self.engine.links()) {
            return;
        }
        // One machine's loopback is another one's own.
        let may_meet = |one: WorkerId, other: WorkerId| ready[&one].is_loopback() == ready[&other].is_loopback();
        let next = self.exchanges.next_probe(self.now_s, iteration, &workers, may_meet);
        if let Some(Probe { id, from, to, .. }) = next {
            self.sessions.send(from, ToWorker::Reach { probe: id, address: ready[&to].clone() });
        }
    }

    /// A worker has tried to connect to another one.
    pub(super) fn reached(&mut self, token: SessionToken, probe: u64, outcome: Result<(), String>) {
        self.hear(token);
        let Ok(session) = self.sessions.of_token(token) else { return };
        let worker = session.worker();
        let other = self.exchanges.reached(self.engine.iteration(), worker, probe, outcome.is_ok());
        if let (Some(other), Err(reason)) = (other, outcome) {
            tracing::info!(%worker, %other, reason, "two workers cannot exchange vectors in shards");
        }
        self.probe();
    }

    /// A member of an exchange says how it went.
    pub(super) fn exchange_reported(&mut self, token: SessionToken, report: &ExchangeReport) {
        self.hear(token);
        let Ok(session) = self.sessions.of_token(token) else { return };
        let worker = session.worker();
        let heard = self.exchanges.heard(self.now_s, self.engine.iteration(), worker, report);
        let Some(Heard { fails, proven }) = heard else {
            if report.has_failed {
                self.send_whole(worker, true);
            }
            return;
        };
        for (fault, reason) in report.members.iter().filter_map(|member| member.fault.as_ref()) {
            tracing::warn!(%worker, ?fault, reason, "vectors cannot be exchanged in shards");
        }
        self.notify(Event::UploadResumed { worker });
        if let Some(iteration) = fails {
            self.break_exchange(iteration, "a member could not work with another one");
        }
        if let Some((accused, reason)) = proven {
            self.refuse(accused, RefusalKind::WrongSize, &reason);
            self.notify(Event::Violation { worker: accused });
        }
    }

    /// Ends exchanges in shards that do not go on. Their vectors are sent apart.
    pub(super) fn check_exchange(&mut self) {
        let (now_s, chunks) = (self.now_s, self.collections.chunks());
        for iteration in self.exchanges.overdue(now_s, self.engine.iteration(), chunks) {
            self.break_exchange(iteration, "members do not say that they have its parameters");
        }
        // While others are awaited, chunks in shards are not read.
        let awaited = self.collections.awaited().filter(|(chunk, _)| self.paced.may_pass(*chunk, Shard::ALL));
        if let Some(iteration) = self.exchanges.stalls(now_s, awaited) {
            self.break_exchange(iteration, "it does not go on");
        }
        let within_s = self.exchanges.begins_within_s();
        if let Some((worker, _)) =
            self.overdue_vectors(within_s).into_iter().find(|(_, id)| self.collections.is_shared(*id))
            && let Some(iteration) = self.exchanges.suspect(worker)
        {
            self.break_exchange(iteration, "a member that has computed does not begin");
        }
        self.probe();
    }

    /// An exchange in shards failed.
    pub(super) fn break_exchange(&mut self, iteration: Iteration, why: &str) {
        let members = self.exchanges.fail(self.engine.iteration(), iteration);
        if !members.is_empty() {
            tracing::info!(why, "an exchange in shards becomes a star");
            self.send_apart(iteration, &members);
        }
    }

    /// A lease of the exchange whose vectors are collected ended.
    pub(super) fn end_exchange(&mut self) {
        let iteration = self.engine.iteration();
        let members = self.exchanges.end(iteration);
        self.send_apart(iteration, &members);
    }

    /// The members of an exchange leave it. They send their vectors apart, if these have not arrived, and those who lack its parameters get
    /// all of them.
    fn send_apart(&mut self, iteration: Iteration, members: &[ExchangeMember]) {
        let is_stepped = iteration < self.engine.iteration();
        for &ExchangeMember { worker, vector, has_parameters, .. } in members {
            self.request(worker, Requests::withdrawal(vector));
            if !has_parameters {
                self.send_whole(worker, is_stepped);
                self.notify(Event::UploadResumed { worker });
            }
        }
        if is_stepped {
            return;
        }
        for (worker, request) in self.collections.ask_apart() {
            self.request(worker, request.into());
        }
        self.order_again();
    }

    /// A worker is gone, and the others no longer get what it had for them.
    pub(super) fn leave_exchange(&mut self, worker: WorkerId) {
        for iteration in self.exchanges.of(worker) {
            self.break_exchange(iteration, "a member is lost");
        }
        self.exchanges.forget(worker);
    }

    /// A vector that is exchanged in shards did not arrive whole. Any member may be at fault, which a star finds out.
    pub(super) fn break_current_exchange(&mut self, why: &str) {
        self.break_exchange(self.engine.iteration(), why);
    }

    /// Sends a worker whole parameters in place of those that it was sent in part: of the current iteration if that has begun with them, or
    /// of the next one, if they are being written.
    fn send_whole(&mut self, worker: WorkerId, is_stepped: bool) {
        let current = Some(self.steps.parameters()).filter(|_| is_stepped);
        let sets = self.steps.next().into_iter().chain(current);
        if let Some(session) = self.sessions.of_worker(worker) {
            session.send_whole(sets);
        }
    }

    /// Orders the step that is under way again, if its vectors have other names now.
    fn order_again(&mut self) {
        let Some((plan, collections)) = self.steps.ordered() else { return };
        // The engine orders it itself once others have computed what is lost.
        if collections.iter().all(|collection| self.collections.has(*collection)) {
            let collections = self.collections.ordered(&collections);
            self.step(plan.with(collections));
        }
    }

    /// Whether a lease is of parameters that other workers pass on to its worker.
    pub(super) fn awaits_parameters(&self, worker: WorkerId, iteration: Iteration) -> bool {
        self.exchanges.awaits(worker, iteration)
    }

    /// Vectors whose leases have been computed for so many seconds, and which are not announced.
    pub(super) fn overdue_vectors(&mut self, timeout_s: f64) -> Vec<(WorkerId, VectorId)> {
        let is_announced = |id: &VectorId| self.parked.iter().any(|parked| parked.id() == *id);
        let computed = |id: &VectorId, lease: &LeaseId| self.results.tasks(*lease).is_some() && !is_announced(id);
        self.collections.overdue(self.now_s, timeout_s, computed)
    }
}

/// For each two of so many members, a secret that only they get to know; `None` without randomness.
fn keys(members: usize) -> Option<Vec<Vec<SessionToken>>> {
    let mut keys: Vec<Vec<SessionToken>> = Vec::new();
    for place in 0..members {
        let known = keys.iter().map(|of_another| Some(of_another[place]));
        let row: Option<Vec<SessionToken>> =
            known.chain((place..members).map(|_| random_token().ok())).take(members).collect();
        keys.push(row?);
    }
    Some(keys)
}
