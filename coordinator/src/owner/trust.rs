//! What becomes of workers that send what does not count.

use ata_record::{RefusalKind, RunEvent};
use ata_scheduler::Event;
use ata_types::{Lease, LeaseId, TaskOutcome, TaskRange, WorkerId};
use ata_wire::FarewellReason;

use super::Owner;
use crate::training::{Comparison, Work};

impl Owner {
    /// Counts a refused result. The engine is told if no honest worker sends such a thing.
    pub(super) fn refuse(&mut self, worker: WorkerId, kind: RefusalKind, reason: &str) {
        if let Some(event) = self.refusals.add(self.now_s, worker, kind, reason) {
            // Honest workers are late, too.
            if kind != RefusalKind::Stale {
                tracing::warn!(%worker, ?kind, reason, "result refused");
            }
            self.publisher.publish(event);
        }
        if !kind.is_violation() {
            return;
        }
        match self.sessions.of_worker(worker) {
            Some(session) if session.is_ready => self.tell(Event::Violation { worker }),
            // The engine does not know it yet.
            _ => self.broken.extend(self.sessions.close(worker).map(|session| (session, "it is not ready"))),
        }
    }

    /// Of a lease that a worker does not hold: why not, and in words.
    pub(super) fn why_not_held(&mut self, worker: WorkerId, lease: LeaseId) -> (RefusalKind, String) {
        let is_anothers = self.engine.present().any(|other| self.engine.lease(other, lease).is_some());
        let kind = match self.sessions.of_worker(worker) {
            Some(session) if !is_anothers => session.past.kind_of(lease),
            _ => RefusalKind::Foreign,
        };
        let why = match kind {
            RefusalKind::Foreign => "it never held",
            RefusalKind::Replayed => "it delivered",
            _ => "it no longer holds",
        };
        (kind, format!("worker {worker} sent a gradient for lease {lease}, which {why}"))
    }

    /// Writes the refusals that were held back; all of them if the run is over.
    pub(super) fn write_refusals(&mut self, all: bool) {
        for event in self.refusals.due(self.now_s, all) {
            self.publisher.publish(event);
        }
    }

    /// Has two results compared, away from this task: they may be large.
    pub(super) fn compare(&mut self, tasks: TaskRange, first: LeaseId, second: LeaseId) {
        // Leases whose results are to be compared end later.
        if let (Some(one), Some(other)) = (self.arrived.remove(&first), self.arrived.remove(&second)) {
            self.train(Work::Compare(Comparison { tasks, results: [(first, one), (second, other)] }));
        }
    }

    pub(super) fn compared(&mut self, comparison: Comparison, agree: bool) {
        let Comparison { tasks, results } = comparison;
        let [first, second] = [results[0].0, results[1].0];
        self.arrived.extend(results);
        self.tell(Event::Compared { tasks, first, second, agree });
    }

    /// A lease ended because of what other workers computed.
    pub(super) fn contradicted(&mut self, worker: WorkerId, lease: &Lease, outcome: TaskOutcome) {
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

    pub(super) fn expel(&mut self, worker: WorkerId, strikes: u32, mismatches: u32) {
        let why = match mismatches {
            0 => format!("it failed {strikes} times in a row"),
            _ => {
                format!("other workers refuted its results {mismatches} times, and it failed {strikes} times in a row")
            }
        };
        tracing::warn!(%worker, why, "worker expelled");
        let time_s = self.now_s;
        let session = self.sessions.expel(worker, &why);
        if session.is_some() {
            self.publisher.publish(RunEvent::Loss { time_s, worker, why: "it was expelled".into() });
        }
        self.publisher.publish(RunEvent::Expulsion { time_s, worker, why: why.clone() });
        if let Some(session) = session {
            session.farewell(FarewellReason::Expelled, format!("it was expelled from this run: {why}"));
        }
    }
}
