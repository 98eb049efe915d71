//! The iteration engine: membership, leases, policy, statistics and costs, as one pure state machine.
//!
//! A driver tells it what happened and when, and carries out the effects that it returns, in order:
//!
//! ```text
//! WorkerJoined ─▶ Wait        Proceed ─▶ Start, Assign… ─▶ report() ─▶ End… ─▶ Step ─▶ StepCommitted ─▶ Committed ─┐
//!                                ▲                                                                                 │
//!                                └──────────────────── the driver saves what it has to ────────────────────────────┘
//! ```
//!
//! The coordinator drives it with real time and real workers, the simulator with virtual ones. There is no iteration
//! logic anywhere else. It never reads a clock: [`Engine::poll_timeout`] says when it next wants an [`Event::Timeout`].
//!
//! # What happens in an iteration
//! 1. Between two iterations the driver saves what it has to, and sends [`Event::Proceed`]. If enough workers are present,
//!    the policy decides on an allocation: [`Effect::Start`].
//! 2. Tasks are handed out as leases ([`Effect::Assign`]): all at once or in parts, as the policy plans. Spot checks give some
//!    leases to a second worker.
//! 3. While results are collected, each one is applied, ignored or confirmed ([`Effect::End`]), and updates the statistics of
//!    its worker. Tasks whose worker fails, hangs or leaves are given to others; the worker rests, and is expelled if it fails
//!    too often. If the same tasks fail everywhere, the run ends with [`Effect::Abort`].
//!    Gradients are kept by their worker until their sum is asked for ([`Effect::Collect`]), as soon as all tasks are handed out or
//!    the first results are known. Only results that make a step of their own, or are compared, are asked for with their lease.
//! 4. Once the step has all its results, the leases that are left are cancelled, and the driver takes the step
//!    ([`Effect::Step`]), as the collections arrive. If a worker is lost with what it kept, its tasks are computed again first.
//! 5. After [`Event::StepCommitted`] the iteration's cost enters the ledger ([`Effect::Committed`]). The run ends with
//!    [`Effect::Finish`] if that was the last iteration, or a limit is reached.
//!
//! # Layout
//! - `event`: what the engine takes in, and what it returns; `config`: how it runs, and what ends a run
//! - `phase`: a file a phase, with the state that exists only there: `between`, `collecting`, `committing`
//! - `shared`: the state that all phases share, and what happens to it in each of them
//! - `collect`: which results make a step, and which tasks are handed out for it; `downloads`: who waits for parameters
//! - `ahead`: the next iteration of local steps, which begins before the current one is over
//! - `leaving`: workers that finish what they have begun, and go
//! - `trust`: workers that fail; `failures`: when nothing succeeds any more
//! - `roster`: which workers are present, idle, resting; `leases`: the one lease table, with its deadlines
//! - `knowledge`, `priors`: statistics, the policy, and what earlier runs learned
//! - `noise`: how noisy gradients are; `task_count`: how many tasks an iteration has, if the engine chooses
//! - `view`: what a policy sees within an iteration, and what it can do; `copies`: tasks that several workers compute
//! - `saved`: everything that outlives the process, as plain data

mod ahead;
mod collect;
mod config;
mod copies;
mod downloads;
mod event;
mod failures;
mod knowledge;
mod leases;
mod leaving;
mod noise;
mod phase;
mod priors;
mod random;
mod roster;
mod saved;
mod shared;
mod task_count;
mod trust;
mod view;
mod worker_set;

pub use config::{EngineConfig, FinishReason, Limits, Verify};
pub use event::{AbortReason, Collection, Effect, Event, LeaseTime, Refusal, Report};
pub(crate) use random::{Purpose, stream};
pub use saved::{RestoreError, SavedEngine};
pub(crate) use saved::{check_progress, demand, teach};
pub use task_count::{RateScaling, TaskChoice, TaskRule};
pub use view::{Actions, Activity, IterationView};

use std::ops::{ControlFlow, Range};

