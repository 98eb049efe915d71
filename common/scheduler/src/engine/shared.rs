//! The state that outlives an iteration, and what happens to it in every phase.

use std::collections::{BTreeMap, VecDeque};

use super::downloads::Downloads;
use super::failures::FailureStreak;
use super::noise::NoiseScale;
use super::phase::Collecting;
use super::task_count::TaskCount;
use super::{
    AcceptedResult, Effect, EmployedWorkers, EndedLease, EngineConfig, LeaseTime, Leases, Priors, Refusal, Roster,
};
use crate::ledger::{Ledger, WorkerCost};
use crate::policy::Policy;
use crate::statistics::WorkerStatistics;
use crate::topology::LinkRates;
use ata_types::{CollectionId, Iteration, Lease, LeaseId, MachineId, TaskOutcome, WorkerId};

/// The multiple of its expected time after which a lease counts as hung. Task times with a coefficient of
/// variation of 1 exceed ten times their mean once in 20,000.
const LEASE_TIMEOUT_FACTOR: f64 = 10.0;

/// The shortest limit on a lease, as a share of [`EngineConfig::lease_timeout_s`]: a worker whose tasks take milliseconds
/// may pause for six seconds if an unknown one has a minute. By default this is longer than heartbeats need to
/// reveal a dead connection, so that only workers that are alive but do not answer are evicted.
const LEAST_ALLOWANCE: f64 = 1.0 / 10.0;

const MAX_DOUBLINGS: u32 = 16;

#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Waste {
    pub(super) tasks: u64,
    pub(super) busy_s: f64,
}

impl Waste {
    pub(super) fn add(&mut self, tasks: u64, busy_s: f64) {
        self.tasks += tasks;
        self.busy_s += busy_s;
    }
}

/// The state that all phases share. State that belongs to one phase is in that phase.
pub(super) struct Shared {
    pub(super) config: EngineConfig,
    pub(super) policy: Box<dyn Policy>,
    pub(super) roster: Roster,
    pub(super) leases: Leases,
    pub(super) statistics: Vec<WorkerStatistics>,
    pub(super) priors: Priors,
    pub(super) failures: FailureStreak,
    pub(super) ledger: Ledger,
    pub(super) noise: NoiseScale,
    /// The number of tasks, once an iteration has begun, if the engine chooses it.
    pub(super) task_count: Option<TaskCount>,
    /// The iteration after the current one, if it is local steps that have begun.
    pub(super) ahead: Option<Box<Collecting>>,
    pub(super) waste: Waste,
    /// The number of results that arrived for the iteration that is committed next.
    pub(super) results: u64,
    /// Results that are computed, and whose own collections are being sent.
    pub(super) sent: BTreeMap<(WorkerId, CollectionId), AcceptedResult>,
    /// Results that wait for an asynchronous step, oldest first.
    pub(super) arrivals: VecDeque<AcceptedResult>,
    /// Leases to cancel once they are too late, oldest first; some may have ended.
    pub(super) granted: VecDeque<(WorkerId, Lease)>,
    pub(super) links: LinkRates,
    pub(super) collections: u64,
    /// An empty set, for the next iteration to reuse.
    pub(super) spare: EmployedWorkers,
    pub(super) began_s: Option<f64>,
    /// The time at which the last step had all its results.
    pub(super) last_step_s: Option<f64>,
    /// Whether an iteration has begun since this engine was created or restored.
    pub(super) has_begun: bool,
    pub(super) last_wait: Option<(usize, usize)>,
    pub(super) downloads: Downloads,
    pub(super) now_s: f64,
    pub(super) effects: Vec<Effect>,
}

impl Shared {
    pub(super) fn new(config: EngineConfig, policy: Box<dyn Policy>) -> Self {
        Self {
            config,
            policy,
            roster: Roster::default(),
            leases: Leases::default(),
            statistics: Vec::new(),
            priors: Priors::default(),
            failures: FailureStreak::default(),
            ledger: Ledger::default(),
            noise: NoiseScale::default(),
            task_count: None,
            ahead: None,
            waste: Waste::default(),
            results: 0,
            sent: BTreeMap::new(),
            arrivals: VecDeque::new(),
            granted: VecDeque::new(),
            links: LinkRates::default(),
            collections: 0,
            spare: EmployedWorkers::default(),
            began_s: None,
            last_step_s: None,
            has_begun: false,
            last_wait: None,
            downloads: Downloads::default(),
            now_s: 0.0,
            effects: Vec::new(),
        }
    }

