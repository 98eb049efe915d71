//! Tasks whose lease ended without a result, which go to other workers within the iteration.

use smallvec::SmallVec;

use super::{Collecting, CollectingEnd, Flow};
use crate::allocation::ras_by_cost;
use crate::engine::{Blame, EndedLease, Purpose, Shared, share_out, stream};
use ata_types::{Lease, LeaseId, TaskRange, TaskRanges, WorkerId};

/// Tasks whose lease ended without a result, to be given to another worker.
#[derive(Clone, Debug)]
pub(super) struct Orphan {
    pub(super) tasks: TaskRange,
    pub(super) blame: Option<Box<Blame>>,
}

impl Collecting {
    pub(crate) fn worker_joined(&mut self, shared: &mut Shared, worker: WorkerId) -> Flow {
        self.workers += u64::from(!self.left.contains(worker));
        shared.last_wait = None;
        // Failed tasks that no present worker could retry come first: the run must end if they fail everywhere.
        self.recover(shared)
    }

    /// Handles a worker that hung on the first of these leases and was evicted.
    pub(crate) fn worker_evicted(&mut self, shared: &mut Shared, worker: WorkerId, lost: Vec<EndedLease>) -> Flow {
        self.left.insert(worker);
        self.lose_collections(shared, worker);
        let hung_on = lost.first().map(|ended| ended.lease.tasks);
        for (at, ended) in lost.into_iter().enumerate() {
            if at == 0 && !shared.roster.fuses[worker.slot()] {
                self.recompute_hung(shared, worker, &ended);
            } else {
                self.recompute(shared, worker, ended, at == 0);
            }
        }
        if let Some(tasks) = hung_on {
            self.blame_asynchronously(shared, worker, tasks)?;
        }
        self.recover(shared)
    }

    pub(crate) fn lease_failed(&mut self, shared: &mut Shared, worker: WorkerId, ended: EndedLease) -> Flow {
        let lease = ended.lease;
        self.withdraw(shared, worker, lease.id);
        self.recompute(shared, worker, ended, true);
        self.blame_asynchronously(shared, worker, lease.tasks)?;
        self.expel_if_due(shared, worker);
        self.recover(shared)
    }

    pub(crate) fn expel_if_due(&mut self, shared: &mut Shared, worker: WorkerId) -> bool {
        let Some(lost) = shared.expel_if_due(worker) else { return false };
        self.worker_left(shared, worker, lost);
        true
    }

    /// Has the leases of a worker that left computed again, and the results that it kept.
    pub(crate) fn worker_left(&mut self, shared: &mut Shared, worker: WorkerId, lost: Vec<EndedLease>) {
        self.left.insert(worker);
        self.lose_collections(shared, worker);
        for ended in lost {
            self.recompute(shared, worker, ended, false);
        }
    }

    /// Has a lease computed again that ended without a result. Its worker failed on it if `is_blamed`; otherwise it was lost.
    pub(crate) fn recompute(&mut self, shared: &mut Shared, worker: WorkerId, ended: EndedLease, is_blamed: bool) {
        let EndedLease { lease, mut blame, .. } = ended;
        if self.is_asked_again(worker, &lease, is_blamed) {
            return;
        }
        if is_blamed {
            blame.get_or_insert_default().add(worker);
        }
        for tasks in self.uncovered(shared, worker, &lease, is_blamed) {
            self.orphan(shared, tasks, blame.as_deref());
        }
    }

    /// Has a lease computed again on which a worker hung. Only the first task is known to have begun, so only that one is blamed; if
    /// a later task is the cause, it becomes the first of a lease within a few rounds.
    fn recompute_hung(&mut self, shared: &mut Shared, worker: WorkerId, ended: &EndedLease) {
        let EndedLease { lease, blame: earlier, .. } = ended;
        if self.is_asked_again(worker, lease, true) {
            return;
        }
        let mut blame = earlier.as_deref().cloned().unwrap_or_default();
        blame.add(worker);
        for mut tasks in self.uncovered(shared, worker, lease, true) {
            if tasks.first == lease.tasks.first {
                self.orphan(shared, TaskRange::single(tasks.first), Some(&blame));
                tasks = TaskRange { first: tasks.first + 1, count: tasks.count - 1 };
            }
            self.orphan(shared, tasks, earlier.as_deref());
        }
    }

