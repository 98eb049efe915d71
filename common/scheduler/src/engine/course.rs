//! The course of an iteration: begun, allocated, stepped, committed.

use std::sync::Arc;

use super::blame::Blame;
use super::collect::Lateness;
use super::event::{AbortReason, Effect, WaitReason};
use super::iteration::Collecting;
use super::limits::FinishReason;
use super::{Engine, Phase};
use crate::policy::StepOutcome;
use ata_types::{Iteration, Lease, TaskRange, WorkerId};

impl Engine {
    /// Begins the next iteration, if it may begin and there are workers for it.
    pub(super) fn start(&mut self, now_s: f64, effects: &mut Vec<Effect>) {
        let Phase::Between { next, may_begin: true } = self.phase else { return };
        if let Some(reason) = self.finished {
            return self.finish(next, reason, effects);
        }
        let present = self.roster.present();
        let needed = if self.has_begun { 1 } else { self.config.min_workers };
        if present < needed {
            self.wait(WaitReason::Workers { present, needed }, effects);
            return;
        }
        self.last_wait = None;
        self.has_begun = true;
        let began_s = *self.began_s.get_or_insert(now_s);
        for worker in self.priors.review(next, &mut self.statistics) {
            self.policy.learned(worker, &self.statistics[worker.slot()]);
        }
        let workers = self.roster.available();
        let decision = match self.decide(next, &workers) {
            Ok(decision) => Arc::new(decision),
            Err(problem) => {
                let policy = self.policy.name();
                return self.abort(AbortReason::BadDecision { iteration: next, policy, problem }, effects);
            }
        };
        let count = workers.len() as u64;
        effects.push(Effect::Start { iteration: next, workers: Arc::clone(&workers), decision: Arc::clone(&decision) });
        let mut iteration = Collecting::new(next, count, decision, now_s, std::mem::take(&mut self.employed));
        if iteration.is_asynchronous() {
            // Workers compute while a step is taken, so one iteration's time begins where the last one's ended.
            iteration.started_s = self.last_step_s.unwrap_or(began_s);
        }
        let fuses = self.roster.fuses();
        let shares = iteration.mode.shares(&iteration.decision, &|i| fuses[workers[i].slot()]);
        let lateness = iteration.mode.lateness();
        self.phase = Phase::Collecting(iteration);
        for (i, tasks) in shares {
            self.entrust(now_s, workers[i], tasks, None, effects);
        }
        self.continue_checks(now_s, effects);
        self.resume(now_s, effects);
        if let Some(lateness) = lateness {
            self.cancel_late(now_s, next, lateness, effects);
            self.employ_idle(now_s, effects);
            self.next_arrival(now_s, effects);
        }
    }

    /// Gives a worker with nothing to do what the iteration has for it.
    pub(super) fn assign_next(&mut self, now_s: f64, worker: WorkerId, effects: &mut Vec<Effect>) {
        if let Phase::Collecting(iteration) = &mut self.phase
            && let Some(tasks) = iteration.mode.next()
        {
            self.assign(now_s, worker, tasks, None, effects);
        }
    }

    pub(super) fn assign(
        &mut self,
        now_s: f64,
        worker: WorkerId,
        tasks: TaskRange,
        blame: Option<Box<Blame>>,
        effects: &mut Vec<Effect>,
    ) -> Option<Lease> {
        let Phase::Collecting(iteration) = &mut self.phase else { return None };
        let was_free = self.leases.is_free(worker);
        let lease = self.leases.grant(now_s, worker, iteration.number, tasks, blame);
        iteration.employed.add(worker);
        if iteration.mode.lateness().is_some_and(|lateness| lateness.cancel) {
            self.granted.push_back((worker, lease));
        }
        if was_free {
            self.roster.employ(worker);
            self.set_deadline(worker);
        }
        effects.push(Effect::Assign { worker, lease });
        Some(lease)
    }

    /// All results have arrived: ends the leases that are left, and asks for the optimizer step.
    pub(super) fn step(&mut self, now_s: f64, effects: &mut Vec<Effect>) {
        let Phase::Collecting(mut iteration) =
            std::mem::replace(&mut self.phase, Phase::Over { next: Iteration::default() })
        else {
            return;
        };
        iteration.finished_s = now_s;
        if !iteration.is_asynchronous() && !self.leases.is_empty() {
            for &worker in iteration.employed.workers() {
                for ended in self.leases.revoke_all(now_s, worker) {
                    self.cut_short(worker, &ended, effects);
                }
                self.roster.release(worker);
            }
        }
        let (tasks, lr_factor) = (iteration.step_tasks(), iteration.decision.lr_factor);
        let with_product = self.policy.wants_gradient_product();
        effects.push(Effect::Step { iteration: iteration.number, tasks, lr_factor, with_product });
        self.phase = Phase::Committing(iteration);
    }

    /// Ringmaster with calculation stops: cancels computations whose delay has reached R, which would be ignored.
    fn cancel_late(&mut self, now_s: f64, number: Iteration, lateness: Lateness, effects: &mut Vec<Effect>) {
        // Leases that have ended are skipped; if R is large, there may be many of them.
        if self.granted.len() > 4 * self.leases.len() + 64 {
            self.granted.retain(|(worker, lease)| self.leases.find(*worker, lease.id).is_some());
        }
        let is_late = |iteration: Iteration| number.since(iteration) >= lateness.max_delay;
        while let Some((worker, lease)) = self.granted.pop_front_if(|(_, lease)| is_late(lease.iteration)) {
            if let Some(ended) = self.leases.revoke(now_s, worker, lease.id) {
                self.cut_short(worker, &ended, effects);
                self.roster.release(worker);
            }
        }
    }

    pub(super) fn committed(
        &mut self,
        now_s: f64,
        number: Iteration,
        outcome: &StepOutcome,
        effects: &mut Vec<Effect>,
    ) {
        if !matches!(&self.phase, Phase::Committing(iteration) if iteration.number == number) {
            return;
        }
        let between = Phase::Between { next: number.next(), may_begin: false };
        let Phase::Committing(iteration) = std::mem::replace(&mut self.phase, between) else { return };
        let cost =
            iteration.commit(std::mem::take(&mut self.waste), std::mem::take(&mut self.results), &mut self.ledger);
        self.last_step_s = Some(iteration.finished_s);
        self.employed = iteration.employed.cleared();
        effects.push(Effect::Committed { cost });
        self.policy.stepped(outcome);
        let runtime_s = now_s - self.began_s.unwrap_or(now_s);
        let limit = self.config.limits.reached(runtime_s, &self.ledger, outcome);
        if let Some(reason) = limit.or((number.number() >= self.config.iterations).then_some(FinishReason::Iterations))
        {
            self.finish(number.next(), reason, effects);
        } else if let Some(reason) = self.aborting.take() {
            self.abort(reason, effects);
        }
    }

    fn finish(&mut self, next: Iteration, reason: FinishReason, effects: &mut Vec<Effect>) {
        self.phase = Phase::Over { next };
        self.finished = Some(reason);
        effects.push(Effect::Finish { reason });
    }

    pub(super) fn wait(&mut self, reason: WaitReason, effects: &mut Vec<Effect>) {
        if self.last_wait != Some(reason) {
            self.last_wait = Some(reason);
            effects.push(Effect::Wait { reason });
        }
    }
}
