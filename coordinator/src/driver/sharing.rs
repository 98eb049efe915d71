//! Steps in which workers exchange their vectors in shards.

use std::collections::BTreeMap;

use ata_record::RefusalKind;
use ata_scheduler::{Collection, Event};
use ata_types::{Iteration, WorkerId};
use ata_wire::{ExchangeReport, PeerAddress, SessionToken, Stripe, ToWorker, VectorRequest};

use super::Driver;
use super::sessions::random_token;
use super::steps::StepPlan;
use crate::reduction::exchanges::{ExchangeMember, Heard, Probe};

impl Driver {
    /// Requests vectors in shards from the workers that may exchange them, if that is faster than a star. Returns the other collections.
    pub(super) fn collect_in_shards(&mut self, iteration: Iteration, asked: Vec<Collection>) -> Vec<Collection> {
        let workers = self.members(iteration, &asked);
        let is_new = asked.iter().all(|asked| !self.reduction.has(asked.id));
        let is_worth_it = self.exchanges.plan.is_worth_it(&workers, self.engine.links());
        if !is_new || !is_worth_it || !self.reduction.may_share(workers.len()) {
            return asked;
        }
        let Some(keys) = keys(workers.len()) else { return asked };
        let (shared, apart): (Vec<_>, Vec<_>) = asked.into_iter().partition(|asked| workers.contains(&asked.worker));
        let with_address = |collection: Collection| {
            let address = self.sessions.of_worker(collection.worker)?.peer_address.clone()?;
            Some((collection, address))
        };
        let members = shared.into_iter().filter_map(with_address).collect();
        let times = self.engine.links().times();
        let timeout_s = self.exchanges.plan.chunk_timeout_s(&workers, self.reduction.chunks, times);
        let predicted_s = times.shards_s(&times.of(workers));
        let requests = self.reduction.ask_in_shards(iteration, members, &keys, timeout_s);
        let member = |(worker, request): &(WorkerId, VectorRequest)| {
            let machine = self.sessions.of_worker(*worker)?.machine;
            Some(ExchangeMember { worker: *worker, machine, vector: request.id, has_parameters: false })
        };
        let exchanged = requests.iter().filter(|(_, request)| request.shards.is_some());
        let exchanged = exchanged.filter_map(member).collect();
        self.exchanges.begin(iteration, exchanged, timeout_s, predicted_s);
        tracing::debug!(requests = requests.len(), timeout_s, "vectors are exchanged in shards");
        for (worker, request) in requests {
            self.request(worker, &[], vec![request]);
        }
        apart
    }

    /// Returns the workers that may exchange their vectors in shards in this iteration.
    fn members(&mut self, iteration: Iteration, asked: &[Collection]) -> Vec<WorkerId> {
        // The units of the first iteration are known only once all vectors are announced.
        if !self.exchanges.plan.is_due(iteration) || self.steps.units.is_none() {
            return Vec::new();
        }
        let mut is_reachable = |worker| self.sessions.of_worker(worker).is_some_and(|it| it.peer_address.is_some());
        let workers = asked.iter().map(|asked| asked.worker);
        let reachable: Vec<WorkerId> = workers.filter(|worker| is_reachable(*worker)).collect();
        self.exchanges.able_members(iteration, &reachable)
    }

    /// Asks a worker to connect to another one, if it is unknown whether it can and their vectors may be exchanged in shards.
    pub(super) fn probe(&mut self) {
        if !self.exchanges.plan.is_allowed() || self.reduction.are_separate || self.is_ending {
            return;
        }
        let iteration = self.iteration();
        let working = self.sessions.ready().filter(|session| !session.is_idle(iteration));
        let ready: BTreeMap<WorkerId, PeerAddress> =
            working.filter_map(|session| Some((session.worker, session.peer_address.clone()?))).collect();
        let workers: Vec<WorkerId> = ready.keys().copied().collect();
        if !self.exchanges.plan.is_worth_it(&workers, self.engine.links()) {
            return;
        }
        // Workers on different machines cannot reach each other at loopback addresses.
        let may_meet = |one: WorkerId, other: WorkerId| ready[&one].is_loopback() == ready[&other].is_loopback();
        let next = self.exchanges.next_probe(self.now_s, iteration, &workers, may_meet);
        if let Some(Probe { id, from, to, .. }) = next {
            self.sessions.send(from, ToWorker::Reach { probe: id, address: ready[&to].clone() });
        }
    }

    /// Handles the result of a worker's attempt to connect to another one.
    pub(super) fn reached(&mut self, worker: WorkerId, probe: u64, outcome: Result<(), String>) {
        let other = self.exchanges.reached(self.iteration(), worker, probe, outcome.is_ok());
        if let (Some(other), Err(reason)) = (other, outcome) {
            tracing::info!(%worker, %other, reason, "two workers cannot exchange vectors in shards");
        }
        self.probe();
    }

