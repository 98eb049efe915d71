//! Iterations whose tasks are handed out in parts: the policy is asked for more, and what it orders is done.

use super::event::Effect;
use super::iteration::{Orphan, Taken};
use super::midway::Midway;
use super::{Engine, Phase};
use crate::ids::{Lease, TaskRange, WorkerId};
use crate::policy::Collect;

impl Engine {
    /// Asks the policy what to do next, if the iteration's tasks are handed out in parts.
    pub(super) fn resume(&mut self, now_s: f64, effects: &mut Vec<Effect>) {
        let Phase::Collecting(iteration) = &mut self.phase else { return };
        let Some(pool) = iteration.mode.pool() else { return };
        let left = pool.left();
        let (leases, roster, copies) = (&self.leases, &self.roster, &iteration.copies);
        let Collect::InParts { tasks } = iteration.decision.collect else { return };
        let midway = Midway { now_s, left, leases, roster, copies, tasks };
        iteration.orders.clear();
        self.policy.resume(&midway, &mut iteration.orders);
        iteration.orders.ask_again_s = iteration.orders.ask_again_s.filter(|at_s| *at_s > now_s);
        if !iteration.orders.begin.is_empty() {
            self.begin_parts(now_s, effects);
        }
        self.stop_probes(now_s, effects);
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
        self.stop_probes_of(now_s, begin.iter().map(|(worker, _)| *worker), effects);
        let Phase::Collecting(iteration) = &mut self.phase else { return };
        let Some(pool) = iteration.mode.pool() else { return };
        let idle = begin.iter().enumerate().filter(|(_, (worker, _))| self.roster.is_idle(*worker));
        let shares: Vec<(usize, u64)> = idle.map(|(i, (_, tasks))| (i, *tasks)).collect();
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

    fn stop_probes(&mut self, now_s: f64, effects: &mut Vec<Effect>) {
        let Phase::Collecting(iteration) = &mut self.phase else { return };
        let stop = std::mem::take(&mut iteration.orders.stop);
        self.stop_probes_of(now_s, stop.into_iter(), effects);
    }

    fn stop_probes_of(&mut self, now_s: f64, workers: impl Iterator<Item = WorkerId>, effects: &mut Vec<Effect>) {
        for worker in workers {
            self.cancel_unneeded(now_s, worker, effects);
            if self.leases.is_free(worker) {
                self.roster.release(worker);
            }
        }
    }

    /// Has an idle worker compute what another one does.
    fn copy(&mut self, now_s: f64, copier: WorkerId, holder: WorkerId, effects: &mut Vec<Effect>) {
        self.stop_probes_of(now_s, std::iter::once(copier), effects);
        let Phase::Collecting(iteration) = &mut self.phase else { return };
        if !self.roster.is_idle(copier) {
            return;
        }
        let held = self.leases.of(holder).filter(|(lease, _)| iteration.mode.wants(lease.tasks));
        let held: Vec<_> = held.map(|(lease, blame)| (lease.tasks, blame.cloned().map(Box::new))).collect();
        for (tasks, blame) in held {
            if let Phase::Collecting(iteration) = &mut self.phase {
                iteration.copies.add(tasks.first, holder, copier);
            }
            self.assign(now_s, copier, tasks, blame, effects);
        }
    }

    /// A result was taken: the other workers that compute the same tasks stop.
    pub(super) fn stop_copies(&mut self, now_s: f64, taken: &Taken, effects: &mut Vec<Effect>) {
        let Phase::Collecting(iteration) = &mut self.phase else { return };
        let first = taken.lease.tasks.first;
        for other in iteration.copies.take_others(taken.worker, first) {
            let lease = self.leases.of(other).map(|(lease, _)| *lease).find(|lease| lease.tasks.first == first);
            let ended = lease.and_then(|lease| self.leases.revoke(now_s, other, lease.id));
            if let Some(ended) = ended {
                self.cut_short(other, &ended, effects);
            }
            if self.leases.is_free(other) {
                self.roster.release(other);
            } else {
                self.set_deadline(other);
            }
        }
    }

    /// A worker no longer computes a lease; returns whether another one computes the same tasks.
    pub(super) fn is_computed_elsewhere(&mut self, worker: WorkerId, lease: &Lease) -> bool {
        let Phase::Collecting(iteration) = &mut self.phase else { return false };
        iteration.copies.end(worker, lease.tasks.first)
    }

    /// If tasks are left and nobody computes, they are handed out like lost ones.
    fn keep_going(&mut self, now_s: f64, effects: &mut Vec<Effect>) {
        let Phase::Collecting(iteration) = &self.phase else { return };
        let computes = |worker: &WorkerId| self.needed_tasks(*worker) > 0;
        if !iteration.orphans.is_empty() || iteration.employed.workers().iter().any(computes) {
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
