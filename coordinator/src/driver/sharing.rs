//! Steps whose vectors workers exchange in shards among each other.

use ata_types::{CollectionId, WorkerId};
use ata_wire::{Collection, SessionToken, Shard};

use super::Driver;
use super::collections::Member;
use super::sessions::random_token;
use super::vectors::Asked;

impl Driver {
    /// Asks those of the workers that exchange their vectors in shards, if that is shorter. Returns the others.
    pub(super) fn collect_in_shards(&mut self, asked: Vec<Asked>) -> Vec<Asked> {
        let members = self.members(&asked);
        let is_new = asked.iter().all(|(_, collection, _)| !self.collections.has(*collection));
        let links = self.engine.links();
        let is_worth_it = self.exchanges.are_worth_it(&members, links);
        let predicted_s = links.times().shards_s(&links.times().of(members.iter().copied()));
        if !is_new || !is_worth_it || !self.collections.may_share(members.len()) {
            return asked;
        }
        let Ok(key) = random_token() else { return asked };
        let (shared, apart): (Vec<Asked>, Vec<Asked>) =
            asked.into_iter().partition(|(worker, ..)| members.contains(worker));
        let mut members = Vec::new();
        for (worker, collection, leases) in shared {
            let address = self.sessions.of_worker(worker).and_then(|session| session.peer_address().cloned());
            let leases = self.with_tasks(worker, &leases);
            members.extend(address.map(|address| Member { worker, collection, leases, address }));
        }
        let requests = self.collections.ask_in_shards(self.engine.iteration(), members, key);
        let members = requests.iter().map(|(worker, request)| (*worker, request.id)).collect();
        self.exchanges.begin(members, predicted_s);
        tracing::debug!(members = requests.len(), "vectors are exchanged in shards");
        for (worker, request) in requests {
            self.request(worker, vec![request]);
        }
        apart
    }

    /// The workers that may exchange their vectors in shards in this iteration.
    fn members(&mut self, asked: &[Asked]) -> Vec<WorkerId> {
        // The units of the first iteration are those of the vector that comes first.
        if !self.exchanges.is_due(self.engine.iteration()) || self.steps.units().is_none() {
            return Vec::new();
        }
        let workers = asked.iter().map(|(worker, ..)| *worker);
        let is_reachable = |worker: &WorkerId| {
            self.sessions.of_worker(*worker).is_some_and(|session| session.peer_address().is_some())
        };
        let reachable: Vec<WorkerId> = workers.filter(is_reachable).collect();
        self.exchanges.fit(reachable)
    }

    /// A member of an exchange could not work with another one.
    pub(super) fn exchange_failed(
        &mut self,
        token: SessionToken,
        collection: CollectionId,
        place: usize,
        reason: &str,
    ) {
        self.hear(token);
        let Ok(session) = self.sessions.of_token(token) else { return };
        let worker = session.worker();
        if self.exchanges.accuse(worker, collection, place) {
            tracing::warn!(%worker, reason, "vectors cannot be exchanged in shards");
            if self.collections.is_shared(collection) {
                return self.break_exchange(reason);
            }
            // The step is taken, and the others may have its parameters.
            self.exchanges.fail(self.engine.iteration());
        }
        self.send_whole(worker);
    }

    /// Ends an exchange in shards that does not go on. Its vectors are sent apart.
    pub(super) fn check_exchange(&mut self) {
        let awaited = self.collections.awaited();
        // While others are awaited, chunks in shards are not read.
        let is_read = |chunk: u64| self.paced.may_pass(chunk, Shard::ALL);
        let awaited = awaited.filter(|(chunk, _)| is_read(*chunk));
        if self.exchanges.stalls(self.now_s, awaited.map(|(chunk, _)| chunk))
            && let Some((_, worker)) = awaited
        {
            tracing::warn!(%worker, "vectors cannot be exchanged in shards with this worker");
            self.exchanges.exclude(worker);
            self.break_exchange("it does not go on");
        }
    }

    /// An exchange in shards failed.
    pub(super) fn break_exchange(&mut self, why: &str) {
        let members = self.exchanges.fail(self.engine.iteration());
        if !members.is_empty() {
            tracing::info!(why, "an exchange in shards becomes a star");
            self.send_apart(members);
        }
    }

    /// A lease of an exchange in shards ended.
    pub(super) fn end_exchange(&mut self) {
        let members = self.exchanges.end();
        self.send_apart(members);
    }

    /// Vectors that are exchanged in shards are sent apart from now on, and whole parameters to all members.
    fn send_apart(&mut self, members: Vec<(WorkerId, CollectionId)>) {
        let requests = self.collections.ask_apart();
        for (worker, id) in members {
            let iteration = self.engine.iteration();
            self.request(worker, vec![Collection { id, iteration, leases: Vec::new(), first_chunk: 0, shards: None }]);
            self.send_whole(worker);
        }
        for (worker, request) in requests {
            self.request(worker, vec![request]);
        }
        self.order_again();
    }

    /// A worker is gone, and the others no longer get what it had for them.
    pub(super) fn leave_exchange(&mut self, worker: WorkerId) {
        if self.exchanges.has(worker) {
            self.break_exchange("a member is lost");
        }
        self.exchanges.forget(worker);
    }

    /// Sends a worker whole parameters in place of those that it was sent in part.
    fn send_whole(&mut self, worker: WorkerId) {
        if let Some(session) = self.sessions.of_worker(worker) {
            session.send_whole(self.steps.parameters(), self.steps.next());
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
}