    /// Reports that the run waits for workers, unless that was already its last report.
    pub(super) fn wait(&mut self, present: usize, needed: usize) {
        if self.last_wait != Some((present, needed)) {
            self.last_wait = Some((present, needed));
            self.effects.push(Effect::Wait { present, needed });
        }
    }

    pub(super) fn next_collection(&mut self) -> CollectionId {
        self.collections += 1;
        CollectionId(self.collections)
    }

    pub(super) fn add(&mut self, worker: WorkerId) {
        self.roster.add(worker);
        self.leases.add(worker);
        self.ledger.worker(worker);
        self.statistics.resize(self.statistics.len().max(worker.slot() + 1), WorkerStatistics::default());
    }

    /// Lets a worker join that is not present. It inherits failures of its machine unless `is_over`.
    pub(super) fn join(&mut self, worker: WorkerId, machine: MachineId, prior: WorkerStatistics, is_over: bool) {
        self.roster.arrive(worker, machine);
        if !is_over && !self.roster.proven.contains(worker) {
            let inherited = self.roster.inherit(self.now_s, worker, machine);
            self.effects.extend(inherited.map(|(rest_s, strikes)| Effect::Rest { worker, rest_s, strikes }));
        }
        self.roster.join(self.now_s, worker, machine);
        if self.roster.fit.contains(worker) {
            self.failures.shorten_pause(self.config.rest_s);
        }
        let statistics = &mut self.statistics[worker.slot()];
        if statistics.observed == 0
            && let Some(known) = self.priors.add(worker, prior)
        {
            *statistics = known;
            self.policy.learned(worker, &known);
        }
    }

    /// Drops everything known about an absent worker; returns `false` if it is present or unknown.
    pub(super) fn forget(&mut self, worker: WorkerId) -> bool {
        let is_known = worker.slot() < self.statistics.len() && !self.roster.present.contains(worker);
        if is_known {
            self.roster.forget(worker);
            self.statistics[worker.slot()] = WorkerStatistics::default();
            self.priors.forget(worker);
            *self.ledger.worker(worker) = WorkerCost::default();
            self.policy.forget(worker);
            self.links.forget(worker);
        }
        is_known
    }

    /// Takes a lease back from a leaving worker that has not begun it.
    pub(super) fn give_back(&mut self, worker: WorkerId, id: LeaseId) -> Result<EndedLease, Refusal> {
        let is_leaving = self.roster.leaving.contains(worker);
        let held = if is_leaving { self.leases.revoke(self.now_s, worker, id) } else { None };
        let ended = EndedLease { elapsed_s: None, ..held.ok_or(Refusal::NotHeld(id))? };
        self.end_unfinished(worker, &ended, TaskOutcome::Cancelled);
        self.release_or_time(worker);
        Ok(ended)
    }

    /// Returns whether a worker is sending results in collections of their own.
    pub(super) fn is_sending(&self, worker: WorkerId) -> bool {
        self.sent.range((worker, CollectionId(0))..=(worker, CollectionId(u64::MAX))).next().is_some()
    }

    /// Handles the loss of a present worker. Returns its leases, which are lost along with what it was sending.
    pub(super) fn lose(&mut self, worker: WorkerId) -> Vec<EndedLease> {
        self.roster.leave(worker);
        let mut lost = self.leases.revoke_all(self.now_s, worker);
        for ended in &lost {
            self.end_unfinished(worker, ended, TaskOutcome::Lost);
        }
        lost.extend(self.drop_sent(worker, TaskOutcome::Lost));
        self.lose_ahead(worker, lost)
    }

