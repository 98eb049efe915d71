//! Carries out the engine's effects, in order.

use std::sync::Arc;

use ata_record::{ExcludedFrom, RunEvent};
use ata_scheduler::{Decision, Effect, Event, LeaseTime};
use ata_sums::outer_rate;
use ata_types::{Iteration, Lease, TaskOutcome, WorkerId};
use ata_wire::{Assignment, FarewellReason, ToWorker};

use super::Driver;
use super::steps::StepPlan;
use crate::report::{RunError, StopReason};

/// The maximum number of workers in an allocation that is recorded in full. In larger allocations, workers without a task are omitted:
/// 10,000 of them would add 300 kB to the journal with each iteration.
const NAMED_WORKERS: usize = 256;

/// Returns a time with four digits, as more would only lengthen the journal; `None` if it is infinite. The order of times is kept, so the
/// worker that is expected to finish last stays the last.
fn shortened(time_s: f64) -> Option<f64> {
    format!("{time_s:.3e}").parse().ok().filter(|time_s: &f64| time_s.is_finite())
}

impl Driver {
    /// Carries out all queued effects, sends all messages, and notifies the engine of ended sessions, until nothing is left to do.
    pub(super) fn carry_out_all(&mut self) {
        loop {
            while let Some(effect) = self.effects.pop_front() {
                self.carry_out(effect);
            }
            for session in self.sessions.flush() {
                self.ended_sessions.push((session, "it does not read its messages"));
            }
            if self.ended_sessions.is_empty() {
                return;
            }
            for (session, why) in std::mem::take(&mut self.ended_sessions) {
                self.lost(&session, why);
            }
        }
    }

    fn carry_out(&mut self, effect: Effect) {
        match effect {
            Effect::Start { iteration, position, workers, decision } => {
                self.steps.position = position;
                if self.info.spec.inner_steps.is_some() {
                    self.sessions.begin(&self.steps.parameters, self.steps.units.as_ref());
                }
                self.publish_allocation(iteration, &workers, &decision);
            }
            Effect::Assign { worker, lease, position } => self.assign(worker, &lease, position),
            Effect::End { worker, lease, outcome, time } => self.lease_ended(worker, &lease, outcome, time),
            Effect::Evict { worker, silent_s } => self.evict(worker, silent_s),
            Effect::Expel { worker, strikes, mismatches } => self.expel(worker, strikes, mismatches),
            Effect::Left { worker } => {
                self.sessions.leaving.insert(worker, true);
                self.let_go();
            }
            Effect::Compare { tasks, first, second } => self.compare(tasks, first, second),
            Effect::Rest { worker, rest_s, strikes } => {
                tracing::warn!(%worker, strikes, "worker gets no work for {rest_s:.1} s after a failure");
                self.publisher.publish(RunEvent::Rest { time_s: self.now_s, worker, rest_s, strikes });
            }
            Effect::Collect { iteration, collections } => self.collect(iteration, collections),
            Effect::ProbeLink { worker, bytes } => self.sessions.send(worker, ToWorker::ProbeLink { bytes }),
            Effect::Step { iteration, tasks, collections, collected, lr_factor, with_product } => {
                let shares = collected.iter().map(|(worker, lease)| (*worker, lease.tasks.count));
                let of_shares = if self.info.follows_shares { outer_rate(shares) } else { 1.0 };
                self.step(StepPlan {
                    iteration,
                    tasks: tasks.iter().map(|range| range.count).sum(),
                    vectors: self.reduction.ordered(&collections),
                    collections,
                    loss: self.leases.mean_loss(collected.iter().map(|(_, lease)| lease.id)),
                    lr_factor: lr_factor * of_shares,
                    with_product,
                });
            }
            Effect::Committed { cost, must_save } => self.committed(&cost, must_save),
            Effect::Wait { present, needed } => {
                tracing::info!("waiting for workers: {present} of {needed} present");
                self.publisher.publish(RunEvent::Wait { time_s: self.now_s, present, needed });
            }
            Effect::Finish { reason } => self.ending = Some(Ok(StopReason::Finished(reason))),
            Effect::Abort { reason } => {
                self.ending = Some(Err(RunError::Aborted { reason, last_failure: self.last_failure.clone() }));
            }
        }
    }

