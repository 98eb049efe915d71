//! The phase in which tasks are assigned and results are awaited, until the step has all that it needs.

mod checks;
mod collections;
mod parts;
mod recovery;

use std::collections::BTreeMap;
use std::ops::ControlFlow;
use std::sync::Arc;

use super::Committing;
use crate::engine::collect::Mode;
use crate::engine::leases::longest_busy_s;
use crate::engine::{AbortReason, AcceptedResult, Actions, Blame, Copies, Effect, EmployedWorkers, Shared, WorkerSet};
use crate::policy::{Collect, Decision, SchedulerRng};
use ata_types::{Iteration, Lease, TaskOutcome, TaskRange, WorkerId};
use checks::Check;
use collections::Collections;
use recovery::Orphan;

pub(crate) enum CollectingEnd {
    Complete,
    Abort(AbortReason),
}

/// The result of an action in the collecting phase; `Break` ends the phase.
pub(crate) type Flow = ControlFlow<CollectingEnd>;

/// The state that exists only while the results of an iteration are collected.
pub(crate) struct Collecting {
    pub(crate) number: Iteration,
    decision: Arc<Decision>,
    mode: Mode,
    /// The number of tasks of the run before it.
    position: u64,
    pub(crate) started_s: f64,
    /// The time of the decision, at which an iteration ahead begins.
    pub(crate) decided_s: f64,
    /// The workers that the decision is about.
    decided: Arc<[WorkerId]>,
    /// The number of workers that took part: those available at the start, and those that joined later.
    workers: u64,
    /// Whether its first tasks are handed out.
    has_begun: bool,
    /// The workers that left during the iteration: they count once, even if they come back.
    pub(crate) left: WorkerSet,
    collections: Collections,
    pub(crate) employed: EmployedWorkers,
    orphans: Vec<Orphan>,
    /// Tasks whose result is taken only once two workers agree on it, by their first index.
    checks: BTreeMap<u64, Check>,
    actions: Actions,
    copies: Copies,
    /// Failures since the last step of an asynchronous run, in which no worker retries a task.
    blame: Blame,
    /// The random numbers of recovery, created on first use.
    recovery_rng: Option<SchedulerRng>,
}

impl Collecting {
    /// Decides on an iteration after `position` tasks of the run. Nothing is assigned yet.
    pub(crate) fn decide(shared: &mut Shared, number: Iteration, position: u64) -> Result<Self, AbortReason> {
        for worker in shared.priors.review(number, &mut shared.statistics) {
            shared.policy.learned(worker, &shared.statistics[worker.slot()]);
        }
        let decided = shared.roster.available();
        let tasks = shared.choose_tasks(number, position);
        let decision = shared.decide(number, tasks, &decided).map_err(|problem| AbortReason::BadDecision {
            iteration: number,
            policy: shared.policy.name(),
            problem,
        })?;
        Ok(Self {
            number,
            mode: Mode::new(&decision, !shared.config.takes_local_steps),
            decision: Arc::new(decision),
            position,
            started_s: shared.now_s,
            decided_s: shared.now_s,
            workers: decided.len() as u64,
            decided,
            has_begun: false,
            left: WorkerSet::default(),
            collections: Collections::default(),
            employed: std::mem::take(&mut shared.spare),
            orphans: Vec::new(),
            checks: BTreeMap::new(),
            actions: Actions::default(),
            copies: Copies::default(),
            blame: Blame::default(),
            recovery_rng: None,
        })
    }

    /// Begins the iteration, or goes on if it had begun ahead.
    pub(crate) fn begin(&mut self, shared: &mut Shared) -> Flow {
        // Asynchronous workers compute while a step is taken, so an iteration's time begins where that of the previous one ended.
        let began_s = if self.is_asynchronous() { shared.last_step_s.or(shared.began_s) } else { None };
        self.started_s = began_s.unwrap_or(shared.now_s);
        let (iteration, position) = (self.number, self.position);
        let probed = shared.links.next_probe(&self.decided);
        shared.effects.extend(probed.map(|(worker, bytes)| Effect::ProbeLink { worker, bytes }));
        let (workers, decision) = (Arc::clone(&self.decided), Arc::clone(&self.decision));
        shared.effects.push(Effect::Start { iteration, position, workers, decision });
        if !self.has_begun {
            return self.hand_out(shared);
        }
        if self.mode.is_complete() { Flow::Break(CollectingEnd::Complete) } else { self.recover(shared) }
    }