    /// Ends the leases whose results a worker was sending, with `outcome`, and returns them.
    pub(super) fn drop_sent(&mut self, worker: WorkerId, outcome: TaskOutcome) -> Vec<EndedLease> {
        let all = (worker, CollectionId(0))..=(worker, CollectionId(u64::MAX));
        let sent: Vec<CollectionId> = self.sent.range(all).map(|((_, collection), _)| *collection).collect();
        sent.into_iter().filter_map(|collection| self.end_sent(worker, collection, outcome)).collect()
    }

    /// Ends the lease of a collection that is being sent, with `outcome`. Returns the lease; `None` if the collection is not being sent.
    pub(super) fn end_sent(&mut self, worker: WorkerId, id: CollectionId, outcome: TaskOutcome) -> Option<EndedLease> {
        let result = self.sent.remove(&(worker, id))?;
        self.discard(&result, outcome);
        self.roster.stepped(worker);
        Some(EndedLease { lease: result.lease, blame: None, elapsed_s: Some(result.busy_s) })
    }

    pub(super) fn discard(&mut self, result: &AcceptedResult, outcome: TaskOutcome) {
        self.effects.push(result.end(outcome));
        self.waste.add(result.lease.tasks.count, result.busy_s);
    }

    pub(super) fn accept(
        &mut self,
        worker: WorkerId,
        id: LeaseId,
        busy_s: &[f64],
        waited_s: f64,
    ) -> Result<AcceptedResult, Refusal> {
        let lease = self.leases.find(worker, id).ok_or(Refusal::NotHeld(id))?;
        let reported_s: f64 = busy_s.iter().sum();
        let is_valid = busy_s.iter().chain([&waited_s]).all(|time| *time >= 0.0) && (reported_s + waited_s).is_finite();
        let fuses = self.roster.fuses[worker.slot()];
        let times = if fuses { 1 } else { lease.tasks.count };
        if busy_s.len() as u64 != times || !is_valid {
            return Err(Refusal::BadTimes { lease: id, times });
        }
        let result = self.leases.finish(self.now_s, worker, id, reported_s, waited_s).ok_or(Refusal::NotHeld(id))?;
        let AcceptedResult { factor, overhead_s, .. } = result;
        self.roster.proven.insert(worker);
        if !self.roster.give_parameters(worker, lease.iteration) {
            self.downloads.end(lease.iteration, result.waited_s);
        }
        if fuses {
            self.observe_batch(worker, lease.tasks.count, result.busy_s);
        } else {
            for time in busy_s {
                self.observe(worker, time * factor);
            }
        }
        if let Some(overhead_s) = overhead_s {
            self.observe_overhead(worker, overhead_s);
        } else {
            self.set_deadline(worker);
        }
        if let Some(collection) = lease.own {
            self.sent.insert((worker, collection), result);
        }
        Ok(result)
    }

    pub(super) fn receive(&mut self, worker: WorkerId, collection: CollectionId) -> Option<AcceptedResult> {
        let result = self.sent.remove(&(worker, collection))?;
        self.roster.forgive(worker);
        self.results += 1;
        Some(result)
    }

    pub(super) fn await_step(&mut self, result: AcceptedResult) {
        self.failures.end();
        self.arrivals.push_back(result);
    }

    /// Handles a collection of one lease that will not arrive: its worker failed, and rests. Returns the lease.
    pub(super) fn fail_own(&mut self, worker: WorkerId, collection: CollectionId) -> Option<EndedLease> {
        if let Some(ended) = self.end_sent(worker, collection, TaskOutcome::Failed) {
            self.rest(worker, ended.elapsed_s.unwrap_or(0.0), false);
            return Some(ended);
        }
        // The worker has not reported that it is computed.
        let lease = self.leases.find_by(worker, |lease| lease.own == Some(collection))?;
        self.fail(worker, lease, false).ok()
    }

    /// Handles a worker's report that a lease failed. The worker rests.
    pub(super) fn fail(&mut self, worker: WorkerId, id: LeaseId, uncomputable: bool) -> Result<EndedLease, Refusal> {
        let ended = self.leases.revoke(self.now_s, worker, id).ok_or(Refusal::NotHeld(id))?;
        let (lease, lost_s) = (ended.lease, ended.elapsed_s.unwrap_or(0.0));
        self.waste.add(lease.tasks.count, lost_s);
        let time = LeaseTime::Censored { elapsed_s: ended.elapsed_s };
        self.effects.push(Effect::End { worker, lease, outcome: TaskOutcome::Failed, time });
        self.rest(worker, lost_s, uncomputable);
        Ok(ended)
    }