use crate::ledger::Ledger;
use crate::policy::{Policy, StepOutcome};
use crate::statistics::WorkerStatistics;
use crate::topology::{LinkRates, LinkSetting};
use ata_types::{CollectionId, Iteration, Lease, LeaseId, MachineId, WorkerId};
use collect::share_out;
use copies::Copies;
use failures::Blame;
use leases::{AcceptedResult, EndedLease, Leases};
use phase::{Between, Collecting, CollectingEnd, Flow, Phase};
use priors::Priors;
use roster::Roster;
use shared::Shared;
use worker_set::{EmployedWorkers, WorkerSet};

/// The iteration engine. See the module's documentation.
pub struct Engine {
    shared: Shared,
    phase: Phase,
}

impl Engine {
    /// Creates an engine at the start of a run.
    ///
    /// # Panics
    /// If the budget or the number of workers to wait for is 0, or `overcommit` or `rest_s` is not at least 0.
    pub fn new(config: EngineConfig, policy: Box<dyn Policy>) -> Self {
        assert!(config.budget >= 1 && config.min_workers >= 1, "a run needs a task and a worker");
        assert!(config.overcommit >= 0.0 && config.rest_s >= 0.0, "shares and times are not negative");
        Self { shared: Shared::new(config, policy), phase: Phase::Between(Between::new(Iteration::FIRST, None)) }
    }

    /// Handles an event at `now_s`, in seconds since the run began (never decreasing), and appends the effects to carry out.
    pub fn handle(&mut self, now_s: f64, event: Event, effects: &mut Vec<Effect>) {
        self.at(now_s, effects, |engine| match event {
            Event::WorkerJoined { worker, machine, prior, fuses } => engine.join(worker, machine, prior, fuses),
            Event::WorkerLost { worker } => engine.lose(worker),
            Event::WorkerLeaving { worker } => engine.begin_to_leave(worker),
            Event::WorkerForgotten { worker } => engine.forget(worker),
            Event::Violation { worker } => engine.violation(worker),
            Event::Blocked { worker } => engine.shared.leases.block(now_s, worker),
            Event::Resumed { worker } => engine.shared.unblock(worker),
            Event::Compared { tasks, first, second, agree } => {
                engine.collect(|collecting, shared| collecting.compared(shared, tasks, (first, second), agree));
            }
            Event::LinkObserved(observed) => engine.shared.links.observe(observed),
            Event::Delivered { worker, collection } => engine.delivered(worker, collection),
            Event::CollectionFailed { worker, collection } => engine.collection_failed(worker, collection),
            Event::StepCommitted { iteration, outcome } => engine.step_committed(iteration, &outcome),
            Event::NotSaved => engine.shared.revert_tasks(),
            Event::Proceed => engine.proceed(),
            Event::Timeout => engine.timeout(),
            Event::Forgiven { worker } => {
                engine.shared.roster.pardon(now_s, worker);
                engine.timeout();
            }
        });
    }

    /// Handles a worker's report on a lease at `now_s`, and appends the effects to carry out. A refused report changes nothing.
    pub fn report(
        &mut self,
        now_s: f64,
        worker: WorkerId,
        lease: LeaseId,
        report: Report<'_>,
        effects: &mut Vec<Effect>,
    ) -> Result<(), Refusal> {
        self.at(now_s, effects, |engine| match report {
            Report::Done { busy_s, waited_s } => engine.lease_done(worker, lease, busy_s, waited_s),
            Report::GivenBack => engine.given_back(worker, lease),
            Report::Failed { uncomputable } => {
                let ended = engine.shared.fail(worker, lease, uncomputable)?;
                engine.failed(worker, ended);
                Ok(())
            }
        })
    }

    /// Calls `handle` at the time `now_s`, and collects its effects in the caller's list.
    fn at<T>(&mut self, now_s: f64, effects: &mut Vec<Effect>, handle: impl FnOnce(&mut Self) -> T) -> T {
        self.shared.now_s = now_s;
        std::mem::swap(&mut self.shared.effects, effects);
        let handled = handle(self);
        self.go_on();
        self.let_leave();
        std::mem::swap(&mut self.shared.effects, effects);
        handled
    }

