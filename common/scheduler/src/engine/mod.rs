//! The iteration engine: membership, leases, policy, statistics and costs, as one pure state machine.
//!
//! A driver tells it events with their times and does what the effects say:
//!
//! ```text
//! WorkerJoined ─▶ Start, Assign… ─▶ TasksDone… ─▶ Step ─▶ StepCommitted ─▶ Start, Assign… ─▶ … ─▶ Finish
//! ```
//!
//! The coordinator drives it with real time and real workers, the simulator with virtual ones. There is no iteration
//! logic anywhere else.

mod event;
mod iteration;
mod layout;
mod member;
mod recovery;

pub use event::{AbortReason, Effect, Event, Refusal, WaitReason};

use rand::SeedableRng;

use crate::ids::{Lease, LeaseId, TaskRange, WorkerId};
use crate::ledger::Ledger;
use crate::policy::{Collect, Decision, Policy, Round, SchedulerRng};
use crate::statistics::WorkerStatistics;
use iteration::{Iteration, Taken};
use member::{Held, Member};

/// How an [`Engine`] runs.
#[derive(Clone, Copy, Debug)]
pub struct EngineConfig {
    /// B, tasks per iteration; at least 1.
    pub budget: u64,
    /// Iterations until [`Effect::Finish`].
    pub iterations: u64,
    /// Workers to wait for before the first iteration; at least 1. Later ones start with whoever is present.
    pub min_workers: usize,
    /// Seconds without a report after which a worker holding a lease is evicted. Ten times the expected time of the
    /// tasks is allowed where that is longer. `None`: never.
    pub lease_timeout_s: Option<f64>,
    /// Seed of everything random in the scheduler.
    pub seed: u64,
}

/// The state machine. See the module's documentation.
pub struct Engine {
    config: EngineConfig,
    policy: Box<dyn Policy>,
    rng: SchedulerRng,
    /// Breaks ties between takers of lost tasks; apart, so that a fault does not change a policy's draws.
    recovery_rng: SchedulerRng,
    /// By slot.
    members: Vec<Member>,
    /// By slot.
    statistics: Vec<WorkerStatistics>,
    ledger: Ledger,
    phase: Phase,
    last_wait: Option<WaitReason>,
    next_lease: u64,
}

enum Phase {
    /// Before the first iteration, or between two with nobody present.
    Waiting { next_iteration: u64 },
    /// Tasks are out.
    Collecting(Iteration),
    /// The step is being taken.
    Committing(Iteration),
    /// Finished or aborted.
    Over,
}

impl Engine {
    /// An engine at the start of a run.
    ///
    /// # Panics
    /// If the budget or the number of workers to wait for is 0.
    pub fn new(config: EngineConfig, policy: Box<dyn Policy>) -> Self {
        assert!(config.budget >= 1 && config.min_workers >= 1, "a run needs a task and a worker");
        Self {
            rng: SchedulerRng::seed_from_u64(config.seed),
            recovery_rng: SchedulerRng::seed_from_u64(!config.seed),
            config,
            policy,
            members: Vec::new(),
            statistics: Vec::new(),
            ledger: Ledger::default(),
            phase: Phase::Waiting { next_iteration: 1 },
            last_wait: None,
            next_lease: 0,
        }
    }

    /// Takes in one event at `now_s`, seconds since the run began (never decreasing), and appends what to do.
    ///
    /// A refused result changes nothing, and only [`Event::TasksDone`] and [`Event::TasksFailed`] are ever refused.
    pub fn handle(&mut self, now_s: f64, event: Event<'_>, effects: &mut Vec<Effect>) -> Result<(), Refusal> {
        match event {
            Event::WorkerJoined { worker } => self.join(now_s, worker, effects),
            Event::WorkerLost { worker } => self.lose(now_s, worker, effects),
            Event::TasksDone { worker, lease, busy_s } => self.done(now_s, worker, lease, busy_s, effects)?,
            Event::TasksFailed { worker, lease } => self.failed(now_s, worker, lease, effects)?,
            Event::StepCommitted { iteration } => self.committed(now_s, iteration, effects),
            Event::Tick => self.evict_overdue(now_s, effects),
        }
        Ok(())
    }

