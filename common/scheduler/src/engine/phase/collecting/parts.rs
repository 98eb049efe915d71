//! Iterations whose tasks are handed out in parts: the policy is asked for more tasks, and its actions are carried out.

use smallvec::SmallVec;

use super::recovery::Orphan;
use super::{Collecting, Flow};
use crate::engine::{AcceptedResult, Actions, IterationView, Shared, share_out};
use crate::policy::Collect;
use ata_types::{TaskRange, WorkerId};

impl Collecting {
    /// Asks the policy what to do next, if the iteration's tasks are handed out in parts.
    pub(super) fn replan(&mut self, shared: &mut Shared) -> Flow {
        // Nothing is left to hand out once the policy has decided on the iteration ahead.
        if shared.failures.is_pause() || self.is_stepping() || shared.ahead.is_some() {
            return Flow::Continue(());
        }
        let (Some(pool), Collect::InParts { tasks }) = (self.mode.pool(), self.decision.collect) else {
            return Flow::Continue(());
        };
        let (left, now_s) = (pool.iter().map(|tasks| tasks.count).sum(), shared.now_s);
        let (leases, roster, copies) = (&shared.leases, &shared.roster, &self.copies);
        let (may_copy, iteration) = (!shared.config.takes_local_steps, self.number);
        let view = IterationView { now_s, left, may_copy, leases, roster, copies, iteration, tasks };
        // This keeps the allocated memory.
        let mut begin = std::mem::take(&mut self.actions.begin);
        begin.clear();
        self.actions = Actions { begin, ..Actions::default() };
        shared.policy.replan(&view, &mut self.actions);
        let may_ask = |at_s: &f64| *at_s > now_s && at_s.is_finite();
        self.actions.ask_again_s = self.actions.ask_again_s.filter(may_ask);
        if left > 0 && !self.actions.begin.is_empty() {
            self.begin_parts(shared);
        }
        for worker in std::mem::take(&mut self.actions.stop) {
            self.stop_probe(shared, worker);
        }
        if !shared.config.takes_local_steps {
            for (copier, holder) in std::mem::take(&mut self.actions.copy) {
                self.copy(shared, copier, holder);
            }
        }
        if left > 0 { self.keep_going(shared) } else { Flow::Continue(()) }
    }

    fn begin_parts(&mut self, shared: &mut Shared) {
        let begin = std::mem::take(&mut self.actions.begin);
        for (worker, _) in begin.iter().filter(|(_, tasks)| *tasks > 0) {
            self.stop_probe(shared, *worker);
        }
        let nobody_computes = shared.leases.is_empty();
        let may_begin = |worker: WorkerId| {
            let is_busy = || shared.roster.fit.contains(worker) && self.needed_tasks(shared, worker) > 0;
            shared.roster.may_begin(worker, nobody_computes) || is_busy()
        };
        let able = begin.iter().enumerate().filter(|(_, (worker, tasks))| *tasks > 0 && may_begin(*worker));
        let shares: SmallVec<[(usize, u64); 4]> = able.map(|(i, (_, tasks))| (i, *tasks)).collect();
        let pieces = self.mode.pool().map(|pool| share_out(pool, shares));
        for (i, tasks) in pieces.into_iter().flatten() {
            self.assign(shared, begin[i].0, tasks, None);
        }
        self.actions.begin = begin;
    }

    fn stop_probe(&mut self, shared: &mut Shared, worker: WorkerId) {
        self.cancel_unneeded(shared, worker);
        if shared.roster.present.contains(worker) && shared.leases.is_free(worker) {
            shared.roster.release(worker);
        }
    }

    fn copy(&mut self, shared: &mut Shared, copier: WorkerId, holder: WorkerId) {
        let held = shared.leases.of(holder).filter(|(lease, _)| self.mode.wants(lease.tasks));
        let held: Vec<_> = held.map(|(lease, blame)| (lease.tasks, blame.cloned().map(Box::new))).collect();
        if held.is_empty() {
            return;
        }
        self.stop_probe(shared, copier);
        if !shared.roster.may_begin(copier, false) {
            return;
        }
        for (tasks, blame) in held {
            self.copies.add((holder, tasks), copier, tasks);
            self.assign(shared, copier, tasks, blame);
        }
    }

    /// Stops the other workers that compute some of the tasks of a result that entered the step, because a sum cannot be taken in
    /// part. The other tasks that they would have computed are computed again, unless a further worker does.
    pub(super) fn stop_copies(&mut self, shared: &mut Shared, result: &AcceptedResult) {
        let done = result.lease.tasks;
        let others = self.copies.take(result.worker, done);
        if others.is_empty() {
            return;
        }
        let cancelled: Vec<TaskRange> = others.iter().map(|(_, tasks)| *tasks).collect();
        let leftovers = self.copies.leftovers(&cancelled, done);
        for ((other, tasks), left) in others.into_iter().zip(leftovers) {
            let held = shared.leases.find_by(other, |lease| lease.tasks == tasks);
            if let Some(ended) = held.and_then(|id| shared.leases.revoke(shared.now_s, other, id)) {
                shared.cancel(other, &ended);
                self.withdraw(shared, other, ended.lease.id);
                for tasks in left {
                    self.orphan(shared, tasks, ended.blame.as_deref());
                }
            }
            shared.release_or_time(other);
        }
    }

    /// Hands out the tasks that are left like lost ones, if no worker computes.
    fn keep_going(&mut self, shared: &mut Shared) -> Flow {
        let computes = |worker: &WorkerId| self.needed_tasks(shared, *worker) > 0;
        // Workers of the iteration before take tasks once they have done theirs.
        let are_others_busy = shared.config.takes_local_steps && !shared.leases.is_empty();
        // If no worker is present, the policy decides on the one that joins next.
        if shared.roster.present.is_empty() || are_others_busy || self.employed.workers().iter().any(computes) {
            return Flow::Continue(());
        }
        let Some(pool) = self.mode.pool() else { return Flow::Continue(()) };
        let lost = share_out(pool, [(0, u64::MAX)]);
        if lost.is_empty() {
            return Flow::Continue(());
        }
        self.orphans.extend(lost.into_iter().map(|(_, tasks)| Orphan { tasks, blame: None }));
        self.reassign_all(shared)
    }
}
