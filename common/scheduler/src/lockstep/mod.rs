//! Shares for workers that step together, such as the ranks of torch.distributed.
//!
//! The caller has a training loop of its own: in each iteration all workers compute their whole share as one batch, and
//! all wait for the last. There are no leases, no lost tasks and no clock, so there is no [`Engine`](crate::Engine), only a
//! policy, its statistics and its seed. An engine that collects whole shares makes the same decisions for the same times.
//! Workers are numbered from 0 here, as ranks are.

mod growth;
mod probes;
mod rounds;
mod saved;

pub use saved::SavedLockstep;

use crate::allocation::uniform;
use crate::batches::MOST;
use crate::engine::{Purpose, stream};
use crate::policy::{Collect, Decision, Policy, PolicyContext, PolicyEntry, PolicyKind, Registry, Round, StepOutcome};
use crate::statistics::WorkerStatistics;
use crate::topology::LinkTimes;
use ata_types::{Iteration, WorkerId};
use growth::Growth;
use probes::ProbeBudget;
use rounds::Rounds;

/// The most tasks of an iteration, as for any other run.
const MAX_BUDGET: u64 = 1 << 24;

/// The most observations between two decisions: far more than the micro-batches of an iteration, and 32 MB.
const MAX_REPORTS: usize = 1 << 20;

/// The barrier policies without shares, for which a worker's tasks depend on what happens within the iteration.
const WITHOUT_SHARES: [&str; 2] = ["pull", "gradient-coding"];

/// The policies that look at future task times.
const ONLY_IN_SIMULATION: [&str; 1] = ["clairvoyant"];

/// The most workers, far beyond the number that can step together: a decision takes time in proportion to them.
const MAX_WORKERS: u32 = 1 << 20;

/// The reason why a call was refused. A refused call changes nothing.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub struct LockstepError(String);

fn demand(is_good: bool, problem: impl FnOnce() -> String) -> Result<(), LockstepError> {
    if is_good { Ok(()) } else { Err(LockstepError(problem())) }
}

fn wrong_number(workers: u32) -> String {
    format!("{workers} workers: expected 1 to {MAX_WORKERS}")
}

/// Divides the tasks of each iteration among workers that step together.
pub struct Lockstep {
    policy: Box<dyn Policy>,
    /// The registry of the policy, from which it can be built again.
    policies: Registry,
    /// The policy as it was specified, with its parameters.
    specification: String,
    context: PolicyContext,
    budget: u64,
    seed: u64,
    next: Iteration,
    present: Vec<WorkerId>,
    /// The number of workers that are or were present.
    slots: usize,
    statistics: Vec<WorkerStatistics>,
    reports: Vec<TimedShare>,
    probes: ProbeBudget,
    growth: Option<Growth>,
    /// The choice of the budget, if iterations are rounds.
    rounds: Option<Rounds>,
    lr_factor: f64,
}

/// Tasks that a worker computed as one batch.
#[derive(Clone, Copy, Debug, PartialEq, serde::Serialize, serde::Deserialize)]
struct TimedShare {
    worker: WorkerId,
    tasks: u64,
    seconds: f64,
}

