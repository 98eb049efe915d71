//! Lost, hung and failing workers: their tasks go to others within the iteration, and they rest.

use smallvec::SmallVec;

use super::blame::Blame;
use super::event::{AbortReason, Effect, WaitReason};
use super::iteration::Orphan;
use super::layout::{join, share_out};
use super::leases::{Ended, Overdue};
use super::random::{Purpose, stream};
use super::{Engine, Phase};
use crate::allocation::ras_by_cost;
use ata_types::{Lease, LeaseId, TaskOutcome, TaskRange, WorkerId};

/// A lease may take this many times its expected time before it counts as hung: task times with a coefficient of
/// variation of 1 exceed ten times their mean once in 20,000.
const LEASE_TIMEOUT_FACTOR: f64 = 10.0;

/// The shortest limit on a lease, as a share of [`super::EngineConfig::lease_timeout_s`]: a worker whose tasks take
/// milliseconds may pause for six seconds if an unknown one has a minute. That is longer than missing heartbeats take
/// to reveal a dead link by default, so that only workers that are alive but do not answer are evicted.
const LEAST_ALLOWANCE: f64 = 1.0 / 10.0;

/// A worker is expelled when this many of its results were refuted: once is a bit that flipped, and a sound machine does not
/// have three of them in a run.
const MAX_MISMATCHES: u32 = 3;

/// The most doublings of the limit on a lease.
const MAX_DOUBLINGS: u32 = 16;

impl Engine {
    /// A worker is gone; its leases go to others.
    pub(super) fn lose(&mut self, now_s: f64, worker: WorkerId, effects: &mut Vec<Effect>) {
        if self.roster.is_present(worker) {
            self.roster.leave(worker, self.current());
            let lost = self.leases.revoke_all(now_s, worker);
            self.lost(worker, lost, false, effects);
            self.recover(now_s, effects);
        }
    }

    /// Reassigns what must be computed again, and gives work to idle workers that should have some.
    pub(super) fn recover(&mut self, now_s: f64, effects: &mut Vec<Effect>) {
        self.reassign(now_s, effects);
        self.continue_checks(now_s, effects);
        if matches!(&self.phase, Phase::Collecting(iteration) if !iteration.orphans.is_empty()) {
            // Of workers that were expelled over disputed results.
            self.reassign(now_s, effects);
            self.continue_checks(now_s, effects);
        }
        self.employ_idle(now_s, effects);
        self.resume(now_s, effects);
    }

    /// If workers are to compute all the time, those with nothing to do get a task.
    pub(super) fn employ_idle(&mut self, now_s: f64, effects: &mut Vec<Effect>) {
        if self.is_paused() || !matches!(&self.phase, Phase::Collecting(iteration) if iteration.mode.keeps_busy()) {
            return;
        }
        for worker in self.roster.idle(self.leases.is_empty()) {
            self.assign_next(now_s, worker, effects);
        }
    }

    /// Accounts for leases that were lost with their worker. `hung` tells whether it hung on the first of them.
    fn lost(&mut self, worker: WorkerId, lost: Vec<Ended>, hung: bool, effects: &mut Vec<Effect>) {
        for (at, ended) in lost.into_iter().enumerate() {
            let time = ended.time();
            let Ended { lease, blame, begun_s } = ended;
            effects.push(Effect::End { worker, lease, outcome: TaskOutcome::Lost, time });
            if let Some(busy_s) = begun_s {
                self.waste.add(self.likely_begun(worker, lease.tasks.count, busy_s), busy_s);
            }
            let is_blamed = hung && at == 0;
            if self.is_asked_again(worker, &lease, is_blamed) {
                continue;
            }
            let left = self.left_of(worker, &lease, is_blamed);
            for tasks in left.into_iter().flat_map(TaskRange::subtrees) {
                if is_blamed {
                    self.orphan_hung(worker, &lease, tasks, blame.as_deref());
                } else {
                    self.orphan(tasks, blame.as_deref());
                }
            }
        }
    }

