//! The roster, which records which workers are present, rest after failures, or have nothing to do.

mod inherited;
mod outage;

use std::cmp::Reverse;
use std::collections::{BTreeSet, BinaryHeap};
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use super::WorkerSet;
use ata_types::{Iteration, MachineId, Time, WorkerId};

/// The length of a rest after a failure, as a multiple of the time that the failure took. A worker that hangs whenever it gets
/// work then costs a run a twentieth of its time, and half as much with each further failure.
const REST_PER_LOST: f64 = 20.0;

/// The most doublings of a rest: a first rest of one second grows to about an hour.
const MAX_DOUBLINGS: u32 = 12;

/// A worker's failures since its last result.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(super) struct Strikes {
    pub(super) count: u32,
    pub(super) rests_until_s: f64,
    /// Whether it rests because another worker's result differed from its own, which does not prove that it is broken.
    pub(super) contested: bool,
    /// The time of the failure that began its rest; `None` if it hung, or its results were contested.
    pub(super) failed_s: Option<f64>,
    /// The number of its mismatched results. Successful results do not reset it, because few results are checked.
    pub(super) mismatches: u32,
}

#[derive(Clone, Debug, Default)]
struct RosterEntry {
    /// The machine that it runs on, or ran on last.
    machine: MachineId,
    strikes: Strikes,
    /// The number of strikes that it took over from another worker of its machine.
    inherited: u32,
    /// The length that its last rest would have had after a first failure.
    single_rest_s: f64,
    /// The number of its results that have arrived and wait for an asynchronous step: the worker is not idle until they are in one.
    waiting: u32,
    /// The iteration of the newest parameters that it has, or gets without waiting for a lease.
    parameters: Iteration,
}

/// The roster of all workers. Every operation on one worker takes constant time; the list of workers that can be given work is built
/// on the first request after a change.
#[derive(Debug, Default)]
pub(super) struct Roster {
    members: Vec<RosterEntry>,
    pub(super) present: WorkerSet,
    /// The workers that are present and do not rest.
    pub(super) fit: WorkerSet,
    /// The workers that have delivered a result in this run, present or not; what an earlier run learned about them does not count.
    pub(super) proven: WorkerSet,
    idle: WorkerSet,
    /// The workers that get no more work, and leave once they have delivered what they have begun. They count as absent.
    pub(super) leaving: WorkerSet,
    /// Whether each worker computes a lease as one batch, by slot.
    pub(super) fuses: Vec<bool>,
    /// The times at which the rests of present workers end. Outdated entries are skipped.
    rests: BinaryHeap<Reverse<(Time, WorkerId)>>,
    /// The workers that have failed since their last result.
    struck: WorkerSet,
    /// The absent ones among the struck workers, by machine.
    struck_absent: BTreeSet<(MachineId, WorkerId)>,
    /// Whether most of the present workers had failed at the last failure.
    is_outage: bool,
    /// The last result of [`Self::available`], if it is still valid.
    available: Option<Arc<[WorkerId]>>,
}

impl Roster {
    pub(super) fn add(&mut self, worker: WorkerId) {
        if self.members.len() <= worker.slot() {
            self.members.resize_with(worker.slot() + 1, RosterEntry::default);
            self.fuses.resize(worker.slot() + 1, false);
        }
    }

    /// Returns the workers that may be given work, ascending: those that do not rest or, if all rest, all that are present.
    pub(super) fn available(&mut self) -> Arc<[WorkerId]> {
        let Self { fit, present, available, .. } = self;
        let some = || if fit.is_empty() { present.iter().collect() } else { fit.iter().collect() };
        Arc::clone(available.get_or_insert_with(some))
    }

    /// Returns the workers that have nothing to do, ascending. Resting workers are included only if all rest and
    /// `nobody_computes`.
    pub(super) fn idle(&self, nobody_computes: bool) -> Vec<WorkerId> {
        if self.fit.is_empty() && nobody_computes {
            return self.present.iter().filter(|worker| self.members[worker.slot()].waiting == 0).collect();
        }
        self.idle.iter().collect()
    }

    /// Returns whether a worker is among those that [`Self::idle`] returns.
    pub(super) fn may_begin(&self, worker: WorkerId, nobody_computes: bool) -> bool {
        if self.fit.is_empty() && nobody_computes {
            return self.present.contains(worker) && self.members[worker.slot()].waiting == 0;
        }
        self.idle.contains(worker)
    }

    pub(super) fn machine_of(&self, worker: WorkerId) -> MachineId {
        self.members[worker.slot()].machine
    }

