//! The iteration engine: membership, leases, policy, statistics and costs, as one pure state machine.
//!
//! A driver tells it what happened and when, and carries out the effects it returns, in order:
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
//! # Layout
//! - `event`: what it takes in, and what it returns
//! - `course`: an iteration begun, allocated, stepped, committed
//! - `collect`: which results make a step, one file per mode
//! - `results`: what workers report; `recovery`: lost, hung and failing workers; `trouble`: when nothing succeeds any more;
//!   `checks`: results that two must confirm
//! - `plan`: tasks handed out in parts, as the policy orders; `midway`: what it sees and says; `pool`: tasks that no worker has
//!   been given yet; `copies`: tasks that several compute
//! - `roster`: which workers are present, idle, resting; `leases`: the one lease table, with its deadlines
//! - `knowledge`, `priors`: statistics, the policy, and what earlier runs learned
//! - `saved`: everything that outlives the process, as plain data

mod blame;
mod checks;
mod collect;
mod copies;
mod course;
mod event;
mod iteration;
mod knowledge;
mod layout;
mod leases;
mod limits;
mod midway;
mod plan;
mod pool;
mod priors;
mod random;
mod recovery;
mod results;
mod roster;
mod saved;
mod time;
mod trouble;
mod worker_set;

pub use checks::Verify;
pub use event::{AbortReason, Effect, Event, LeaseTime, Refusal, Report, WaitReason};
pub use limits::{FinishReason, Limits};
pub use midway::{Doing, Midway, Orders};
pub use saved::{RestoreError, SavedEngine};

use std::collections::VecDeque;

use crate::ledger::Ledger;
use crate::policy::Policy;
use crate::statistics::WorkerStatistics;
use ata_types::{Iteration, Lease, LeaseId, MachineId, WorkerId};
use iteration::{Collecting, Employed, Taken, Waste};
use leases::Leases;
use priors::Priors;
use roster::Roster;
use trouble::Trouble;

/// How an [`Engine`] runs.
#[derive(Clone, Copy, Debug)]
pub struct EngineConfig {
    /// Tasks per iteration, B; at least 1.
    pub budget: u64,
    /// Iterations until [`Effect::Finish`].
    pub iterations: u64,
    /// Workers to wait for before the first iteration; at least 1. Later ones start with the workers present.
    pub min_workers: usize,
    /// Seconds within which a worker that was never timed must report its first result, or it is evicted. One that was
    /// timed has ten times its expected time (more if its times are noisy), and at least a tenth of this. `None`: no
    /// limit.
    pub lease_timeout_s: Option<f64>,
    /// The shortest rest of a worker that failed, in seconds; it doubles with each further failure.
    pub rest_s: f64,
    /// A worker that fails this many times in a row, without a result in between, is expelled. `None`: none is.
    pub expel_after: Option<u32>,
    /// Seconds that tasks must go on failing, while nobody delivers anything, before the run is given up: longer than any
    /// outage that it is to survive.
    pub outage_s: f64,
    /// Spot checks. They need a policy that waits for all of its tasks.
    pub verify: Option<Verify>,
    /// Seed of everything random in the scheduler.
    pub seed: u64,
    /// Overcommitment, at least 0: the share of tasks that a barrier policy allocates beyond B. The first B results
    /// make the step and the rest is cancelled, which buys speed with wasted work.
    pub overcommit: f64,
    /// What else ends the run.
    pub limits: Limits,
}

impl Default for EngineConfig {
    /// One iteration of one task, as soon as there is a worker.
    fn default() -> Self {
        Self {
            budget: 1,
            iterations: 1,
            min_workers: 1,
            lease_timeout_s: None,
            rest_s: 0.0,
            expel_after: None,
            outage_s: 0.0,
            verify: None,
            seed: 0,
            overcommit: 0.0,
            limits: Limits::default(),
        }
    }
}