    pub(super) fn exchange_reported(&mut self, worker: WorkerId, report: &ExchangeReport) {
        let heard = self.exchanges.heard(self.now_s, self.iteration(), worker, report);
        let Some(Heard { fails, proven }) = heard else {
            if report.has_failed {
                self.send_whole(worker, true);
            }
            return;
        };
        for (fault, reason) in report.members.iter().filter_map(|member| member.fault.as_ref()) {
            tracing::warn!(%worker, ?fault, reason, "vectors cannot be exchanged in shards");
        }
        self.notify(Event::Resumed { worker });
        if let Some(iteration) = fails {
            self.break_exchange(iteration, "a member could not work with another one");
        }
        if let Some((accused, reason)) = proven {
            self.refuse(accused, RefusalKind::WrongSize, &reason);
            self.notify(Event::Violation { worker: accused });
        }
    }

    /// Ends exchanges in shards that make no progress. Their vectors are sent separately.
    pub(super) fn check_exchange(&mut self) {
        let (now_s, iteration, chunks) = (self.now_s, self.iteration(), self.reduction.chunks);
        for iteration in self.exchanges.overdue(now_s, iteration, chunks) {
            self.break_exchange(iteration, "members do not say that they have its parameters");
        }
        // Chunks in shards are not read while the vectors of other workers are awaited.
        let awaited = self.reduction.awaited().filter(|(chunk, _)| self.paced.may_pass(*chunk, Stripe::ALL));
        if let Some(iteration) = self.exchanges.stalls(now_s, awaited) {
            self.break_exchange(iteration, "it does not go on");
        }
        let within_s = self.exchanges.begins_within_s();
        if let Some((worker, _)) =
            self.reduction.overdue(now_s, within_s).into_iter().find(|(_, id)| self.reduction.is_shared(*id))
            && let Some(iteration) = self.exchanges.suspect(worker)
        {
            self.break_exchange(iteration, "a member that has computed does not begin");
        }
        self.probe();
    }

    pub(super) fn break_exchange(&mut self, iteration: Iteration, why: &str) {
        let members = self.exchanges.fail(self.iteration(), iteration);
        if !members.is_empty() {
            tracing::info!(why, "an exchange in shards becomes a star");
            self.send_apart(iteration, &members);
        }
    }

    /// Ends the current exchange because one of its leases ended.
    pub(super) fn end_exchange(&mut self) {
        let iteration = self.iteration();
        let members = self.exchanges.end(iteration);
        self.send_apart(iteration, &members);
    }

    /// Withdraws an exchange from its members. They send their vectors separately, if these have not arrived, and members that lack the
    /// resulting parameters are sent all of them.
    fn send_apart(&mut self, iteration: Iteration, members: &[ExchangeMember]) {
        let is_stepped = iteration < self.iteration();
        for &ExchangeMember { worker, vector, has_parameters, .. } in members {
            self.request(worker, &[vector], Vec::new());
            if !has_parameters {
                self.send_whole(worker, is_stepped);
                self.notify(Event::Resumed { worker });
            }
        }
        if is_stepped {
            return;
        }
        for (worker, request) in self.reduction.ask_apart() {
            self.request(worker, &[], vec![request]);
        }
        self.order_again();
    }

    /// Ends the exchanges of a lost worker, since it no longer passes anything on.
    pub(super) fn leave_exchange(&mut self, worker: WorkerId) {
        for iteration in self.exchanges.of(worker) {
            self.break_exchange(iteration, "a member is lost");
        }
        self.exchanges.forget(worker);
    }

    /// Sends a worker whole parameters in place of the ones that it was sent in part: those of the current iteration if `is_stepped`, and
    /// those of the next one if they are being written.
    fn send_whole(&mut self, worker: WorkerId, is_stepped: bool) {
        let current = Some(&self.steps.parameters).filter(|_| is_stepped);
        let sets = self.steps.next.iter().chain(current);
        if let Some(session) = self.sessions.of_worker(worker) {
            session.send_whole(sets);
        }
    }

    /// Repeats the order of the current step, if the names of its vectors have changed.
    fn order_again(&mut self) {
        let Some(plan) = self.steps.ordered.clone() else { return };
        // If a collection is lost, the engine itself orders the step once other workers have computed its tasks.
        if plan.collections.iter().all(|collection| self.reduction.has(*collection)) {
            let vectors = self.reduction.ordered(&plan.collections);
            self.step(StepPlan { vectors, ..plan });
        }
    }
}

/// Returns a secret for each pair of members, which only these two receive; `None` if no random numbers are available.
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