    /// Returns a predicate for workers whose failures say something about the tasks or about others. While a worker is present that has
    /// delivered a result, only workers that have delivered one count: the others may be one broken machine under ever new names.
    pub(super) fn counts(&self) -> impl Fn(&WorkerId) -> bool + '_ {
        let any_is_proven = WorkerSet::common([&self.proven, &self.present]) > 0;
        move |worker| !any_is_proven || self.proven.contains(*worker)
    }

    /// Returns whether a present worker rests because it failed.
    pub(super) fn is_failing(&self, worker: WorkerId) -> bool {
        !self.fit.contains(worker) && !self.members[worker.slot()].strikes.contested
    }

    /// Forgets that a worker has delivered results if it did so on another machine: that proves nothing about this one.
    pub(super) fn arrive(&mut self, worker: WorkerId, machine: MachineId) {
        // A restored roster does not know the machines.
        if ![machine, MachineId::default()].contains(&self.machine_of(worker)) {
            self.proven.remove(worker);
        }
    }

    pub(super) fn join(&mut self, now_s: f64, worker: WorkerId, machine: MachineId) {
        let member = &mut self.members[worker.slot()];
        self.struck_absent.remove(&(member.machine, worker));
        (member.machine, member.parameters) = (machine, Iteration(0));
        self.present.insert(worker);
        self.available = None;
        let until_s = member.strikes.rests_until_s;
        if until_s > now_s {
            self.rests.push(Reverse((Time(until_s), worker)));
        } else {
            self.fit.insert(worker);
            self.release(worker);
        }
    }

    pub(super) fn leave(&mut self, worker: WorkerId) {
        let member = &self.members[worker.slot()];
        if member.strikes.count > 0 {
            self.struck_absent.insert((member.machine, worker));
        }
        for set in [&mut self.present, &mut self.fit, &mut self.idle, &mut self.leaving] {
            set.remove(worker);
        }
        self.available = None;
    }

    pub(super) fn begin_to_leave(&mut self, worker: WorkerId) {
        self.leave(worker);
        self.leaving.insert(worker);
    }

    pub(super) fn forget(&mut self, worker: WorkerId) {
        self.forgive(worker);
        self.proven.remove(worker);
        self.struck_absent.remove(&(self.machine_of(worker), worker));
        let member = &mut self.members[worker.slot()];
        // Its last result may still wait for a step.
        *member = RosterEntry { waiting: member.waiting, ..RosterEntry::default() };
    }

    pub(super) fn employ(&mut self, worker: WorkerId) {
        self.idle.remove(worker);
    }

    pub(super) fn release(&mut self, worker: WorkerId) {
        if self.fit.contains(worker) && self.members[worker.slot()].waiting == 0 {
            self.idle.insert(worker);
        }
    }

    pub(super) fn await_step(&mut self, worker: WorkerId) {
        self.members[worker.slot()].waiting += 1;
    }

    /// Records that a result of the worker no longer waits, if one did.
    pub(super) fn stepped(&mut self, worker: WorkerId) {
        let waiting = &mut self.members[worker.slot()].waiting;
        *waiting = waiting.saturating_sub(1);
    }

    pub(super) fn has_parameters(&self, worker: WorkerId, iteration: Iteration) -> bool {
        self.members[worker.slot()].parameters == iteration
    }

    /// Records that a worker has the parameters of an iteration, or gets them without waiting for a lease. Returns whether this was
    /// already known.
    pub(super) fn give_parameters(&mut self, worker: WorkerId, iteration: Iteration) -> bool {
        std::mem::replace(&mut self.members[worker.slot()].parameters, iteration) == iteration
    }

    /// Records that a worker delivered a gradient, so that its earlier failures no longer count.
    pub(super) fn forgive(&mut self, worker: WorkerId) {
        // Usually no worker has failed, and there is no need to look.
        if !self.struck.is_empty() {
            let RosterEntry { strikes: Strikes { count, .. }, inherited, .. } = &mut self.members[worker.slot()];
            self.struck.remove(worker);
            (*count, *inherited) = (0, 0);
        }
    }

    /// Records a failure that took a worker `lost_s` seconds, and makes it rest for at least `least_s`. Returns the length of the rest
    /// and the number of failures; `None` if the worker rests already.
    pub(super) fn strike(&mut self, now_s: f64, worker: WorkerId, lost_s: f64, least_s: f64) -> Option<(f64, u32)> {
        let RosterEntry { strikes, inherited, single_rest_s, .. } = &mut self.members[worker.slot()];
        let Strikes { count, rests_until_s, contested, failed_s, .. } = strikes;
        if *rests_until_s > now_s {
            return None;
        }
        self.struck.insert(worker);
        *count = count.saturating_add(1);
        (*contested, *failed_s) = (false, None);
        *single_rest_s = least_s.max(REST_PER_LOST * lost_s);
        let after_s = |failures: u32| *single_rest_s * f64::from(1_u32 << (failures - 1).min(MAX_DOUBLINGS));
        let own_s = after_s(*count - *inherited);
        // Inherited failures may be another worker's, and lengthen a rest only up to the limit for inherited rests.
        let rest_s = after_s(*count).min(inherited::longest_s(*single_rest_s)).max(own_s);
        *rests_until_s = now_s + rest_s;
        let strikes = *count;
        if self.present.contains(worker) && rest_s > 0.0 {
            self.fit.remove(worker);
            self.idle.remove(worker);
            self.rests.push(Reverse((Time(now_s + rest_s), worker)));
            self.available = None;
        }
        Some((rest_s, strikes))
    }

    /// Records another violation of the protocol by a worker that rests.
    pub(super) fn strike_again(&mut self, worker: WorkerId) {
        let count = &mut self.members[worker.slot()].strikes.count;
        self.struck.insert(worker);
        *count = count.saturating_add(1);
    }

    pub(super) fn contested(&mut self, worker: WorkerId) {
        self.members[worker.slot()].strikes.contested = true;
    }

    pub(super) fn mismatched(&mut self, worker: WorkerId) {
        self.contested(worker);
        let mismatches = &mut self.members[worker.slot()].strikes.mismatches;
        *mismatches = mismatches.saturating_add(1);
    }

    /// Returns whether a worker has neither failures since its last result nor mismatches, and does not rest.
    pub(super) fn is_clear(&self, worker: WorkerId) -> bool {
        let strikes = self.members.get(worker.slot()).map(|member| member.strikes);
        strikes.is_none_or(|strikes| strikes.count == 0 && strikes.mismatches == 0)
    }

    /// Clears a worker of all failures and mismatches, and ends its rest at the next [`Self::end_rests`].
    pub(super) fn pardon(&mut self, now_s: f64, worker: WorkerId) {
        let Some(member) = self.members.get_mut(worker.slot()) else { return };
        (member.strikes, member.inherited) = (Strikes { rests_until_s: now_s, ..Strikes::default() }, 0);
        self.struck.remove(worker);
        self.struck_absent.remove(&(member.machine, worker));
        self.rests.push(Reverse((Time(now_s), worker)));
    }

    pub(super) fn mismatches_of(&self, worker: WorkerId) -> u32 {
        self.members[worker.slot()].strikes.mismatches
    }

    /// Returns the number of a worker's failures since its last result, without inherited ones: it is neither expelled nor given more
    /// time because of other workers at its address.
    pub(super) fn strikes_of(&self, worker: WorkerId) -> u32 {
        let RosterEntry { strikes, inherited, .. } = &self.members[worker.slot()];
        if self.struck.is_empty() { 0 } else { strikes.count - inherited }
    }

    pub(super) fn next_rest_end_s(&mut self) -> Option<f64> {
        while let Some(Reverse((Time(until_s), worker))) = self.rests.peek() {
            let rests = self.present.contains(*worker) && !self.fit.contains(*worker);
            if rests && self.members[worker.slot()].strikes.rests_until_s == *until_s {
                return Some(*until_s);
            }
            self.rests.pop();
        }
        None
    }

    /// Ends the rests that are over, and returns their workers, which may still hold leases.
    pub(super) fn end_rests(&mut self, now_s: f64) -> Vec<WorkerId> {
        let mut rested = Vec::new();
        while self.next_rest_end_s().is_some_and(|until_s| until_s <= now_s)
            && let Some(Reverse((_, worker))) = self.rests.pop()
        {
            self.fit.insert(worker);
            self.available = None;
            rested.push(worker);
        }
        rested
    }

    /// Returns the failures of all workers of the run, by slot, without inherited ones: later these could not be distinguished from
    /// a worker's own failures, for which it is expelled.
    pub(super) fn strikes(&self) -> Vec<Strikes> {
        let own = |member: &RosterEntry| Strikes { count: member.strikes.count - member.inherited, ..member.strikes };
        self.members.iter().map(own).collect()
    }

    pub(super) fn restored(strikes: &[Strikes], delivered: &[WorkerId]) -> Self {
        let failed = strikes.iter().enumerate().filter(|(_, strikes)| strikes.count > 0);
        Self {
            members: strikes.iter().map(|&strikes| RosterEntry { strikes, ..RosterEntry::default() }).collect(),
            fuses: vec![false; strikes.len()],
            struck: failed.map(|(slot, _)| WorkerId::from_slot(slot)).collect(),
            proven: delivered.iter().copied().collect(),
            ..Self::default()
        }
    }
}

#[cfg(test)]
mod tests;
