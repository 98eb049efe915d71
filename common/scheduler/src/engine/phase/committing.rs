//! The phase in which all collections of a step have arrived, and the driver takes the step.

use super::{Between, Phase};
use crate::engine::{AbortReason, AcceptedResult, Blame, Effect, EmployedWorkers, FinishReason, Shared};
use crate::ledger::IterationCost;
use crate::policy::StepOutcome;
use ata_types::{Iteration, TaskOutcome, TaskRange, WorkerId};

/// The data from which an iteration is committed.
pub(crate) struct Committing {
    pub(crate) number: Iteration,
    pub(super) started_s: f64,
    pub(super) finished_s: f64,
    pub(super) workers: u64,
    pub(super) results: Vec<AcceptedResult>,
    pub(super) employed: EmployedWorkers,
    /// Whether all seconds of the iteration count as worker time, or only those of computation.
    pub(super) occupies: bool,
    /// Failures since the last step of an asynchronous run, in which workers compute while a step is taken.
    pub(super) blame: Option<Blame>,
    /// The reason to give up the run once the step is committed, if there is one.
    pub(super) aborting: Option<AbortReason>,
}

impl Committing {
    /// Handles a worker's failure on a lease of an asynchronous run.
    pub(crate) fn failed(&mut self, shared: &Shared, worker: WorkerId, tasks: TaskRange) {
        if let Some(blame) = &mut self.blame {
            blame.add(worker);
            if let Some(reason) = shared.reason_to_abort(self.number, tasks, blame) {
                self.aborting = Some(reason);
            }
        }
    }

    /// Commits the step that was taken. Returns the phase that follows.
    pub(crate) fn commit(&mut self, shared: &mut Shared, outcome: &StepOutcome) -> Phase {
        let cost = self.enter(shared);
        for result in &self.results {
            // Workers that contribute to a step get the resulting parameters at once, and others with their next lease.
            if !shared.roster.give_parameters(result.worker, self.number.next()) {
                shared.downloads.add(self.number.next());
            }
            shared.effects.push(result.end(TaskOutcome::Applied));
        }
        shared.last_step_s = Some(self.finished_s);
        shared.spare = std::mem::take(&mut self.employed).cleared();
        if let Some(squares) = outcome.squares {
            shared.noise.add(squares, cost.tasks_applied, self.batches(shared));
        }
        let must_save = shared.choose_between();
        shared.effects.push(Effect::Committed { cost, must_save });
        shared.policy.stepped(outcome);
        let runtime_s = shared.now_s - shared.began_s.unwrap_or(shared.now_s);
        let limit = shared.config.limits.reached(runtime_s, &shared.ledger, outcome);
        let next = self.number.next();
        let position = shared.config.position(next, shared.ledger.tasks_applied);
        let is_last = shared.config.is_over(position);
        if let Some(reason) = limit.or(is_last.then_some(FinishReason::Iterations)) {
            shared.give_up_ahead();
            Phase::finish(shared, next, reason)
        } else if let Some(reason) = self.aborting.take() {
            Phase::abort(shared, next, reason)
        } else {
            Phase::Between(Between::new(next, None))
        }
    }

    fn batches(&self, shared: &Shared) -> u64 {
        let of = |result: &AcceptedResult| {
            if shared.roster.fuses[result.worker.slot()] { 1 } else { result.lease.tasks.count }
        };
        self.results.iter().map(of).sum()
    }

    fn enter(&self, shared: &mut Shared) -> IterationCost {
        let (waste, results) = (std::mem::take(&mut shared.waste), std::mem::take(&mut shared.results));
        let ledger = &mut shared.ledger;
        for result in &self.results {
            let worker = ledger.worker(result.worker);
            worker.tasks_applied += result.lease.tasks.count;
            worker.busy_s += result.busy_s;
            worker.overhead_s += result.overhead_s.map_or(0.0, |overhead_s| overhead_s + result.waited_s);
        }
        for &worker in self.employed.workers() {
            ledger.worker(worker).employments += 1;
        }
        let runtime_s = self.finished_s - self.started_s;
        let applied_s = self.results.iter().map(|result| result.busy_s).sum::<f64>();
        let cost = IterationCost {
            iteration: self.number,
            started_s: self.started_s,
            runtime_s,
            total_worker_time_s: if self.occupies { self.workers as f64 * runtime_s } else { applied_s + waste.busy_s },
            tasks_applied: self.results.iter().map(|result| result.lease.tasks.count).sum(),
            tasks_wasted: waste.tasks,
            results,
            employments: self.employed.workers().len() as u64,
        };
        ledger.commit(cost);
        cost
    }
}