    /// A worker hung on a lease with these tasks. All tasks of a batch take the blame. Otherwise only the first is known to
    /// have been begun, so that one does; if another one is the culprit, it becomes the first of a lease within a few
    /// rounds.
    fn orphan_hung(&mut self, worker: WorkerId, lease: &Lease, tasks: TaskRange, earlier: Option<&Blame>) {
        let mut blame = earlier.cloned().unwrap_or_default();
        blame.add(worker);
        if self.roster.fuses()[worker.slot()] {
            self.orphan(tasks, Some(&blame));
        } else if tasks.first == lease.tasks.first {
            for rest in tasks.without_first() {
                self.orphan(rest, earlier);
            }
            self.orphan(TaskRange::single(tasks.first), Some(&blame));
        } else {
            self.orphan(tasks, earlier);
        }
    }

    /// How many of a lease's tasks a worker had likely begun after `busy_s` seconds, by its mean time.
    fn likely_begun(&self, worker: WorkerId, tasks: u64, busy_s: f64) -> u64 {
        if self.roster.fuses()[worker.slot()] {
            return tasks;
        }
        let begun = self.statistics[worker.slot()].mean_s().map_or(1.0, |mean_s| (busy_s / mean_s).ceil());
        (begun as u64).clamp(1, tasks)
    }

    /// Tasks whose lease ended without a result: they wait for another worker, if the step needs them.
    pub(super) fn orphan(&mut self, tasks: TaskRange, blame: Option<&Blame>) {
        let (Phase::Collecting(iteration) | Phase::Committing(iteration)) = &mut self.phase else { return };
        if iteration.mode.wants(tasks) && iteration.mode.must_redo(blame.is_some()) {
            // What was one batch may go to workers that return the sums of subtrees.
            let orphan = |tasks| Orphan { tasks, blame: blame.cloned().map(Box::new) };
            iteration.orphans.extend(tasks.subtrees().map(orphan));
        }
    }

    /// A worker failed, which took it `lost_s` seconds: it rests. Returns false if it rests already.
    pub(super) fn strike(&mut self, now_s: f64, worker: WorkerId, lost_s: f64, effects: &mut Vec<Effect>) -> bool {
        self.policy.failed(worker, lost_s);
        self.record_failure(now_s);
        let struck = self.roster.strike(now_s, worker, lost_s, self.config.rest_s);
        effects.extend(struck.map(|(rest_s, strikes)| Effect::Rest { worker, rest_s, strikes }));
        struck.is_some()
    }

    /// A worker did what no correct one does; each time counts.
    pub(super) fn violation(&mut self, now_s: f64, worker: WorkerId, effects: &mut Vec<Effect>) {
        if !self.roster.is_present(worker) {
            return;
        }
        match self.roster.strike(now_s, worker, 0.0, self.config.rest_s) {
            Some((rest_s, strikes)) => effects.push(Effect::Rest { worker, rest_s, strikes }),
            None => self.roster.strike_again(worker),
        }
        if self.expel_if_due(now_s, worker, effects) {
            self.recover(now_s, effects);
        }
    }

    /// Whether a worker failed too often to be trusted again.
    fn is_beyond_trust(&self, worker: WorkerId) -> bool {
        let (strikes, mismatches) = (self.roster.strikes_of(worker), self.roster.mismatches_of(worker));
        self.config.expel_after.is_some_and(|most| strikes >= most || mismatches >= MAX_MISMATCHES)
    }

    /// A worker that failed too often is gone for good; returns whether it is.
    pub(super) fn expel_if_due(&mut self, now_s: f64, worker: WorkerId, effects: &mut Vec<Effect>) -> bool {
        // Its failure may have been the one that ended the run.
        let is_over = matches!(self.phase, Phase::Over { .. });
        let is_due = !is_over && self.roster.is_present(worker) && self.is_beyond_trust(worker);
        if is_due {
            self.expel(worker, effects);
            self.roster.leave(worker, self.current());
            let lost = self.leases.revoke_all(now_s, worker);
            self.lost(worker, lost, false, effects);
        }
        is_due
    }

    fn expel(&self, worker: WorkerId, effects: &mut Vec<Effect>) {
        let (strikes, mismatches) = (self.roster.strikes_of(worker), self.roster.mismatches_of(worker));
        effects.push(Effect::Expel { worker, strikes, mismatches });
    }

    /// Ends the run; a step under way is committed before.
    pub(super) fn abort(&mut self, reason: AbortReason, effects: &mut Vec<Effect>) {
        if matches!(self.phase, Phase::Committing(_)) {
            self.aborting = Some(reason);
            return;
        }
        self.phase = Phase::Over { next: self.next_iteration() };
        effects.push(Effect::Abort { reason });
    }

