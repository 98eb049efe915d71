//! Carries out the engine's effects, in order.

use std::sync::Arc;

use ata_record::RunEvent;
use ata_scheduler::{Decision, Effect, Event, IterationCost, LeaseTime, StepOutcome, WaitReason};
use ata_types::{Iteration, Lease, TaskOutcome, WorkerId};
use ata_wire::{FarewellReason, LeaseTimes};

use super::{Ending, Owner};
use crate::report::StopReason;
use crate::training::{Arrived, Stepped, Work};

/// Workers of an allocation that are named whether or not they got a task. If there are more, those without one are left
/// out: 10,000 of them would add 300 kB to the journal with each iteration.
const NAMED_WORKERS: usize = 256;

impl Owner {
    /// Carries out all queued effects, sends all messages, and tells the engine about those that could not be sent,
    /// until nothing is left to do.
    pub(super) fn carry_out_all(&mut self) {
        loop {
            while let Some(effect) = self.queue.pop_front() {
                self.carry_out(effect);
            }
            for session in self.sessions.flush() {
                self.broken.push((session, "it does not read its messages"));
            }
            if self.broken.is_empty() {
                return;
            }
            for (session, why) in std::mem::take(&mut self.broken) {
                self.lost(&session, why);
            }
        }
    }

    fn carry_out(&mut self, effect: Effect) {
        match effect {
            Effect::Start { iteration, workers, decision } => {
                self.trace.iteration_begins(iteration.number(), &decision);
                self.started(iteration, &workers, &decision);
            }
            Effect::Assign { worker, lease } => self.assign(worker, &lease),
            Effect::End { worker, lease, outcome, time } => self.lease_ended(worker, &lease, outcome, time),
            Effect::Evict { worker, silent_s } => self.evict(worker, silent_s),
            Effect::Expel { worker, strikes, mismatches } => self.expel(worker, strikes, mismatches),
            Effect::Compare { tasks, first, second } => self.compare(tasks, first, second),
            Effect::Rest { worker, rest_s, strikes } => {
                tracing::warn!(%worker, strikes, "worker gets no work for {rest_s:.1} s after a failure");
                self.publisher.publish(RunEvent::Rest { time_s: self.now_s, worker, rest_s, strikes });
            }
            Effect::Step { iteration, tasks, lr_factor, with_product } => {
                let tasks = tasks.iter().map(|range| range.count).sum();
                let rate = self.learning_rate.at(iteration.number()) * lr_factor;
                self.step(Work::Step {
                    iteration: iteration.number(),
                    tasks,
                    rate,
                    with_product,
                    trace: self.trace.place(),
                });
            }
            Effect::Committed { cost } => self.committed(&cost),
            Effect::Wait { reason } => {
                let WaitReason::Workers { present, needed } = reason;
                tracing::info!("{reason}");
                self.publisher.publish(RunEvent::Wait { time_s: self.now_s, present, needed });
            }
            Effect::Finish { reason } => self.ending = Some(Ending::Stop(StopReason::Finished(reason))),
            Effect::Abort { reason } => self.ending = Some(Ending::Abort(reason)),
        }
    }

    fn started(&mut self, iteration: Iteration, workers: &Arc<[WorkerId]>, decision: &Decision) {
        let Decision { allocation, probes, scores, rule, .. } = decision;
        let mut named: Vec<usize> = if workers.len() <= NAMED_WORKERS || allocation.is_empty() {
            (0..workers.len()).collect()
        } else {
            allocation.some().map(|(i, _)| i).chain(probes.iter().copied()).collect()
        };
        named.sort_unstable();
        named.dedup();
        let has_scores = !scores.is_empty();
        self.publisher.publish(RunEvent::Allocation {
            iteration,
            time_s: self.now_s,
            workers: named.iter().map(|&i| workers[i]).collect(),
            allocation: if allocation.is_empty() {
                Vec::new()
            } else {
                named.iter().map(|&i| allocation.at(i)).collect()
            },
            probes: probes.iter().map(|&i| workers[i]).collect(),
            scores_s: if has_scores { named.iter().map(|&i| scores.at(i)).collect() } else { Vec::new() },
            rule: rule.to_string(),
        });
    }

