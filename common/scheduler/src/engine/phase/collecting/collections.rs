//! Gradients that workers keep until their sum is collected.
//!
//! A worker reports each lease as it is done, and keeps the gradients. Once all tasks are handed out or, if the first results make
//! the step, those results are known, each worker is asked for one vector, the sum over its leases: a collection. If a lease of a
//! collection ends without a result, the worker is asked again, for the remaining ones. If a worker is lost before its collection
//! is delivered, the results in it are lost, and others compute them again.

use std::collections::BTreeMap;

use super::{Collecting, Flow};
use crate::engine::{AcceptedResult, Blame, Collection, Effect, Shared};
use ata_types::{CollectionId, Lease, LeaseId, TaskOutcome, TaskRanges, WorkerId};

#[derive(Debug, Default)]
pub(super) struct Collections {
    /// The leases that are in no collection yet, in the order in which they were assigned.
    unasked: Vec<(WorkerId, Lease)>,
    /// The collections that are not delivered, with their leases.
    open: BTreeMap<(WorkerId, CollectionId), Vec<Lease>>,
    delivered: Vec<CollectionId>,
    /// The results that were reported, in the order of the reports.
    kept: Vec<KeptResult>,
    /// Failures of collections since the last one was delivered.
    blame: Blame,
    /// Whether the step was ordered, with all of these collections.
    is_stepping: bool,
}

#[derive(Clone, Copy, Debug)]
struct KeptResult {
    result: AcceptedResult,
    is_delivered: bool,
}

impl Collections {
    fn of(&mut self, worker: WorkerId) -> impl Iterator<Item = (CollectionId, &mut Vec<Lease>)> {
        let all = (worker, CollectionId(0))..=(worker, CollectionId(u64::MAX));
        self.open.range_mut(all).map(|((_, id), leases)| (*id, leases))
    }

    /// Removes and returns results that their worker no longer has.
    fn take_lost(&mut self, is_lost: impl Fn(&AcceptedResult) -> bool) -> Vec<AcceptedResult> {
        let lost = self.kept.extract_if(.., |kept| !kept.is_delivered && is_lost(&kept.result));
        lost.map(|kept| kept.result).collect()
    }
}

impl Collecting {
    pub(super) fn will_collect(&mut self, worker: WorkerId, lease: Lease) {
        self.collections.unasked.push((worker, lease));
    }

    pub(super) fn keep(&mut self, result: AcceptedResult) {
        self.mode.take(result.lease.tasks);
        if self.mode.races {
            // It could also have been too late.
            self.will_collect(result.worker, result.lease);
        }
        self.collections.kept.push(KeptResult { result, is_delivered: false });
    }

    /// Takes a result, whose own collection was delivered, into the step.
    pub(super) fn take_own(&mut self, result: AcceptedResult) {
        self.mode.take(result.lease.tasks);
        self.collections.delivered.extend(result.lease.own);
        self.collections.kept.push(KeptResult { result, is_delivered: true });
    }

    /// Asks the workers for their sums, if there is nothing left to hand out, and leaving workers in any case.
    pub(crate) fn ask(&mut self, shared: &mut Shared) {
        let is_left = self.has_more() || self.mode.races;
        let leaving = &shared.roster.leaving;
        if self.collections.unasked.is_empty() || is_left && leaving.is_empty() {
            return;
        }
        let is_due = |(worker, _): &mut (WorkerId, Lease)| !is_left || leaving.contains(*worker);
        let mut unasked: Vec<_> = self.collections.unasked.extract_if(.., is_due).collect();
        if unasked.is_empty() {
            return;
        }
        unasked.sort_by_key(|(worker, _)| *worker);
        let mut asked = Vec::new();
        for group in unasked.chunk_by(|(a, _), (b, _)| a == b) {
            let (worker, id) = (group[0].0, shared.next_collection());
            let leases: Vec<Lease> = group.iter().map(|(_, lease)| *lease).collect();
            self.collections.open.insert((worker, id), leases.clone());
            asked.push(Collection { worker, id, leases });
        }
        shared.effects.push(Effect::Collect { iteration: self.number, collections: asked });
    }

    /// Returns whether the step needs sums that a worker has not delivered.
    pub(crate) fn awaits(&self, worker: WorkerId) -> bool {
        let Collections { unasked, open, .. } = &self.collections;
        unasked.iter().map(|(holder, _)| holder).chain(open.keys().map(|(holder, _)| holder)).any(|it| *it == worker)
    }