    /// Returns the time at which to send [`Event::Timeout`] if nothing happens before, in seconds since the run began.
    pub fn poll_timeout(&mut self) -> Option<f64> {
        let Shared { leases, roster, failures, ahead, .. } = &mut self.shared;
        let ask_again_s = match (&self.phase, ahead) {
            // The policy is not asked during a pause.
            _ if failures.is_pause() => None,
            (_, Some(ahead)) => ahead.ask_again_s(),
            (Phase::Collecting(collecting), None) => collecting.ask_again_s(),
            _ => None,
        };
        let times = [leases.next_deadline_s(), roster.next_rest_end_s(), ask_again_s, failures.paused_until_s];
        times.into_iter().flatten().reduce(f64::min)
    }

    /// Returns the current iteration, or the next one; once the run is over, the last one committed.
    pub fn iteration(&self) -> Iteration {
        match &self.phase {
            Phase::Over { .. } => Iteration(self.shared.ledger.iterations),
            phase => phase.next_iteration(),
        }
    }

    /// Returns the range of the last committed iteration's tasks among those of the run; empty before the first.
    pub fn last_tasks(&self) -> Range<u64> {
        let Shared { config, ledger, .. } = &self.shared;
        let last = Iteration(ledger.iterations);
        let Some(cost) = &ledger.last else { return 0..0 };
        let before = ledger.tasks_applied.saturating_sub(cost.tasks_applied);
        config.position(last, before)..config.position(last.next(), ledger.tasks_applied)
    }