    /// Counts failures across the steps of an asynchronous run, in which no worker retries a task.
    fn blame_asynchronously(&mut self, shared: &Shared, worker: WorkerId, tasks: TaskRange) -> Flow {
        if self.is_asynchronous() {
            self.blame.add(worker);
            if let Some(reason) = shared.reason_to_abort(self.number, tasks, &self.blame) {
                return Flow::Break(CollectingEnd::Abort(reason));
            }
        }
        Flow::Continue(())
    }

    /// Reassigns what must be computed again, and gives work to idle workers that should have some.
    pub(crate) fn recover(&mut self, shared: &mut Shared) -> Flow {
        self.reassign(shared)?;
        self.continue_checks(shared)?;
        if !self.orphans.is_empty() {
            // The orphans belonged to workers that were expelled over disputed results.
            self.reassign(shared)?;
            self.continue_checks(shared)?;
        }
        self.resume(shared)
    }

    /// Gives work to idle workers that should have some.
    pub(crate) fn resume(&mut self, shared: &mut Shared) -> Flow {
        self.employ_idle(shared);
        self.replan(shared)
    }

    /// Gives tasks to workers with nothing to do, if workers are to compute all the time.
    pub(super) fn employ_idle(&mut self, shared: &mut Shared) {
        if self.mode.keeps_busy() && !shared.failures.is_pause() {
            for worker in shared.roster.idle(shared.leases.is_empty()) {
                self.assign_next(shared, worker);
            }
        }
    }

    /// Keeps tasks whose lease ended without a result for another worker, if the step needs them.
    pub(super) fn orphan(&mut self, shared: &mut Shared, tasks: TaskRange, blame: Option<&Blame>) {
        // If there is always another task, only failed ones are worth retrying: if they fail everywhere, the run must end. No
        // asynchronous step needs a particular task.
        let must_redo = !self.is_asynchronous() && (blame.is_some() || !self.mode.never_waits());
        if tasks.count > 0 && self.mode.wants(tasks) && must_redo {
            shared.give_up_ahead();
            self.orphans.push(Orphan { tasks, blame: blame.cloned().map(Box::new) });
        }
    }

    /// Gives orphaned tasks to the workers that finish them soonest. If tasks are local steps, the policy hands them out in parts instead,
    /// because others could not take over what a worker does not get done.
    pub(super) fn reassign(&mut self, shared: &mut Shared) -> Flow {
        if shared.config.takes_local_steps
            && let Some(pool) = self.mode.pool()
        {
            let lost = self.orphans.extract_if(.., |orphan| orphan.blame.is_none());
            pool.extend(lost.map(|orphan| orphan.tasks));
        }
        self.reassign_all(shared)
    }

    pub(super) fn reassign_all(&mut self, shared: &mut Shared) -> Flow {
        let reason_to_abort =
            |orphan: &Orphan| shared.reason_to_abort(self.number, orphan.tasks, orphan.blame.as_deref()?);
        if let Some(reason) = self.orphans.iter().find_map(reason_to_abort) {
            return Flow::Break(CollectingEnd::Abort(reason));
        }
        if shared.roster.present.is_empty() {
            shared.wait(0, 1);
            return Flow::Continue(());
        }
        if shared.failures.is_pause() {
            return Flow::Continue(());
        }
        shared.last_wait = None;
        let mut orphans = std::mem::take(&mut self.orphans);
        // Tasks with the same history are reassigned together.
        orphans.sort_by(|a, b| a.blame.cmp(&b.blame));
        for alike in orphans.chunk_by(|a, b| a.blame == b.blame) {
            self.reassign_alike(shared, alike);
        }
        Flow::Continue(())
    }