    /// Lets a worker rest after it failed on a lease, which took it `lost_s` seconds. It continues with its other leases.
    fn rest(&mut self, worker: WorkerId, lost_s: f64, uncomputable: bool) {
        if self.strike(worker, lost_s, uncomputable) {
            let eased = self.roster.shorten_rests(self.now_s, worker, self.config.rest_s);
            let rest = |(worker, rest_s, strikes)| Effect::Rest { worker, rest_s, strikes };
            self.effects.extend(eased.into_iter().map(rest));
        }
        self.release_or_time(worker);
    }

    /// Accounts for a lease that was revoked because it is no longer needed.
    pub(super) fn cancel(&mut self, worker: WorkerId, ended: &EndedLease) {
        self.end_unfinished(worker, ended, TaskOutcome::Cancelled);
        let computed_s = |elapsed_s| elapsed_s - self.receiving_s(worker, ended.lease.iteration);
        if let Some(computed_s) = ended.elapsed_s.map(computed_s).filter(|seconds| *seconds > 0.0) {
            self.observe_censored(worker, ended.lease.tasks.count, computed_s);
        }
    }

    /// Returns the seconds that a worker may have waited for the parameters of an iteration, if it has reported no result of that iteration.
    fn receiving_s(&self, worker: WorkerId, iteration: Iteration) -> f64 {
        if self.roster.has_parameters(worker, iteration) {
            return 0.0;
        }
        let predicted_s = self.links.times().sets_s(worker, self.downloads.workers(iteration));
        self.downloads.all_s(iteration).max(predicted_s)
    }

    /// Ends a lease without a result, with `outcome`, after which some of its tasks had likely begun.
    fn end_unfinished(&mut self, worker: WorkerId, ended: &EndedLease, outcome: TaskOutcome) {
        let EndedLease { lease, elapsed_s, .. } = *ended;
        self.effects.push(Effect::End { worker, lease, outcome, time: LeaseTime::Censored { elapsed_s } });
        let Some(elapsed_s) = elapsed_s else { return };
        let mean_s = self.statistics[worker.slot()].mean_s();
        let begun = match mean_s {
            _ if self.roster.fuses[worker.slot()] => lease.tasks.count,
            Some(mean_s) => ((elapsed_s / mean_s).ceil() as u64).clamp(1, lease.tasks.count),
            None => 1,
        };
        self.waste.add(begun, elapsed_s);
    }

    /// Handles the end of a worker's lease: the worker becomes idle, or its next lease gets a deadline.
    pub(super) fn release_or_time(&mut self, worker: WorkerId) {
        if self.leases.is_free(worker) {
            self.roster.release(worker);
        } else {
            self.set_deadline(worker);
        }
    }

    pub(super) fn set_deadline(&mut self, worker: WorkerId) {
        let Some(timeout_s) = self.config.lease_timeout_s else { return };
        let Some((lease, blame)) = self.leases.of(worker).next() else { return };
        let known = &self.statistics[worker.slot()];
        let usual_s = known.expected_s(lease.tasks.count).map_or(timeout_s, |expected_s| {
            (LEASE_TIMEOUT_FACTOR * known.variation().max(1.0) * expected_s).max(LEAST_ALLOWANCE * timeout_s)
        });
        // The limit doubles with each failure, because the tasks may be slower than expected.
        let failures = blame.map_or(0, |blame| blame.attempts);
        let doublings = failures.max(self.roster.strikes_of(worker)).min(MAX_DOUBLINGS);
        self.leases.set_deadline(worker, usual_s * f64::from(1_u32 << doublings));
    }

    /// Lets the deadline of a worker run again if it was blocked.
    pub(super) fn unblock(&mut self, worker: WorkerId) {
        if self.leases.resume(self.now_s, worker) {
            self.set_deadline(worker);
        }
    }
}
