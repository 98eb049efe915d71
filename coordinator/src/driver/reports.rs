//! The leases that workers hold, the workers' reports on them, and refused results.

use std::collections::HashMap;

use ata_record::RefusalKind;
use ata_scheduler::{Event, Refusal, Report};
use ata_types::{CollectionId, Lease, LeaseId, TaskOutcome, TaskRange, WorkerId};
use ata_wire::{ComputedLease, LeaseTimes};

use super::Driver;
use crate::training::{ComparedResult, Comparison, Work};

/// The leases that have not ended. Their number is bounded by the budget.
#[derive(Default)]
pub(super) struct OpenLeases {
    held: HashMap<LeaseId, OpenLease>,
}

struct OpenLease {
    worker: WorkerId,
    lease: Lease,
    result: Option<LeaseResult>,
}

/// The reported result of a computed lease.
pub(super) struct LeaseResult {
    pub(super) times: LeaseTimes,
    /// The loss of each task, or their sum if they were computed as one batch.
    pub(super) losses: Vec<f64>,
    /// Whether the worker computes the same bits as other exact workers.
    pub(super) is_exact: bool,
}

impl OpenLeases {
    pub(super) fn assigned(&mut self, worker: WorkerId, lease: Lease) {
        self.held.insert(lease.id, OpenLease { worker, lease, result: None });
    }

    /// Returns whether a worker holds a lease on which it has not reported.
    fn is_computed_by(&self, worker: WorkerId, lease: LeaseId) -> bool {
        self.held.get(&lease).is_some_and(|held| held.worker == worker && held.result.is_none())
    }

    fn reported(&mut self, lease: LeaseId, result: LeaseResult) {
        if let Some(held) = self.held.get_mut(&lease) {
            held.result = Some(result);
        }
    }

    /// Returns a lease and its result, if it was reported.
    fn result(&self, lease: LeaseId) -> Option<(&Lease, &LeaseResult)> {
        let held = self.held.get(&lease)?;
        Some((&held.lease, held.result.as_ref()?))
    }

    /// Removes a lease that ended. Returns its result.
    pub(super) fn ended(&mut self, lease: LeaseId) -> Option<LeaseResult> {
        self.held.remove(&lease)?.result
    }

    /// Returns the mean loss of the tasks of a step's leases, summed in the order of the tasks.
    pub(super) fn mean_loss(&self, leases: impl Iterator<Item = LeaseId>) -> f64 {
        let mut all: Vec<(TaskRange, &[f64])> = leases
            .filter_map(|lease| self.result(lease))
            .map(|(lease, result)| (lease.tasks, &result.losses[..]))
            .collect();
        all.sort_unstable_by_key(|(tasks, _)| *tasks);
        let count: u64 = all.iter().map(|(tasks, _)| tasks.count).sum();
        all.iter().flat_map(|(_, losses)| *losses).sum::<f64>() / count as f64
    }
}

impl Driver {
    /// Handles a worker's report of computed leases, whose gradients the worker keeps.
    pub(super) fn progress(&mut self, worker: WorkerId, computed: Vec<ComputedLease>) {
        let is_exact = self.sessions.of_worker(worker).is_some_and(|session| session.is_exact);
        for computed in computed {
            self.report_done(worker, is_exact, computed);
        }
        self.admit_vectors();
    }

    fn report_done(&mut self, worker: WorkerId, is_exact: bool, computed: ComputedLease) {
        let ComputedLease { lease, times, losses } = computed;
        if !self.leases.is_computed_by(worker, lease) {
            return self.refuse_stray(worker, lease);
        }
        if let Some(loss) = losses.iter().find(|loss| !loss.is_finite()) {
            let reason = format!("the loss is {loss}: expected a finite number");
            return self.lease_failed(worker, lease, RefusalKind::NotFinite, &reason);
        }
        let mut effects = Vec::new();
        let report = Report::Done { busy_s: &times.busy_s, waited_s: times.waited_s };
        match self.engine.report(self.now_s, worker, lease, report, &mut effects) {
            Ok(()) => {
                self.reduction.computed.insert(lease);
                self.leases.reported(lease, LeaseResult { times, losses, is_exact });
                self.effects.extend(effects);
            }
            // The lease was cancelled by a lease reported just before.
            Err(Refusal::NotHeld(_)) => self.refuse_stray(worker, lease),
            Err(refusal @ Refusal::BadTimes { .. }) => {
                self.lease_failed(worker, lease, RefusalKind::WrongTimes, &refusal.to_string());
            }
        }
    }