    fn assign(&mut self, worker: WorkerId, lease: &Lease) {
        let trace = self.trace.lease_begins(worker, lease);
        // A worker without a session is about to be lost, and its leases with it.
        if let Some(session) = self.sessions.addressed(worker) {
            session.assign(lease, &self.parameters, trace);
        }
    }

    fn lease_ended(&mut self, worker: WorkerId, lease: &Lease, outcome: TaskOutcome, time: LeaseTime) {
        self.trace.lease_ends(lease.id, outcome);
        self.need_not_wait(lease.id);
        let cancelled = outcome == TaskOutcome::Cancelled;
        if let Some(session) = self.sessions.addressed(worker) {
            session.ended(lease.id);
            if cancelled {
                session.cancel(lease.id);
            }
        }
        match self.arrived.remove(&lease.id) {
            Some(Arrived { times, gradient, .. }) => {
                self.publisher.lease_ended(self.now_s, worker, lease, (outcome, time), &times);
                if outcome == TaskOutcome::Applied {
                    self.train(Work::Add(gradient));
                }
            }
            None => self.publisher.lease_ended(self.now_s, worker, lease, (outcome, time), &LeaseTimes::default()),
        }
        self.contradicted(worker, lease, outcome);
    }

    fn evict(&mut self, worker: WorkerId, silent_s: f64) {
        let detail = format!("no result for {silent_s:.1} s; if tasks take that long, raise --lease-timeout-s");
        tracing::warn!(%worker, detail, "worker evicted");
        self.last_failure = format!("worker {worker}: {detail}");
        if let Some(session) = self.sessions.close(worker) {
            self.publisher.publish(RunEvent::Loss { time_s: self.now_s, worker, why: detail.clone() });
            session.farewell(FarewellReason::Evicted, detail);
        }
    }

    pub(super) fn train(&mut self, work: Work) {
        if !self.training.give(work) {
            self.ending = Some(Ending::TrainingFailed);
        }
    }

    pub(super) fn stepped(&mut self, stepped: Stepped) {
        let Stepped { iteration, taken, gradient_product, parameters } = stepped;
        self.training.is_stepping = false;
        self.parameters = parameters;
        if self.versions.add(&self.parameters) {
            for session in self.sessions.close_oldest(self.parameters.iteration) {
                self.dismiss(session, "it reads its parameters too slowly for this coordinator's memory");
            }
        }
        let loss = taken.loss;
        self.step = taken;
        let accuracy = self.evaluations.last_accuracy;
        let outcome = StepOutcome { loss: Some(loss), gradient_product, accuracy };
        self.tell(Event::StepCommitted { iteration: Iteration(iteration), outcome });
    }

    /// Records a committed iteration, and lets the next one begin unless the run is ending.
    fn committed(&mut self, cost: &IterationCost) {
        self.publisher.publish(RunEvent::Step {
            iteration: cost.iteration,
            time_s: self.now_s,
            loss: self.step.loss,
            runtime_s: cost.runtime_s,
            total_worker_time_s: cost.total_worker_time_s,
            tasks: cost.tasks_applied,
            wasted: cost.tasks_wasted,
            employments: cost.employments,
            results: cost.results,
            learning_rate: self.step.learning_rate,
            gradient_norm: self.step.gradient_norm,
        });
        self.trace.committed(cost, self.step.loss);
        if self.is_ending {
            return;
        }
        // Only now: nothing that happens in an iteration must be put down to another worker of the same number.
        for worker in self.sessions.forget_long_absent() {
            self.tell(Event::WorkerForgotten { worker });
        }
        self.evaluate_if_due(cost.iteration.number());
        self.save_if_due(cost.iteration.number());
        self.tell(Event::Proceed);
    }
}