    fn reassign_alike(&mut self, shared: &mut Shared, orphans: &[Orphan]) {
        let blame = orphans[0].blame.clone();
        let takers = shared.takers(blame.as_deref());
        let expected_s = shared.expected_s(&takers);
        let load: Vec<u64> = takers.iter().map(|&taker| self.needed_tasks(shared, taker)).collect();
        let (fuses, statistics) = (&shared.roster.fuses, &shared.statistics);
        let batch_s = |i: usize, tasks: u64| {
            let known = || statistics[takers[i].slot()].batches.at_most_s(tasks);
            if tasks > 0 && fuses[takers[i].slot()] { known() } else { None }
        };
        let ends_s = |i: usize, tasks: u64| match batch_s(i, tasks) {
            Some(more_s) => batch_s(i, load[i]).unwrap_or(0.0) + more_s,
            None => (load[i] + tasks) as f64 * expected_s[i],
        };
        let budget = orphans.iter().map(|orphan| orphan.tasks.count).sum();
        let (seed, number) = (shared.config.seed, self.number);
        let rng = self.recovery_rng.get_or_insert_with(|| stream(seed, number, Purpose::Recovery));
        let allocation = ras_by_cost(takers.len(), budget, ends_s, rng);
        let mut tasks: Vec<TaskRange> = orphans.iter().map(|orphan| orphan.tasks).collect();
        for (i, tasks) in share_out(&mut tasks, allocation.into_iter().enumerate()) {
            self.cancel_unneeded(shared, takers[i]);
            self.assign_checked(shared, takers[i], tasks, blame.clone());
        }
    }

    pub(super) fn needed_tasks(&self, shared: &Shared, worker: WorkerId) -> u64 {
        let needed = |lease: &&Lease| lease.iteration != self.number || self.mode.wants(lease.tasks);
        shared.leases.of(worker).map(|(lease, _)| lease).filter(needed).map(|lease| lease.tasks.count).sum()
    }

    /// Stops a worker that is about to get work, if the step does not need what it computes.
    pub(super) fn cancel_unneeded(&mut self, shared: &mut Shared, worker: WorkerId) {
        let held = || shared.leases.of(worker).map(|(lease, _)| lease).filter(|lease| lease.iteration == self.number);
        if held().any(|lease| self.mode.wants(lease.tasks)) {
            return;
        }
        let unneeded: SmallVec<[LeaseId; 2]> = held().map(|lease| lease.id).collect();
        // The last lease goes first, because it was not begun.
        for id in unneeded.into_iter().rev() {
            if let Some(ended) = shared.leases.revoke(shared.now_s, worker, id) {
                shared.cancel(worker, &ended);
                self.withdraw(shared, worker, ended.lease.id);
            }
        }
    }

    /// Records that a worker no longer computes a lease, and failed on it if `is_blamed`. Returns those of its tasks that no other worker
    /// computes.
    fn uncovered(&mut self, shared: &mut Shared, worker: WorkerId, lease: &Lease, is_blamed: bool) -> TaskRanges {
        let left = self.copies.end(worker, lease.tasks);
        if is_blamed {
            for (other, tasks) in self.copies.others(worker, lease.tasks) {
                shared.leases.blame(other, tasks, worker);
            }
        }
        left
    }
}

impl Shared {
    /// Returns the workers that tasks with this history may go to. Among those that have not failed them, it prefers workers that
    /// do not rest and have delivered before, then those that do not rest, then all; otherwise it returns the one that failed them
    /// the longest ago.
    fn takers(&mut self, blame: Option<&Blame>) -> Vec<WorkerId> {
        let available = self.roster.available();
        let Some(blame) = blame else { return available.to_vec() };
        let is_new = |worker: &WorkerId| !blame.workers.contains(worker);
        let (proven, others): (Vec<WorkerId>, Vec<WorkerId>) =
            available.iter().copied().filter(is_new).partition(|worker| self.roster.proven.contains(*worker));
        let resting = || self.roster.present.iter().filter(is_new).collect();
        let fit = if proven.is_empty() { others } else { proven };
        let new: Vec<WorkerId> = if fit.is_empty() { resting() } else { fit };
        if !new.is_empty() {
            return new;
        }
        blame.workers.iter().copied().find(|worker| available.contains(worker)).into_iter().collect()
    }

    /// Returns the expected seconds per task: a worker's mean or, without one, the largest mean of any worker.
    pub(super) fn expected_s(&self, workers: &[WorkerId]) -> Vec<f64> {
        let known_s = |worker: &WorkerId| self.policy.expected_s(*worker).or(self.statistics[worker.slot()].mean_s());
        let mean_s = |worker: &WorkerId| known_s(worker).filter(|&mean_s| mean_s > 0.0);
        let largest = workers.iter().filter_map(mean_s).fold(0.0, f64::max);
        let fallback = if largest > 0.0 { largest } else { 1.0 };
        workers.iter().map(|worker| mean_s(worker).unwrap_or(fallback)).collect()
    }
}