    pub(crate) fn hand_out(&mut self, shared: &mut Shared) -> Flow {
        self.has_begun = true;
        for (i, tasks) in self.mode.shares(&self.decision) {
            self.assign_checked(shared, self.decided[i], tasks, None);
        }
        self.continue_checks(shared)?;
        self.replan(shared)?;
        if let Collect::Each { max_delay, .. } = self.decision.collect {
            self.cancel_late(shared, max_delay);
            self.employ_idle(shared);
            self.next_arrival(shared)?;
        }
        Flow::Continue(())
    }

    pub(crate) fn has_orphans(&self) -> bool {
        !self.orphans.is_empty()
    }

    /// Returns whether a worker that has done its tasks may go on with the next iteration, since nothing is left to hand out, and one waits.
    pub(crate) fn may_go_on(&mut self, shared: &Shared) -> bool {
        let waits = |worker: &WorkerId| shared.roster.may_begin(*worker, false);
        self.is_stepping() || self.mode.step.is_some() && !self.has_more() && self.employed.workers().iter().any(waits)
    }

    /// Returns the number of tasks of the step, all of which are handed out.
    pub(crate) fn tasks(&self) -> u64 {
        let results = || self.results().map(|result| result.lease.tasks.count).sum();
        self.mode.step.map_or_else(results, |tasks| tasks.count)
    }

    fn has_more(&mut self) -> bool {
        let pool = self.mode.pool();
        pool.is_some_and(|pool| pool.iter().any(|tasks| tasks.count > 0)) || !self.orphans.is_empty()
    }

    /// Returns whether each result makes its own step.
    pub(crate) fn is_asynchronous(&self) -> bool {
        matches!(self.decision.collect, Collect::Each { .. })
    }

    /// Returns the time at which to ask the policy again if nothing happens before, in seconds since the run began.
    pub(crate) fn ask_again_s(&self) -> Option<f64> {
        self.actions.ask_again_s.filter(|_| !self.is_stepping())
    }

    /// Gives the next task, if there is one, to a worker that has nothing to do.
    fn assign_next(&mut self, shared: &mut Shared, worker: WorkerId) {
        if shared.roster.present.contains(worker)
            && let Some(tasks) = self.mode.next(shared.roster.fuses[worker.slot()])
        {
            self.assign(shared, worker, tasks, None);
        }
    }

    fn assign(&mut self, shared: &mut Shared, worker: WorkerId, tasks: TaskRange, blame: Option<Box<Blame>>) -> Lease {
        let was_free = shared.leases.is_free(worker);
        let is_own = self.is_asynchronous() || self.checks.contains_key(&tasks.first);
        let own = is_own.then(|| shared.next_collection());
        let lease = shared.leases.grant(shared.now_s, worker, self.number, tasks, own, blame);
        if !is_own && self.mode.wants(tasks) && !self.mode.races {
            self.will_collect(worker, lease);
        }
        self.employed.add(worker);
        if matches!(self.decision.collect, Collect::Each { cancel: true, .. }) {
            shared.granted.push_back((worker, lease));
        }
        if was_free {
            if !shared.roster.has_parameters(worker, self.number) {
                shared.downloads.add(self.number);
            }
            shared.roster.employ(worker);
            shared.set_deadline(worker);
        }
        shared.effects.push(Effect::Assign { worker, lease, position: self.position });
        lease
    }

    /// Cancels computations whose delay has reached R, which would be ignored, and the sending of their results: Ringmaster with
    /// calculation stops.
    fn cancel_late(&mut self, shared: &mut Shared, max_delay: u64) {
        let Shared { granted, leases, sent, .. } = shared;
        // Leases that have ended are skipped; if R is large, there may be many of them.
        if granted.len() > 4 * (leases.len + sent.len()) + 64 {
            let is_sent = |worker, lease: &Lease| lease.own.is_some_and(|own| sent.contains_key(&(worker, own)));
            granted.retain(|(worker, lease)| leases.find(*worker, lease.id).is_some() || is_sent(*worker, lease));
        }
        let is_late = |iteration: Iteration| self.number.since(iteration) >= max_delay;
        while let Some((worker, lease)) = shared.granted.pop_front_if(|(_, lease)| is_late(lease.iteration)) {
            if let Some(ended) = shared.leases.revoke(shared.now_s, worker, lease.id) {
                shared.cancel(worker, &ended);
            } else if lease.own.and_then(|own| shared.end_sent(worker, own, TaskOutcome::Cancelled)).is_none() {
                continue;
            }
            shared.roster.release(worker);
        }
    }