    /// Removes a lease that ended without a result from the collections of its worker, which is still present.
    pub(crate) fn withdraw(&mut self, shared: &mut Shared, worker: WorkerId, lease: LeaseId) {
        self.collections.unasked.retain(|(_, unasked)| unasked.id != lease);
        let is_in = |leases: &[Lease]| leases.iter().any(|held| held.id == lease);
        if let Some((id, leases)) = self.collections.of(worker).find(|(_, leases)| is_in(leases)) {
            leases.retain(|held| held.id != lease);
            let less = Collection { worker, id, leases: leases.clone() };
            shared.effects.push(Effect::Collect { iteration: self.number, collections: vec![less] });
        }
        self.collections.open.retain(|_, leases| !leases.is_empty());
    }

    pub(crate) fn delivered(&mut self, shared: &mut Shared, worker: WorkerId, collection: CollectionId) {
        let Some(leases) = self.collections.open.remove(&(worker, collection)) else { return };
        shared.results += 1;
        shared.roster.forgive(worker);
        self.collections.blame = Blame::default();
        self.collections.delivered.push(collection);
        for kept in self.collections.kept.iter_mut().filter(|kept| kept.result.worker == worker) {
            kept.is_delivered |= leases.contains(&kept.result.lease);
        }
    }

    /// Handles a collection that was refused: its worker failed, and others compute the tasks. Those of its leases that the worker is
    /// still computing will be in another collection.
    pub(crate) fn collection_failed(&mut self, shared: &mut Shared, worker: WorkerId, id: CollectionId) -> Flow {
        let Some(leases) = self.collections.open.remove(&(worker, id)) else { return Flow::Continue(()) };
        let lost = self.collections.take_lost(|result| leases.contains(&result.lease));
        let lost_s = lost.iter().map(|result| result.busy_s).sum();
        let is_held = |lease: &Lease| shared.leases.find(worker, lease.id).is_some();
        self.collections.unasked.extend(leases.into_iter().filter(is_held).map(|lease| (worker, lease)));
        self.collections.blame.add(worker);
        let blame = self.collections.blame.clone();
        self.lose_kept(shared, lost, TaskOutcome::Failed, Some(&blame));
        shared.strike(worker, lost_s, false);
        self.expel_if_due(shared, worker);
        self.recover(shared)
    }

    /// Handles the loss of a worker together with the gradients that it kept.
    pub(super) fn lose_collections(&mut self, shared: &mut Shared, worker: WorkerId) {
        self.collections.unasked.retain(|(holder, _)| *holder != worker);
        self.collections.open.retain(|(holder, _), _| *holder != worker);
        let lost = self.collections.take_lost(|result| result.worker == worker);
        self.lose_kept(shared, lost, TaskOutcome::Lost, None);
    }

    fn lose_kept(
        &mut self,
        shared: &mut Shared,
        lost: Vec<AcceptedResult>,
        outcome: TaskOutcome,
        blame: Option<&Blame>,
    ) {
        for result in lost {
            self.collections.is_stepping = false;
            shared.give_up_ahead();
            shared.discard(&result, outcome);
            self.mode.lose(result.lease.tasks);
            self.orphan(shared, result.lease.tasks, blame);
        }
    }

    /// Returns whether no collection was delivered since one failed. It is then no sign of success that workers compute.
    pub(super) fn are_collections_failing(&self) -> bool {
        self.collections.blame.attempts > 0
    }

    pub(crate) fn results(&self) -> impl Iterator<Item = &AcceptedResult> {
        self.collections.kept.iter().map(|kept| &kept.result)
    }

    /// Returns whether the step was ordered, and waits for the collections.
    pub(crate) fn is_stepping(&self) -> bool {
        self.collections.is_stepping
    }

    /// Orders the step from all collections, delivered or not.
    pub(super) fn order_step(&mut self, shared: &mut Shared) {
        let Collections { open, delivered, kept, is_stepping, .. } = &mut self.collections;
        *is_stepping = !open.is_empty();
        let kept_tasks = || kept.iter().map(|kept| kept.result.lease.tasks).collect::<TaskRanges>();
        shared.effects.push(Effect::Step {
            iteration: self.number,
            tasks: self.mode.step.map_or_else(|| kept_tasks().into_iter().collect(), |tasks| vec![tasks]),
            collections: delivered.iter().copied().chain(open.keys().map(|(_, collection)| *collection)).collect(),
            collected: kept.iter().map(|kept| (kept.result.worker, kept.result.lease)).collect(),
            lr_factor: self.decision.lr_factor,
            with_product: shared.policy.wants_gradient_product(),
        });
    }

    /// Takes the results of the step, which has all its collections.
    pub(super) fn take_kept(&mut self, shared: &mut Shared) -> Vec<AcceptedResult> {
        for (worker, _) in self.collections.open.keys() {
            shared.results += 1;
            shared.roster.forgive(*worker);
        }
        std::mem::take(&mut self.collections).kept.into_iter().map(|kept| kept.result).collect()
    }
}
