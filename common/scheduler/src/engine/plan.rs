//! Iterations whose tasks are handed out in parts: the policy is asked for more, and what it orders is done.

use smallvec::SmallVec;

use super::event::Effect;
use super::iteration::{Orphan, Taken};
use super::midway::Midway;
use super::{Engine, Phase};
use crate::policy::Collect;
use ata_types::{Lease, LeaseId, TaskRange, WorkerId};

impl Engine {
    /// Asks the policy what to do next, if the iteration's tasks are handed out in parts.
    pub(super) fn resume(&mut self, now_s: f64, effects: &mut Vec<Effect>) {
        if self.is_paused() {
            return;
        }
        let Phase::Collecting(iteration) = &mut self.phase else { return };
        let Some(pool) = iteration.mode.pool() else { return };
        let left = pool.left();
        let (leases, roster, copies) = (&self.leases, &self.roster, &iteration.copies);
        let Collect::InParts { tasks } = iteration.decision.collect else { return };
        let midway = Midway { now_s, left, leases, roster, copies, tasks };
        iteration.orders.clear();
        self.policy.resume(&midway, &mut iteration.orders);
        let may_ask = |at_s: &f64| *at_s > now_s && at_s.is_finite();
        iteration.orders.ask_again_s = iteration.orders.ask_again_s.filter(may_ask);
        if left > 0 && !iteration.orders.begin.is_empty() {
            self.begin_parts(now_s, effects);
        }
        let Phase::Collecting(iteration) = &mut self.phase else { return };
        for worker in std::mem::take(&mut iteration.orders.stop) {
            self.stop_probe(now_s, worker, effects);
        }
        let Phase::Collecting(iteration) = &mut self.phase else { return };
        for (copier, holder) in std::mem::take(&mut iteration.orders.copy) {
            self.copy(now_s, copier, holder, effects);
        }
        if left > 0 {
            self.keep_going(now_s, effects);
        }
    }

    fn begin_parts(&mut self, now_s: f64, effects: &mut Vec<Effect>) {
        let Phase::Collecting(iteration) = &mut self.phase else { return };
        let begin = std::mem::take(&mut iteration.orders.begin);
        for (worker, _) in begin.iter().filter(|(_, tasks)| *tasks > 0) {
            self.stop_probe(now_s, *worker, effects);
        }
        let nobody_computes = self.leases.is_empty();
        let Phase::Collecting(iteration) = &mut self.phase else { return };
        let Some(pool) = iteration.mode.pool() else { return };
        let may_begin = |worker: WorkerId| self.roster.may_begin(worker, nobody_computes);
        let idle = begin.iter().enumerate().filter(|(_, (worker, tasks))| *tasks > 0 && may_begin(*worker));
        let shares: SmallVec<[(usize, u64); 4]> = idle.map(|(i, (_, tasks))| (i, *tasks)).collect();
        let fuses = self.roster.fuses();
        let pieces = pool.take(&shares, |i| fuses[begin[i].0.slot()]);
        for (i, tasks) in pieces {
            self.assign(now_s, begin[i].0, tasks, None, effects);
        }
        if let Phase::Collecting(iteration) = &mut self.phase {
            // Keeps the memory.
            iteration.orders.begin = begin;
        }
    }

    /// A worker that computes a probe stops.
    fn stop_probe(&mut self, now_s: f64, worker: WorkerId, effects: &mut Vec<Effect>) {
        self.cancel_unneeded(now_s, worker, effects);
        if self.roster.is_present(worker) && self.leases.is_free(worker) {
            self.roster.release(worker);
        }
    }