/// The state machine. See the module's documentation.
pub struct Engine {
    config: EngineConfig,
    policy: Box<dyn Policy>,
    roster: Roster,
    leases: Leases,
    /// By slot.
    statistics: Vec<WorkerStatistics>,
    priors: Priors,
    /// Results that arrived during an asynchronous step.
    arrivals: VecDeque<Taken>,
    /// Leases to cancel once they are too late, oldest first; some may have ended.
    granted: VecDeque<(WorkerId, Lease)>,
    ledger: Ledger,
    /// Empty, for the next iteration to reuse.
    employed: Employed,
    /// The waste of the iteration that is committed next…
    waste: Waste,
    /// …and the results that arrived for it.
    results: u64,
    /// When the first iteration began.
    began_s: Option<f64>,
    /// When the last step had all its results.
    last_step_s: Option<f64>,
    /// Whether an iteration has begun since this engine was created or restored.
    has_begun: bool,
    /// Why the run is over, if it finished.
    finished: Option<FinishReason>,
    /// Why the run ends once the step under way is committed, if it does.
    aborting: Option<AbortReason>,
    /// If the last thing that workers reported is a failure.
    trouble: Option<Trouble>,
    phase: Phase,
    last_wait: Option<WaitReason>,
}

enum Phase {
    /// Before the first iteration, or between two.
    Between {
        next: Iteration,
        /// Whether [`Event::Proceed`] has arrived.
        may_begin: bool,
    },
    /// Tasks are assigned, and results awaited.
    Collecting(Collecting),
    /// The step is being taken.
    Committing(Collecting),
    /// Finished or aborted.
    Over {
        /// The iteration to continue with.
        next: Iteration,
    },
}

impl Engine {
    /// An engine at the start of a run.
    ///
    /// # Panics
    /// If the budget or the number of workers to wait for is 0, or `overcommit` or `rest_s` is not at least 0.
    pub fn new(config: EngineConfig, policy: Box<dyn Policy>) -> Self {
        assert!(config.budget >= 1 && config.min_workers >= 1, "a run needs a task and a worker");
        assert!(config.overcommit >= 0.0 && config.rest_s >= 0.0, "shares and times are not negative");
        Self {
            config,
            policy,
            roster: Roster::default(),
            leases: Leases::default(),
            statistics: Vec::new(),
            priors: Priors::default(),
            arrivals: VecDeque::new(),
            granted: VecDeque::new(),
            ledger: Ledger::default(),
            employed: Employed::default(),
            waste: Waste::default(),
            results: 0,
            began_s: None,
            last_step_s: None,
            has_begun: false,
            finished: None,
            aborting: None,
            trouble: None,
            phase: Phase::Between { next: Iteration::FIRST, may_begin: false },
            last_wait: None,
        }
    }

    /// Handles an event at `now_s`, seconds since the run began (never decreasing), and appends what to do.
    pub fn handle(&mut self, now_s: f64, event: Event, effects: &mut Vec<Effect>) {
        match event {
            Event::WorkerJoined { worker, machine, prior, fuses } => {
                self.join(now_s, worker, machine, prior, fuses, effects);
            }
            Event::WorkerLost { worker } => self.lose(now_s, worker, effects),
            Event::WorkerForgotten { worker } => self.forget(worker),
            Event::Violation { worker } => self.violation(now_s, worker, effects),
            Event::UploadBlocked { worker } => self.leases.hold_up(now_s, worker),
            Event::UploadResumed { worker } => self.go_on(now_s, worker),
            Event::Compared { tasks, first, second, agree } => {
                self.compared(now_s, tasks, (first, second), agree, effects);
            }
            Event::StepCommitted { iteration, outcome } => self.committed(now_s, iteration, &outcome, effects),
            Event::Proceed => self.proceed(now_s, effects),
            Event::Timeout => self.timeout(now_s, effects),
        }
    }

    /// Handles a worker's report on a lease at `now_s`, and appends what to do. A refused report changes nothing.
    pub fn report(
        &mut self,
        now_s: f64,
        worker: WorkerId,
        lease: LeaseId,
        report: Report<'_>,
        effects: &mut Vec<Effect>,
    ) -> Result<(), Refusal> {
        match report {
            Report::Done { busy_s } => self.done(now_s, worker, lease, busy_s, effects),
            Report::Failed => self.failed(now_s, worker, lease, effects),
        }
    }

    /// When to send [`Event::Timeout`] if nothing happens before, in seconds since the run began.
    pub fn poll_timeout(&mut self) -> Option<f64> {
        let (deadline_s, rest_end_s) = (self.leases.next_deadline_s(), self.roster.next_rest_end_s());
        let ask_again_s = match &self.phase {
            // During a pause the policy is not asked.
            Phase::Collecting(iteration) if !self.is_paused() => iteration.orders.ask_again_s,
            _ => None,
        };
        let pause_ends_s = self.pause_ends_s();
        deadline_s.into_iter().chain(rest_end_s).chain(ask_again_s).chain(pause_ends_s).reduce(f64::min)
    }