    pub(super) fn lease_failed(&mut self, worker: WorkerId, lease: LeaseId, kind: RefusalKind, reason: &str) {
        if !self.leases.is_computed_by(worker, lease) {
            return self.refuse_stray(worker, lease);
        }
        self.refuse(worker, kind, reason);
        self.last_failure = format!("worker {worker}: {reason}");
        let mut effects = Vec::new();
        let report = Report::Failed { uncomputable: kind.is_uncomputable() };
        // A lease that the worker does not hold (any more) cannot fail.
        if self.engine.report(self.now_s, worker, lease, report, &mut effects).is_ok() {
            self.effects.extend(effects);
        }
        self.forget_units_of(worker);
    }

    /// Counts a refused result. If it is a violation, which no honest worker commits, the engine is notified.
    pub(super) fn refuse(&mut self, worker: WorkerId, kind: RefusalKind, reason: &str) {
        if let Some(event) = self.refusals.add(self.now_s, worker, kind, reason) {
            // Honest workers may be late, too.
            if kind != RefusalKind::Stale {
                tracing::warn!(%worker, ?kind, reason, "result refused");
            }
            self.publisher.publish(event);
        }
        if !kind.is_violation() {
            return;
        }
        match self.sessions.of_worker(worker) {
            Some(session) if session.is_ready => self.notify(Event::Violation { worker }),
            // The engine does not know the worker yet.
            _ => self.ended_sessions.extend(self.sessions.close(worker).map(|session| (session, "it is not ready"))),
        }
    }

    /// Refuses a report on a lease that the worker does not compute.
    fn refuse_stray(&mut self, worker: WorkerId, lease: LeaseId) {
        let was_given = self.sessions.of_worker(worker).is_some_and(|session| session.was_given(lease));
        let (kind, why) = match self.leases.held.get(&lease) {
            Some(held) if held.worker != worker => (RefusalKind::Foreign, "it never held"),
            Some(held) if held.result.is_some() => (RefusalKind::Stale, "it has reported"),
            _ if was_given => (RefusalKind::Stale, "it no longer holds"),
            _ => (RefusalKind::Foreign, "it never held"),
        };
        self.refuse(worker, kind, &format!("worker {worker} reported on lease {lease}, which {why}"));
    }

    /// Publishes the refusals that are due, or all of them if the run is over.
    pub(super) fn write_refusals(&mut self, all: bool) {
        for event in self.refusals.due(self.now_s, all) {
            self.publisher.publish(event);
        }
    }

    /// Compares two vectors on the training thread, since they may be large.
    pub(super) fn compare(&mut self, tasks: TaskRange, first: CollectionId, second: CollectionId) {
        if let (Some(first), Some(second)) = (self.compared_result(first), self.compared_result(second)) {
            self.steps.give(Work::Compare(Comparison { tasks, results: [first, second] }));
        }
    }

    fn compared_result(&self, collection: CollectionId) -> Option<ComparedResult> {
        let (lease, held) = self.reduction.whole(collection)?;
        let (lease, LeaseResult { losses, is_exact, .. }) = self.leases.result(lease)?;
        let is_batch = (losses.len() as u64) < lease.tasks.count;
        Some(ComparedResult { collection, held, loss: losses.iter().sum(), is_batch, is_exact: *is_exact })
    }

    /// Refuses a result if its lease ended because other workers' results contradict it.
    pub(super) fn refuse_if_contradicted(&mut self, worker: WorkerId, lease: &Lease, outcome: TaskOutcome) {
        let (kind, others) = match outcome {
            TaskOutcome::Mismatched => (RefusalKind::Mismatched, "the one that two other workers computed"),
            TaskOutcome::Disputed => (RefusalKind::Disputed, "those of other workers, of which no two agree"),
            _ => return,
        };
        let TaskRange { first, count } = lease.tasks;
        let reason = format!(
            "its gradient of {count} task(s) from index {first} of iteration {} differs from {others}",
            lease.iteration
        );
        self.last_failure = format!("worker {worker}: {reason}");
        self.refuse(worker, kind, &reason);
    }
}