    fn publish_allocation(&mut self, iteration: Iteration, workers: &Arc<[WorkerId]>, decision: &Decision) {
        let Decision { allocation, probes, scores, rule, .. } = decision;
        let mut named: Vec<usize> = if workers.len() <= NAMED_WORKERS || allocation.is_empty() {
            (0..workers.len()).collect()
        } else {
            allocation.some().map(|(i, _)| i).chain(probes.iter().copied()).collect()
        };
        named.sort_unstable();
        named.dedup();
        let allocated = if allocation.is_empty() { &[][..] } else { &named };
        let scored = if scores.is_empty() { &[][..] } else { &named };
        let finish_s = |&i: &usize| decision.expected_finish_s(i).unwrap_or_default().map(shortened);
        self.publisher.publish(RunEvent::Allocation {
            iteration,
            time_s: self.now_s,
            workers: named.iter().map(|&i| workers[i]).collect(),
            allocation: allocated.iter().map(|&i| allocation.at(i)).collect(),
            probes: probes.iter().map(|&i| workers[i]).collect(),
            scores_s: scored.iter().map(|&i| scores.at(i)).collect(),
            finish_s: scored.iter().map(finish_s).collect(),
            rule: rule.to_string(),
        });
    }

    fn assign(&mut self, worker: WorkerId, lease: &Lease, position: u64) {
        self.leases.assigned(worker, *lease);
        let assignment = Assignment { lease: *lease, position, vector: self.reduction.own(worker, lease) };
        // A worker without a session is about to be lost, and its leases with it.
        if let Some(session) = self.sessions.addressed(worker) {
            session.assign(assignment, &self.steps.parameters, self.steps.units.as_ref());
            if self.steps.is_ahead() {
                session.send_again(&self.steps.parameters);
            }
        }
        if self.exchanges.awaits(worker, lease.iteration) {
            self.notify(Event::Blocked { worker });
        }
    }

    fn lease_ended(&mut self, worker: WorkerId, lease: &Lease, outcome: TaskOutcome, time: LeaseTime) {
        let withdrawn = self.reduction.lease_ended(lease, outcome);
        self.request(worker, &withdrawn, Vec::new());
        if let Some(session) = self.sessions.addressed(worker) {
            session.ended(lease);
            // A worker keeps a gradient until it is notified that the gradient is not needed.
            if matches!(outcome, TaskOutcome::Cancelled | TaskOutcome::Ignored) {
                session.cancel(lease.id);
            }
        }
        let result = self.leases.ended(lease.id);
        let times = result.as_ref().map(|result| &result.times);
        self.publisher.lease_ended(self.now_s, worker, lease, outcome, time, times);
        self.refuse_if_contradicted(worker, lease, outcome);
    }

    fn evict(&mut self, worker: WorkerId, silent_s: f64) {
        let lacks_parameters =
            self.sessions.of_worker(worker).is_some_and(|session| session.oldest_version().is_some());
        let advice = if lacks_parameters {
            "it has not received its parameters: run `ata doctor` there, with the flags of the worker. If large packets are lost (VPN, \
             tunnel), lower the MTU at both ends: ip link set dev DEVICE mtu 1280"
        } else {
            "if tasks take that long, raise --lease-timeout-s; if large packets are lost on the way, `ata doctor` there says so"
        };
        let detail = format!("no result for {silent_s:.1} s; {advice}");
        tracing::warn!(%worker, detail, "worker evicted");
        self.last_failure = format!("worker {worker}: {detail}");
        self.lose_collections(worker);
        self.evaluations.leave(worker);
        if let Some(session) = self.sessions.close(worker) {
            self.publisher.publish(RunEvent::Loss { time_s: self.now_s, worker, why: detail.clone() });
            session.farewell(FarewellReason::Evicted, detail);
        }
    }

    fn expel(&mut self, worker: WorkerId, strikes: u32, mismatches: u32) {
        let why = match mismatches {
            0 => format!("it failed {strikes} times in a row"),
            _ => format!(
                "its results differed from those of other workers {mismatches} times, and it failed {strikes} times in a row"
            ),
        };
        tracing::warn!(%worker, why, "worker expelled");
        let time_s = self.now_s;
        self.lose_collections(worker);
        self.evaluations.leave(worker);
        let session = self.sessions.close(worker);
        self.sessions.names.exclude(worker, ExcludedFrom::Run, &why);
        if session.is_some() {
            self.publisher.publish(RunEvent::Loss { time_s, worker, why: "it was expelled".into() });
        }
        self.publisher.publish(RunEvent::Expulsion { time_s, worker, why: why.clone() });
        if let Some(session) = session {
            session.farewell(FarewellReason::Expelled, format!("it was expelled from this run: {why}"));
        }
    }
}
