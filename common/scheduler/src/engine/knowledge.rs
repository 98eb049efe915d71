//! Passes observations of workers to the policy, and asks it for decisions.

use super::task_count::TaskCount;
use super::{EngineConfig, Purpose, Shared, TaskChoice, TaskRule, stream};
use crate::allocation::uniform;
use crate::policy::{Collect, Decision, Round, SchedulerRng};
use ata_types::{Iteration, WorkerId};

impl Shared {
    /// Returns the number of tasks of an iteration that begins now, after `position` tasks of the run.
    pub(super) fn choose_tasks(&mut self, iteration: Iteration, position: u64) -> u64 {
        let &EngineConfig { budget, ref choice, iterations, .. } = &self.config;
        let Some(choice) = choice else { return budget };
        let left = iterations.saturating_mul(budget).saturating_sub(position).max(1);
        let count = self.task_count.get_or_insert_with(|| TaskCount::new(budget));
        count.next(iteration, self.now_s, self.noise.tasks(), choice).min(left)
    }

    /// Chooses the number of tasks of the next iterations, if it follows the goodput. Returns whether that has to be saved.
    pub(super) fn choose_between(&mut self) -> bool {
        let by_goodput = |choice: &&TaskChoice| choice.rule == TaskRule::Goodput;
        let Some(choice) = self.config.choice.as_ref().filter(by_goodput) else { return false };
        let (noise, means) = (self.noise.tasks(), self.task_means());
        self.task_count.as_mut().is_some_and(|count| count.choose(noise, means, choice))
    }

    /// Returns the mean time of a task of each worker, if all were timed and none computes batches.
    fn task_means(&self) -> Option<Vec<f64>> {
        let single = |slot: usize| !self.roster.fuses[slot];
        let mean = |slot: usize| self.statistics[slot].mean_s().filter(|mean_s| *mean_s > 0.0 && single(slot));
        let present = &self.roster.present;
        (!present.is_empty()).then(|| present.iter().map(|worker| mean(worker.slot())).collect()).flatten()
    }

    pub(super) fn revert_tasks(&mut self) {
        if let Some(count) = &mut self.task_count {
            count.revert();
        }
    }

    /// Asks the policy for its decision on `take` tasks, or on more of them if the run overcommits. An error says what is wrong with the
    /// decision.
    pub(super) fn decide(&mut self, number: Iteration, take: u64, workers: &[WorkerId]) -> Result<Decision, String> {
        // A product that is whole except for rounding counts as whole: 100 × 0.07 is 7, not 8.
        let spare = (take as f64 * self.config.overcommit * (1.0 - 1e-12)).ceil() as u64;
        let budget = take + spare;
        // If shares may be cancelled before they are complete, each task is a lease of its own.
        let fuses = if spare == 0 { &self.roster.fuses[..] } else { &[] };
        let links = self.links.times();
        let round = Round { iteration: number, budget, workers, statistics: &self.statistics, fuses, links };
        let mut decision = self.policy.decide(&round, &mut stream(self.config.seed, number, Purpose::Policy));
        let allocated = decision.check(workers.len())?;
        if let Some(choice) = &self.config.choice {
            decision.lr_factor *= choice.rate_factor(take, self.noise.tasks());
        }
        if budget > take {
            decision.collect = match decision.collect {
                // Policies that choose their own number of tasks have no spare ones.
                Collect::All | Collect::InParts { .. } if allocated == budget => Collect::Soonest { take },
                Collect::First { refill: true, .. } => Collect::First { take, refill: true },
                Collect::InParts { tasks } if tasks == budget => Collect::InParts { tasks: take },
                Collect::Race { .. } => Collect::Race { tasks: take },
                other => other,
            };
        }
        if self.config.verify.is_some() {
            Self::wait_for_all(&mut decision, &mut stream(self.config.seed, number, Purpose::Recovery))?;
        }
        Ok(decision)
    }

    /// Makes the step wait for all tasks. Spot checks require it to be known which worker computes which tasks. If a plan leaves that
    /// open, or in a race, workers get equal shares instead.
    fn wait_for_all(decision: &mut Decision, rng: &mut SchedulerRng) -> Result<(), String> {
        let planned = decision.allocation.some().map(|(_, tasks)| tasks).sum::<u64>();
        match decision.collect {
            Collect::InParts { tasks } if tasks == planned => decision.collect = Collect::All,
            Collect::InParts { tasks } | Collect::Race { tasks } => {
                decision.allocation = uniform(decision.allocation.len(), tasks, rng).into();
                decision.collect = Collect::All;
            }
            _ => {}
        }
        let waits = decision.collect == Collect::All;
        if waits { Ok(()) } else { Err("spot checks (--verify) need one that waits for all of its tasks".into()) }
    }

    pub(super) fn observe(&mut self, worker: WorkerId, busy_s: f64) {
        self.statistics[worker.slot()].observe(busy_s);
        self.priors.observe(worker, |own| own.observe(busy_s));
        self.policy.observe(worker, busy_s);
    }

    pub(super) fn observe_batch(&mut self, worker: WorkerId, tasks: u64, busy_s: f64) {
        self.statistics[worker.slot()].observe_batch(tasks, busy_s);
        self.priors.observe(worker, |own| own.observe_batch(tasks, busy_s));
        self.policy.observe_batch(worker, tasks, busy_s);
    }

    pub(super) fn observe_overhead(&mut self, worker: WorkerId, overhead_s: f64) {
        let statistics = &mut self.statistics[worker.slot()];
        let is_first = statistics.first_overhead_s.is_none();
        statistics.observe_overhead(overhead_s);
        self.priors.observe(worker, |own| own.observe_overhead(overhead_s));
        if !is_first {
            self.policy.overhead(worker, overhead_s);
        }
    }

    /// Records that a worker's lease was cancelled, such as a probe or the loser of a race.
    pub(super) fn observe_censored(&mut self, worker: WorkerId, tasks: u64, elapsed_s: f64) {
        self.statistics[worker.slot()].observe_censored(elapsed_s);
        self.priors.observe(worker, |own| own.observe_censored(elapsed_s));
        self.policy.censored(worker, tasks, elapsed_s);
    }
}