impl Lockstep {
    /// Returns the policies of a registry that can be used.
    pub fn policies(among: Registry) -> impl Iterator<Item = &'static PolicyEntry> {
        among.entries().iter().filter(|PolicyEntry { name, kind, .. }| {
            *kind == PolicyKind::Barrier && !WITHOUT_SHARES.contains(name) && !ONLY_IN_SIMULATION.contains(name)
        })
    }

    /// Creates a group of this many workers, all present, that compute `budget` tasks per iteration. The policy is one of `policies`,
    /// written `NAME` or `NAME:key=value,…`.
    pub fn new(workers: u32, budget: u64, policies: Registry, policy: &str, seed: u64) -> Result<Self, LockstepError> {
        demand((1..=MAX_WORKERS).contains(&workers), || wrong_number(workers))?;
        demand((1..=MAX_BUDGET).contains(&budget), || {
            format!("budget {budget}: expected 1 to {MAX_BUDGET} tasks per iteration")
        })?;
        let context = PolicyContext { workers: Some(workers), ..PolicyContext::default() };
        let built = policies.build(policy, &context).map_err(|error| LockstepError(error.to_string()))?;
        let (name, kind) = (built.name(), policies.kind(policy));
        demand(kind == PolicyKind::Barrier, || {
            format!(
                "policy '{name}' is {kind}: it takes the first results, but here each step waits for all of them. \
                 Use a barrier policy, such as ata-auto"
            )
        })?;
        demand(!WITHOUT_SHARES.contains(&name), || {
            format!(
                "policy '{name}' hands out tasks while an iteration runs, but here each worker gets one share before it. \
                 Use a policy that decides on shares, such as ata-auto"
            )
        })?;
        let slots = workers as usize;
        Ok(Self {
            policy: built,
            policies,
            specification: policy.to_owned(),
            context,
            budget,
            seed,
            next: Iteration::FIRST,
            present: (0..slots).map(WorkerId::from_slot).collect(),
            slots,
            statistics: vec![WorkerStatistics::default(); slots],
            reports: Vec::new(),
            probes: ProbeBudget::default(),
            growth: None,
            rounds: None,
            lr_factor: 1.0,
        })
    }

    /// Limits the growth of a share from one step to the next: to a quarter at first, and to a factor of 2, 4, 8, … in the steps that
    /// follow, as long as the share is below the planned one. This is for workers whose times vary so much that they look several times
    /// as fast as they are.
    #[must_use]
    pub fn with_limited_growth(self) -> Self {
        Self { growth: Some(Growth::default()), ..self }
    }

    /// Ends the current iteration and decides on the next one. Returns the tasks of each worker, 0 for absent ones. They add up to
    /// the budget, unless the policy chooses its own number. A worker need not be observed in every iteration.
    #[expect(clippy::should_implement_trait, reason = "it is no iterator: what comes next depends on what is observed")]
    pub fn next(&mut self) -> Result<Vec<u64>, LockstepError> {
        demand(!self.present.is_empty(), || "no worker is present: one has to join first".into())?;
        if let Some(rounds) = &mut self.rounds {
            self.budget = rounds.next(self.budget, &self.reports);
        }
        self.learn();
        if self.next != Iteration::FIRST {
            self.policy.stepped(&StepOutcome::default());
        }
        let (shares, decision) = self.decide()?;
        self.lr_factor = decision.lr_factor;
        self.next = self.next.next();
        let mut by_worker = vec![0; self.slots];
        for (worker, tasks) in self.present.iter().zip(shares) {
            by_worker[worker.slot()] = tasks;
        }
        Ok(match &mut self.growth {
            Some(growth) => growth.limit(&by_worker),
            None => by_worker,
        })
    }

    /// Records that a worker computed `tasks` tasks as one batch, in `seconds`. This counts from the next decision on.
    pub fn observe(&mut self, worker: usize, tasks: u64, seconds: f64) -> Result<(), LockstepError> {
        let worker = self.known(worker)?;
        demand((1..=MAX_BUDGET).contains(&tasks), || {
            format!("{tasks} tasks: expected 1 to {MAX_BUDGET}. A share of 0 is not observed")
        })?;
        demand((0.0..=MOST).contains(&seconds), || {
            format!("{seconds} seconds: expected a finite number of at least 0")
        })?;
        demand(self.reports.len() < MAX_REPORTS, || {
            format!("{MAX_REPORTS} observations since the last decision: begin the next iteration first")
        })?;
        self.reports.push(TimedShare { worker, tasks, seconds });
        Ok(())
    }

    /// Returns the current iteration; 0 before the first.
    pub fn iteration(&self) -> u64 {
        self.next.number() - 1
    }

    /// Returns the number of tasks of the current iteration, B.
    pub fn budget(&self) -> u64 {
        self.budget
    }

    /// Returns the name of the policy.
    pub fn policy(&self) -> &'static str {
        self.policy.name()
    }

    /// Returns the factor on the learning rate of the current iteration: 1, unless the policy's parameters specify another.
    pub fn lr_factor(&self) -> f64 {
        self.lr_factor
    }

    /// Returns the present workers, ascending.
    pub fn present(&self) -> impl Iterator<Item = usize> + '_ {
        self.present.iter().map(|worker| worker.slot())
    }

    /// Adds a new worker, under the next number.
    pub fn join(&mut self) -> Result<usize, LockstepError> {
        let worker = self.slots;
        demand(worker < MAX_WORKERS as usize, || wrong_number(MAX_WORKERS + 1))?;
        self.slots += 1;
        self.present.push(WorkerId::from_slot(worker));
        self.statistics.resize(self.statistics.len().max(self.slots), WorkerStatistics::default());
        Ok(worker)
    }

    /// Adds a worker again that left; its statistics are kept.
    pub fn rejoin(&mut self, worker: usize) -> Result<(), LockstepError> {
        let id = self.known(worker)?;
        let present = self.present.binary_search(&id);
        let at = present.err().ok_or_else(|| LockstepError(format!("worker {worker} is present already")))?;
        self.present.insert(at, id);
        Ok(())
    }

    /// Removes a worker, which gets no tasks from the next decision on.
    pub fn leave(&mut self, worker: usize) -> Result<(), LockstepError> {
        let present = self.present.binary_search(&self.known(worker)?);
        self.present.remove(present.map_err(|_| LockstepError(format!("worker {worker} is not present")))?);
        Ok(())
    }

    fn known(&self, worker: usize) -> Result<WorkerId, LockstepError> {
        let known = self.slots;
        demand(worker < known, || format!("worker {worker} is unknown: there are {known} workers, numbered from 0"))?;
        Ok(WorkerId::from_slot(worker))
    }

    /// Passes on the observations, in the order in which the shares were completed.
    fn learn(&mut self) {
        self.reports.sort_by(|a, b| a.seconds.total_cmp(&b.seconds));
        for TimedShare { worker, tasks, seconds } in self.reports.drain(..) {
            self.statistics[worker.slot()].observe_batch(tasks, seconds);
            self.policy.observe_share(worker, tasks, seconds);
        }
    }

    fn decide(&mut self) -> Result<(Vec<u64>, Decision), LockstepError> {
        let (iteration, workers) = (self.next, &self.present[..]);
        let round = Round {
            iteration,
            budget: self.budget,
            workers,
            statistics: &self.statistics,
            fuses: &[],
            links: &LinkTimes::default(),
        };
        let decision = self.policy.decide(&round, &mut stream(self.seed, iteration, Purpose::Policy));
        decision.check(workers.len()).map_err(|problem| {
            let policy = self.policy.name();
            LockstepError(format!(
                "policy '{policy}' made an allocation that cannot be carried out in iteration {iteration}: {problem}"
            ))
        })?;
        let mut shares = match decision.collect {
            // Nothing is known yet.
            Collect::Race { tasks } => {
                uniform(workers.len(), tasks, &mut stream(self.seed, iteration, Purpose::Recovery))
            }
            _ => decision.allocation.to_vec(),
        };
        self.probes.grant(&decision.probes, &mut shares, iteration, |i, tasks| round.of(i).expected_s(tasks));
        Ok((shares, decision))
    }
}