    /// Sets the deadline of what a worker computes now, if it computes anything.
    pub(super) fn set_deadline(&mut self, worker: WorkerId) {
        let Some(timeout_s) = self.config.lease_timeout_s else { return };
        let Some((tasks, failures)) = self.leases.current(worker) else { return };
        let known = &self.statistics[worker.slot()];
        let usual_s = known.expected_s(tasks.count).map_or(timeout_s, |expected_s| {
            (LEASE_TIMEOUT_FACTOR * known.variation().max(1.0) * expected_s).max(LEAST_ALLOWANCE * timeout_s)
        });
        // Longer each time: the tasks may be slower than thought.
        let doublings = failures.max(self.roster.strikes_of(worker)).min(MAX_DOUBLINGS);
        self.leases.set_deadline(worker, usual_s * f64::from(1_u32 << doublings));
    }

    /// A worker goes on that may have been held up.
    pub(super) fn go_on(&mut self, now_s: f64, worker: WorkerId) {
        if self.leases.go_on(now_s, worker) {
            self.set_deadline(worker);
        }
    }

    /// Evicts the workers that missed their deadline.
    pub(super) fn evict_overdue(&mut self, now_s: f64, effects: &mut Vec<Effect>) {
        for Overdue { worker, silent_s } in self.leases.overdue(now_s) {
            effects.push(Effect::Evict { worker, silent_s });
            self.strike(now_s, worker, silent_s, effects);
            if self.is_beyond_trust(worker) {
                self.expel(worker, effects);
            }
            self.roster.leave(worker, self.current());
            let lost = self.leases.revoke_all(now_s, worker);
            let hung_at = lost.first().map(|ended| ended.lease.tasks);
            self.lost(worker, lost, true, effects);
            if let Some(tasks) = hung_at {
                self.blame_asynchronously(now_s, worker, tasks, effects);
            }
            self.recover(now_s, effects);
            if matches!(self.phase, Phase::Over { .. }) {
                return;
            }
        }
    }

    /// Gives orphaned tasks to the workers that finish them soonest.
    pub(super) fn reassign(&mut self, now_s: f64, effects: &mut Vec<Effect>) {
        let Phase::Collecting(iteration) = &mut self.phase else { return };
        let (number, mut orphans) = (iteration.number, std::mem::take(&mut iteration.orphans));
        let blamed = orphans.iter().filter_map(|orphan| Some((orphan.tasks, orphan.blame.clone()?)));
        if let Some((tasks, blame)) = { blamed }.find(|(_, blame)| self.is_hopeless(now_s, blame)) {
            self.give_up(number, tasks, &blame, effects);
            return;
        }
        let is_alone = self.roster.present() == 0;
        if is_alone || self.is_paused() {
            if let Phase::Collecting(iteration) = &mut self.phase {
                iteration.orphans = orphans;
            }
            if is_alone {
                self.wait(WaitReason::Workers { present: 0, needed: 1 }, effects);
            }
            return;
        }
        self.last_wait = None;
        // Tasks with the same history are reassigned together.
        orphans.sort_by(|a, b| key(a).cmp(&key(b)));
        for alike in orphans.chunk_by(|a, b| a.blame == b.blame) {
            self.reassign_alike(now_s, alike, effects);
        }
    }

    fn reassign_alike(&mut self, now_s: f64, orphans: &[Orphan], effects: &mut Vec<Effect>) {
        let blame = orphans[0].blame.clone();
        let takers = self.takers(blame.as_deref());
        let expected_s = self.expected_s(&takers);
        let load: Vec<u64> = takers.iter().map(|&taker| self.needed_tasks(taker)).collect();
        let (fuses, statistics) = (self.roster.fuses(), &self.statistics);
        let batch_s = |i: usize, tasks: u64| {
            let known = || statistics[takers[i].slot()].batches.at_most_s(tasks);
            if tasks > 0 && fuses[takers[i].slot()] { known() } else { None }
        };
        let ends_s = |i: usize, tasks: u64| match batch_s(i, tasks) {
            Some(more_s) => batch_s(i, load[i]).unwrap_or(0.0) + more_s,
            None => (load[i] + tasks) as f64 * expected_s[i],
        };
        let budget = orphans.iter().map(|orphan| orphan.tasks.count).sum();
        let Phase::Collecting(iteration) = &mut self.phase else { return };
        let (seed, number) = (self.config.seed, iteration.number);
        let rng = iteration.recovery_rng.get_or_insert_with(|| stream(seed, number, Purpose::Recovery));
        let allocation = ras_by_cost(takers.len(), budget, ends_s, rng);
        let tasks: Vec<TaskRange> = orphans.iter().map(|orphan| orphan.tasks).collect();
        let mut pieces = share_out(tasks, allocation);
        if iteration.mode.has_whole_shares() {
            join(&mut pieces, |i| fuses[takers[i].slot()]);
        }
        for (i, tasks) in pieces {
            self.cancel_unneeded(now_s, takers[i], effects);
            self.entrust(now_s, takers[i], tasks, blame.clone(), effects);
        }
    }