    /// The iteration under way, or the next one; once the run is over, the last one committed.
    pub fn iteration(&self) -> Iteration {
        match &self.phase {
            Phase::Between { next, .. } => *next,
            Phase::Collecting(iteration) | Phase::Committing(iteration) => iteration.number,
            Phase::Over { .. } => Iteration(self.ledger.iterations),
        }
    }

    /// The first iteration that is not committed.
    fn next_iteration(&self) -> Iteration {
        match &self.phase {
            Phase::Between { next, .. } | Phase::Over { next } => *next,
            Phase::Collecting(iteration) | Phase::Committing(iteration) => iteration.number,
        }
    }

    /// The workers that are present, ascending.
    pub fn present(&self) -> impl Iterator<Item = WorkerId> + '_ {
        self.roster.all_present()
    }

    /// A lease, if the worker holds it.
    pub fn lease(&self, worker: WorkerId, lease: LeaseId) -> Option<Lease> {
        self.leases.find(worker, lease)
    }

    /// The costs so far.
    pub fn ledger(&self) -> &Ledger {
        &self.ledger
    }

    /// What is known about each worker's speed, by slot.
    pub fn statistics(&self) -> &[WorkerStatistics] {
        &self.statistics
    }

    /// The name of the policy.
    pub fn policy(&self) -> &'static str {
        self.policy.name()
    }

    fn join(
        &mut self,
        now_s: f64,
        worker: WorkerId,
        machine: MachineId,
        prior: WorkerStatistics,
        fuses: bool,
        effects: &mut Vec<Effect>,
    ) {
        let slot = worker.slot();
        self.roster.add(worker);
        self.leases.add(worker);
        self.ledger.worker(worker);
        self.statistics.resize(self.statistics.len().max(slot + 1), WorkerStatistics::default());
        self.lose(now_s, worker, effects);
        self.roster.set_fuses(worker, fuses);
        let was_here = self.roster.left_in(worker) == self.current();
        let is_over = matches!(self.phase, Phase::Over { .. });
        if !is_over && !self.roster.is_proven(worker) {
            let inherited = self.roster.inherit(now_s, worker, machine);
            effects.extend(inherited.map(|(rest_s, strikes)| Effect::Rest { worker, rest_s, strikes }));
        }
        self.roster.join(now_s, worker, machine);
        if self.roster.is_fit(worker) {
            self.shorten_pause();
        }
        if self.statistics[slot].observed == 0
            && let Some(known) = self.priors.add(worker, prior)
        {
            self.statistics[slot] = known;
            self.policy.learned(worker, &known);
        }
        match &mut self.phase {
            Phase::Between { .. } => self.start(now_s, effects),
            Phase::Collecting(iteration) => {
                iteration.workers += u64::from(!was_here);
                self.last_wait = None;
                // Failed tasks that no worker was present to retry come first: the run must end if they fail
                // everywhere.
                self.recover(now_s, effects);
            }
            Phase::Committing(_) | Phase::Over { .. } => {}
        }
    }

    fn forget(&mut self, worker: WorkerId) {
        let is_known = worker.slot() < self.statistics.len();
        if is_known && !self.roster.is_present(worker) {
            self.roster.forget(worker);
            self.statistics[worker.slot()] = WorkerStatistics::default();
            self.priors.forget(worker);
            *self.ledger.worker(worker) = crate::WorkerCost::default();
            self.policy.forget(worker);
        }
    }

    fn proceed(&mut self, now_s: f64, effects: &mut Vec<Effect>) {
        if let Phase::Between { may_begin, .. } = &mut self.phase {
            *may_begin = true;
            self.start(now_s, effects);
        }
    }

    fn timeout(&mut self, now_s: f64, effects: &mut Vec<Effect>) {
        self.evict_overdue(now_s, effects);
        for worker in self.roster.end_rests(now_s) {
            if self.leases.is_free(worker) {
                self.roster.release(worker);
            }
        }
        if self.pause_ends_s().is_some_and(|at_s| at_s <= now_s) {
            self.end_pause();
            return self.recover(now_s, effects);
        }
        self.employ_idle(now_s, effects);
        self.resume(now_s, effects);
    }

    /// The iteration under way, if there is one.
    fn current(&self) -> Option<Iteration> {
        match &self.phase {
            Phase::Collecting(iteration) | Phase::Committing(iteration) => Some(iteration.number),
            Phase::Between { .. } | Phase::Over { .. } => None,
        }
    }
}