    /// The number of the iteration under way, or of the next one.
    pub fn iteration(&self) -> u64 {
        match &self.phase {
            Phase::Waiting { next_iteration } => *next_iteration,
            Phase::Collecting(iteration) | Phase::Committing(iteration) => iteration.number,
            Phase::Over => self.ledger.iterations,
        }
    }

    /// The allocation of the iteration under way, and the workers it is for.
    pub fn decision(&self) -> Option<(&[WorkerId], &Decision)> {
        match &self.phase {
            Phase::Collecting(iteration) | Phase::Committing(iteration) => {
                Some((&iteration.workers, &iteration.decision))
            }
            Phase::Waiting { .. } | Phase::Over => None,
        }
    }

    /// The costs so far.
    pub fn ledger(&self) -> &Ledger {
        &self.ledger
    }

    /// What is known of each worker's speed, by slot.
    pub fn statistics(&self) -> &[WorkerStatistics] {
        &self.statistics
    }

    /// The name of the policy.
    pub fn policy(&self) -> &'static str {
        self.policy.name()
    }

    fn present(&self) -> Vec<WorkerId> {
        (0..self.members.len()).filter(|&slot| self.members[slot].present).map(WorkerId::from_slot).collect()
    }

    fn join(&mut self, now_s: f64, worker: WorkerId, effects: &mut Vec<Effect>) {
        if self.members.len() <= worker.slot() {
            self.members.resize_with(worker.slot() + 1, Member::default);
            self.statistics.resize(worker.slot() + 1, WorkerStatistics::default());
            self.ledger.worker(worker);
        }
        if self.members[worker.slot()].present {
            self.lose(now_s, worker, effects);
        }
        self.members[worker.slot()].present = true;
        match &mut self.phase {
            Phase::Waiting { next_iteration } => {
                let next = *next_iteration;
                self.start(now_s, next, effects);
            }
            Phase::Collecting(iteration) if iteration.refills() => {
                iteration.workers.push(worker);
                iteration.decision.allocation.push(1);
                self.assign_next(now_s, worker, effects);
            }
            Phase::Collecting(_) => self.reassign(now_s, effects),
            Phase::Committing(_) | Phase::Over => {}
        }
    }

    /// Begins an iteration, if there are workers for it.
    fn start(&mut self, now_s: f64, number: u64, effects: &mut Vec<Effect>) {
        self.phase = Phase::Waiting { next_iteration: number };
        let workers = self.present();
        let needed = if number == 1 { self.config.min_workers } else { 1 };
        if workers.len() < needed {
            self.wait(WaitReason::Workers { present: workers.len(), needed }, effects);
            return;
        }
        self.last_wait = None;
        let round =
            Round { iteration: number, budget: self.config.budget, workers: &workers, statistics: &self.statistics };
        let decision = self.policy.decide(&round, &mut self.rng);
        debug_assert_eq!(decision.allocation.len(), workers.len());
        effects.push(Effect::Start { iteration: number });
        self.phase = Phase::Collecting(Iteration::new(number, workers, decision, now_s));
        self.assign_shares(now_s, effects);
    }

    /// Gives each worker its share of the decision.
    fn assign_shares(&mut self, now_s: f64, effects: &mut Vec<Effect>) {
        let Phase::Collecting(iteration) = &self.phase else { return };
        let allocation = &iteration.decision.allocation;
        let pieces = match iteration.decision.collect {
            Collect::All => layout::lay_out(allocation),
            // Any one result may be among the first, so each is a lease of its own.
            Collect::First { .. } => {
                let workers = allocation.iter().enumerate().flat_map(|(i, &a)| (0..a).map(move |_| i));
                workers.zip(0..).map(|(i, index)| (i, TaskRange::single(index))).collect()
            }
        };
        let shares: Vec<_> = pieces.into_iter().map(|(i, tasks)| (iteration.workers[i], tasks)).collect();
        for (worker, tasks) in shares {
            self.assign(now_s, worker, tasks, 0, effects);
        }
    }

    /// Gives a worker of a racing iteration the next task index.
    fn assign_next(&mut self, now_s: f64, worker: WorkerId, effects: &mut Vec<Effect>) {
        if let Phase::Collecting(iteration) = &self.phase {
            self.assign(now_s, worker, TaskRange::single(iteration.next_task), 0, effects);
        }
    }

    fn assign(&mut self, now_s: f64, worker: WorkerId, tasks: TaskRange, failures: u32, effects: &mut Vec<Effect>) {
        let Phase::Collecting(iteration) = &mut self.phase else { return };
        let lease = Lease { id: LeaseId(self.next_lease), iteration: iteration.number, tasks };
        self.next_lease += 1;
        iteration.next_task = iteration.next_task.max(tasks.end());
        let member = &mut self.members[worker.slot()];
        member.assign(now_s, Held { lease, failures });
        if member.employed_in != iteration.number {
            member.employed_in = iteration.number;
            iteration.employed.push(worker);
        }
        effects.push(Effect::Assign { worker, lease });
    }

    fn done(
        &mut self,
        now_s: f64,
        worker: WorkerId,
        lease: LeaseId,
        busy_s: &[f64],
        effects: &mut Vec<Effect>,
    ) -> Result<(), Refusal> {
        let position = self.position(worker, lease)?;
        let Phase::Collecting(iteration) = &mut self.phase else { return Err(Refusal::NotHeld(lease)) };
        let member = &mut self.members[worker.slot()];
        let tasks = member.leases[position].lease.tasks;
        let reported_s: f64 = busy_s.iter().sum();
        let valid = busy_s.iter().all(|time| *time >= 0.0) && reported_s.is_finite();
        if busy_s.len() as u64 != tasks.count || !valid {
            return Err(Refusal::BadTimes { lease, tasks: tasks.count });
        }

        let factor = member.finish(now_s, position, reported_s);
        for time in busy_s {
            self.statistics[worker.slot()].observe(time * factor);
        }
        if member.leases.is_empty() {
            self.ledger.worker(worker).overhead_s += member.busy_since_s(now_s);
        }
        iteration.take(Taken { worker, tasks, busy_s: reported_s * factor });
        if iteration.taken_tasks >= iteration.wanted {
            self.step(now_s, effects);
        } else if iteration.refills() {
            self.assign_next(now_s, worker, effects);
        }
        Ok(())
    }

    /// All results are in: ends the leases that are left, and asks for the optimizer step.
    fn step(&mut self, now_s: f64, effects: &mut Vec<Effect>) {
        let Phase::Collecting(mut iteration) = std::mem::replace(&mut self.phase, Phase::Over) else { return };
        iteration.finished_s = now_s;
        for &worker in &iteration.employed {
            let member = &mut self.members[worker.slot()];
            // Only the first lease was begun; the rest cost nothing.
            iteration.wasted_tasks += u64::from(!member.leases.is_empty());
            effects.extend(member.leases.drain(..).map(|held| Effect::Cancel { worker, lease: held.lease.id }));
        }
        effects.push(Effect::Step { iteration: iteration.number, tasks: iteration.step_tasks() });
        self.phase = Phase::Committing(iteration);
    }

    fn committed(&mut self, now_s: f64, number: u64, effects: &mut Vec<Effect>) {
        match std::mem::replace(&mut self.phase, Phase::Over) {
            Phase::Committing(iteration) if iteration.number == number => {
                iteration.commit(&mut self.ledger);
                if number >= self.config.iterations {
                    effects.push(Effect::Finish);
                } else {
                    self.start(now_s, number + 1, effects);
                }
            }
            other => self.phase = other,
        }
    }

    fn wait(&mut self, reason: WaitReason, effects: &mut Vec<Effect>) {
        if self.last_wait != Some(reason) {
            self.last_wait = Some(reason);
            effects.push(Effect::Wait { reason });
        }
    }

    fn position(&self, worker: WorkerId, lease: LeaseId) -> Result<usize, Refusal> {
        self.members.get(worker.slot()).and_then(|member| member.position(lease)).ok_or(Refusal::NotHeld(lease))
    }
}