    /// The workers that tasks with this history may go to: of those that have not failed them, the ones that do not rest and
    /// have delivered before, or else that do not rest, or else all; or else the one that failed them the longest ago.
    fn takers(&mut self, blame: Option<&Blame>) -> Vec<WorkerId> {
        let available = self.roster.available();
        let Some(blame) = blame else { return available.to_vec() };
        let is_new = |worker: &WorkerId| !blame.workers.contains(worker);
        let (proven, others): (Vec<WorkerId>, Vec<WorkerId>) =
            available.iter().copied().filter(is_new).partition(|worker| self.roster.is_proven(*worker));
        let resting = || self.roster.all_present().filter(is_new).collect();
        let fit = if proven.is_empty() { others } else { proven };
        let new: Vec<WorkerId> = if fit.is_empty() { resting() } else { fit };
        if !new.is_empty() {
            return new;
        }
        blame.workers.iter().copied().find(|worker| available.contains(worker)).into_iter().collect()
    }

    /// Expected seconds per task: a worker's mean or, without one, the largest mean of any worker.
    pub(super) fn expected_s(&self, workers: &[WorkerId]) -> Vec<f64> {
        let mean_s = |worker: &WorkerId| self.statistics[worker.slot()].mean_s().filter(|&mean_s| mean_s > 0.0);
        let largest = workers.iter().filter_map(mean_s).fold(0.0, f64::max);
        let fallback = if largest > 0.0 { largest } else { 1.0 };
        workers.iter().map(|worker| mean_s(worker).unwrap_or(fallback)).collect()
    }

    /// How many tasks a worker holds that the step needs.
    pub(super) fn needed_tasks(&self, worker: WorkerId) -> u64 {
        let Phase::Collecting(iteration) = &self.phase else { return 0 };
        let tasks = self.leases.of(worker).map(|(lease, _)| lease.tasks);
        tasks.filter(|&tasks| iteration.mode.wants(tasks)).map(|tasks| tasks.count).sum()
    }

    /// A worker that is about to get work stops at once if the step does not need what it computes.
    pub(super) fn cancel_unneeded(&mut self, now_s: f64, worker: WorkerId, effects: &mut Vec<Effect>) {
        let Phase::Collecting(iteration) = &self.phase else { return };
        let held = || self.leases.of(worker).map(|(lease, _)| lease);
        if held().any(|lease| iteration.mode.wants(lease.tasks)) {
            return;
        }
        let unneeded: SmallVec<[LeaseId; 2]> = held().map(|lease| lease.id).collect();
        // The last first: it was not begun.
        for id in unneeded.into_iter().rev() {
            if let Some(ended) = self.leases.revoke(now_s, worker, id) {
                self.cut_short(worker, &ended, effects);
            }
        }
    }

    /// Accounts for a lease that was cancelled.
    pub(super) fn cut_short(&mut self, worker: WorkerId, ended: &Ended, effects: &mut Vec<Effect>) {
        if let Some(elapsed_s) = ended.begun_s {
            self.waste.add(self.likely_begun(worker, ended.lease.tasks.count, elapsed_s), elapsed_s);
            self.observe_cut(worker, ended.lease.tasks.count, elapsed_s);
        }
        effects.push(Effect::End { worker, lease: ended.lease, outcome: TaskOutcome::Cancelled, time: ended.time() });
    }
}

/// Orders orphans by how often they failed, and where.
fn key(orphan: &Orphan) -> (u32, Option<&[WorkerId]>) {
    orphan.blame.as_deref().map_or((0, None), |blame| (blame.attempts, Some(&blame.workers)))
}