    /// Returns the workers that are present, ascending.
    pub fn present(&self) -> impl Iterator<Item = WorkerId> + '_ {
        self.shared.roster.present.iter()
    }

    /// Returns what is known about the links.
    pub fn links(&self) -> &LinkRates {
        &self.shared.links
    }

    /// Sets the rates of all links, if they are known before the run begins.
    pub fn know_links(&mut self, setting: LinkSetting) {
        self.shared.links = LinkRates::known(setting);
    }

    /// Returns a lease, if the worker holds it.
    pub fn lease(&self, worker: WorkerId, lease: LeaseId) -> Option<Lease> {
        self.shared.leases.find(worker, lease)
    }

    /// Returns whether nothing counts against a worker, and no result of it is under check.
    pub fn is_clear(&self, worker: WorkerId) -> bool {
        let is_checked = matches!(&self.phase, Phase::Collecting(collecting) if collecting.checks(worker));
        !is_checked && self.shared.roster.is_clear(worker)
    }

    /// Returns the costs so far.
    pub fn ledger(&self) -> &Ledger {
        &self.shared.ledger
    }

    /// Returns what is known about each worker's speed, by slot.
    pub fn statistics(&self) -> &[WorkerStatistics] {
        &self.shared.statistics
    }

    /// Returns the name of the policy.
    pub fn policy(&self) -> &'static str {
        self.shared.policy.name()
    }

    /// Lets the collecting phase handle something, if it is the current one, and leaves the phase if that ends it.
    fn collect(&mut self, handle: impl FnOnce(&mut Collecting, &mut Shared) -> Flow) {
        let Self { shared, phase } = self;
        let Phase::Collecting(collecting) = phase else { return };
        let next = match handle(collecting, shared) {
            ControlFlow::Continue(()) => return collecting.ask(shared),
            ControlFlow::Break(CollectingEnd::Complete) => collecting.step(shared).map(Phase::Committing),
            ControlFlow::Break(CollectingEnd::Abort(reason)) => Some(Phase::abort(shared, collecting.number, reason)),
        };
        if let Some(next) = next {
            self.phase = next;
        }
    }

    fn join(&mut self, worker: WorkerId, machine: MachineId, prior: WorkerStatistics, fuses: bool) {
        self.shared.add(worker);
        self.lose(worker);
        self.shared.roster.fuses[worker.slot()] = fuses;
        let is_over = matches!(self.phase, Phase::Over { .. });
        self.shared.join(worker, machine, prior, is_over);
        match self.phase {
            Phase::Between(_) => self.start(),
            _ => self.collect(|collecting, shared| collecting.worker_joined(shared, worker)),
        }
        self.ahead(|ahead, shared| ahead.worker_joined(shared, worker));
    }

    fn lose(&mut self, worker: WorkerId) {
        let roster = &self.shared.roster;
        if roster.present.contains(worker) || roster.leaving.contains(worker) {
            let lost = self.shared.lose(worker);
            self.collect(|collecting, shared| {
                collecting.worker_left(shared, worker, lost);
                collecting.recover(shared)
            });
        }
    }

    fn forget(&mut self, worker: WorkerId) {
        if self.shared.forget(worker)
            && let Phase::Collecting(collecting) = &mut self.phase
        {
            // The worker that gets its number takes part as well.
            collecting.left.remove(worker);
        }
    }

    fn lease_done(&mut self, worker: WorkerId, lease: LeaseId, busy_s: &[f64], waited_s: f64) -> Result<(), Refusal> {
        let result = self.shared.accept(worker, lease, busy_s, waited_s)?;
        match &self.phase {
            _ if self.shared.is_ahead(result.lease.iteration) => {
                self.ahead(|ahead, shared| ahead.lease_done(shared, result));
            }
            Phase::Collecting(collecting) if !collecting.is_asynchronous() => {
                self.collect(|collecting, shared| collecting.lease_done(shared, result));
                self.ahead(Collecting::resume);
            }
            // Only asynchronous leases outlive their iteration. Their worker gets the next task once this result is in a step.
            _ => self.shared.roster.await_step(worker),
        }
        Ok(())
    }

    fn failed(&mut self, worker: WorkerId, ended: EndedLease) {
        let Some(ended) = self.shared.recompute_ahead(worker, ended, true) else { return self.expel_if_due(worker) };
        match &mut self.phase {
            Phase::Collecting(_) => {
                return self.collect(|collecting, shared| collecting.lease_failed(shared, worker, ended));
            }
            Phase::Committing(committing) => committing.failed(&self.shared, worker, ended.lease.tasks),
            Phase::Between(_) | Phase::Over { .. } => {}
        }
        self.expel_if_due(worker);
    }

    fn delivered(&mut self, worker: WorkerId, collection: CollectionId) {
        match (&mut self.phase, self.shared.receive(worker, collection)) {
            (Phase::Collecting(_), Some(result)) => {
                self.collect(|collecting, shared| collecting.arrived(shared, result));
            }
            (_, Some(result)) => self.shared.await_step(result),
            (Phase::Collecting(collecting), None) => collecting.delivered(&mut self.shared, worker, collection),
            (_, None) => {}
        }
    }

    fn collection_failed(&mut self, worker: WorkerId, collection: CollectionId) {
        match self.shared.fail_own(worker, collection) {
            Some(ended) => self.failed(worker, ended),
            None => self.collect(|collecting, shared| collecting.collection_failed(shared, worker, collection)),
        }
    }

    fn step_committed(&mut self, iteration: Iteration, outcome: &StepOutcome) {
        let Self { shared, phase } = self;
        let next = match phase {
            Phase::Committing(committing) if committing.number == iteration => committing.commit(shared, outcome),
            Phase::Collecting(collecting) if collecting.number == iteration && collecting.is_stepping() => {
                collecting.committing(shared).commit(shared, outcome)
            }
            _ => return,
        };
        self.phase = next;
    }

    fn proceed(&mut self) {
        if let Phase::Between(between) = &mut self.phase {
            between.may_begin = true;
            self.start();
        }
    }

    /// Enters the phase that follows [`Between`], if the next iteration begins or the run is over.
    fn start(&mut self) {
        if let Phase::Between(between) = &self.phase
            && let Some(next) = between.start(&mut self.shared)
        {
            self.phase = next;
            self.collect(Collecting::begin);
        }
    }

    fn timeout(&mut self) {
        self.evict_overdue();
        let Shared { failures, roster, leases, now_s, .. } = &mut self.shared;
        for worker in roster.end_rests(*now_s).into_iter().filter(|worker| leases.is_free(*worker)) {
            roster.release(worker);
        }
        if failures.paused_until_s.take_if(|at_s| at_s <= now_s).is_some() {
            self.collect(Collecting::recover);
        } else {
            self.collect(Collecting::resume);
        }
        self.ahead(Collecting::resume);
    }
}