    /// Has an idle worker compute what another one does.
    fn copy(&mut self, now_s: f64, copier: WorkerId, holder: WorkerId, effects: &mut Vec<Effect>) {
        let Phase::Collecting(iteration) = &self.phase else { return };
        let held = self.leases.of(holder).filter(|(lease, _)| iteration.mode.wants(lease.tasks));
        let held: Vec<_> = held.map(|(lease, blame)| (lease.tasks, blame.cloned().map(Box::new))).collect();
        if held.is_empty() {
            return;
        }
        self.stop_probe(now_s, copier, effects);
        if !self.roster.may_begin(copier, false) {
            return;
        }
        for (tasks, blame) in held {
            // Only a worker that computes a lease as one batch takes any range.
            let fuses = self.roster.fuses()[copier.slot()];
            let parts: Vec<TaskRange> = if fuses { vec![tasks] } else { tasks.subtrees().collect() };
            for part in parts {
                if let Phase::Collecting(iteration) = &mut self.phase {
                    iteration.copies.add((holder, tasks), copier, part);
                }
                self.assign(now_s, copier, part, blame.clone(), effects);
            }
        }
    }

    /// A result was taken: the other workers that compute some of its tasks stop, for a sum cannot be taken in part. What
    /// they would have computed besides, if nobody else does, is to be computed again.
    pub(super) fn stop_copies(&mut self, now_s: f64, taken: &Taken, effects: &mut Vec<Effect>) {
        let Phase::Collecting(iteration) = &mut self.phase else { return };
        let done = taken.lease.tasks;
        let others = iteration.copies.take(taken.worker, done);
        if others.is_empty() {
            return;
        }
        let cancelled: Vec<TaskRange> = others.iter().map(|(_, tasks)| *tasks).collect();
        let leftovers = iteration.copies.leftovers(&cancelled, done);
        for ((other, tasks), left) in others.into_iter().zip(leftovers) {
            let ended = self.lease_on(other, tasks).and_then(|id| self.leases.revoke(now_s, other, id));
            if let Some(ended) = ended {
                self.cut_short(other, &ended, effects);
                for tasks in left {
                    self.orphan(tasks, ended.blame.as_deref());
                }
            }
            if self.leases.is_free(other) {
                self.roster.release(other);
            } else {
                self.set_deadline(other);
            }
        }
    }

    fn lease_on(&self, worker: WorkerId, tasks: TaskRange) -> Option<LeaseId> {
        self.leases.of(worker).map(|(lease, _)| lease).find(|lease| lease.tasks == tasks).map(|lease| lease.id)
    }

    /// A worker no longer computes a lease, and failed on it if `is_blamed`: which of its tasks nobody else computes.
    pub(super) fn left_of(&mut self, worker: WorkerId, lease: &Lease, is_blamed: bool) -> Vec<TaskRange> {
        let Phase::Collecting(iteration) = &mut self.phase else { return vec![lease.tasks] };
        let left = iteration.copies.end(worker, lease.tasks);
        if is_blamed {
            for (other, tasks) in iteration.copies.others(worker, lease.tasks) {
                if let Some(id) = self.lease_on(other, tasks) {
                    self.leases.blame(other, id, worker);
                }
            }
        }
        left
    }

    /// If tasks are left and nobody computes, they are handed out like lost ones.
    fn keep_going(&mut self, now_s: f64, effects: &mut Vec<Effect>) {
        let Phase::Collecting(iteration) = &self.phase else { return };
        let computes = |worker: &WorkerId| self.needed_tasks(*worker) > 0;
        // Whoever joins next is the policy's to employ.
        if self.roster.present() == 0 || iteration.employed.workers().iter().any(computes) {
            return;
        }
        let Phase::Collecting(iteration) = &mut self.phase else { return };
        let Some(pool) = iteration.mode.pool() else { return };
        let left = pool.left();
        let lost: Vec<TaskRange> = pool.take(&[(0, left)], |_| false).into_iter().map(|(_, tasks)| tasks).collect();
        if !lost.is_empty() {
            iteration.orphans.extend(lost.into_iter().map(|tasks| Orphan { tasks, blame: None }));
            self.reassign(now_s, effects);
        }
    }
}