    pub(crate) fn lease_done(&mut self, shared: &mut Shared, result: AcceptedResult) -> Flow {
        let AcceptedResult { worker, lease, .. } = result;
        let is_own = lease.own.is_some();
        let had_paused = !is_own && !self.are_collections_failing() && shared.failures.end();
        if is_own {
            // The result counts once it is delivered.
        } else if self.mode.wants(lease.tasks) {
            self.keep(result);
            self.stop_copies(shared, &result);
        } else {
            shared.roster.forgive(worker);
            shared.discard(&result, TaskOutcome::Ignored);
        }
        let has_leftovers = !self.orphans.is_empty();
        let is_free = shared.leases.is_free(worker);
        if is_free {
            shared.roster.release(worker);
        }
        if self.mode.is_complete() {
            return Flow::Break(CollectingEnd::Complete);
        }
        if is_free {
            self.assign_next(shared, worker);
        }
        if had_paused {
            return self.recover(shared);
        }
        if has_leftovers {
            self.reassign(shared)?;
        }
        self.replan(shared)
    }

    /// Handles the delivery of a collection with one lease.
    pub(crate) fn arrived(&mut self, shared: &mut Shared, result: AcceptedResult) -> Flow {
        if self.is_asynchronous() {
            shared.await_step(result);
            return self.next_arrival(shared);
        }
        self.unconfirmed(shared, result)
    }

    /// Goes through the results of an asynchronous run that have arrived, up to the next one that makes a step.
    pub(super) fn next_arrival(&mut self, shared: &mut Shared) -> Flow {
        while let Collect::Each { max_delay, .. } = self.decision.collect
            && let Some(result) = shared.arrivals.pop_front()
        {
            let AcceptedResult { worker, lease, .. } = result;
            shared.roster.stepped(worker);
            shared.roster.release(worker);
            if self.number.since(lease.iteration) < max_delay {
                self.take_own(result);
                return Flow::Break(CollectingEnd::Complete);
            }
            shared.discard(&result, TaskOutcome::Ignored);
            self.employ_idle(shared);
        }
        Flow::Continue(())
    }

    /// Ends the leases that are left once all results are there, and asks for the optimizer step. Returns the data from which the
    /// iteration is committed, unless the step waits for collections first.
    pub(crate) fn step(&mut self, shared: &mut Shared) -> Option<Committing> {
        // The orphans left are failed copies of tasks that others have done.
        self.orphans.clear();
        if self.mode.races {
            self.mode.settle();
        }
        self.ask(shared);
        if !self.is_asynchronous() && !shared.leases.is_empty() {
            shared.cancel_all(self.number, &self.employed);
        }
        self.order_step(shared);
        (!self.is_stepping()).then(|| self.committing(shared))
    }

    /// Returns the data from which the iteration is committed, once the step was taken with all collections.
    pub(crate) fn committing(&mut self, shared: &mut Shared) -> Committing {
        let results = self.take_kept(shared);
        if let Some(count) = &mut shared.task_count {
            let tasks = results.iter().map(|result| result.lease.tasks.count).sum();
            count.computed(tasks, longest_busy_s(&results), self.decided_s);
            if let Some(ahead) = &shared.ahead {
                count.measure(ahead.decided_s, shared.now_s - ahead.decided_s);
            }
        }
        Committing {
            number: self.number,
            started_s: self.started_s,
            finished_s: shared.now_s,
            workers: self.workers,
            results,
            employed: std::mem::take(&mut self.employed),
            occupies: self.mode.occupies,
            blame: self.is_asynchronous().then(|| std::mem::take(&mut self.blame)),
            aborting: None,
        }
    }
}
