//! Gradients that are announced, sent and refused.

use ata_learn::Partial;
use ata_record::RefusalKind;
use ata_scheduler::{Event, Report};
use ata_types::{Iteration, Lease, LeaseId, TaskOutcome, TaskRange, WorkerId};
use ata_wire::{GradientHeader, Peer, Receipt, SessionToken};
use tokio::sync::oneshot;

use super::Driver;
use super::commands::answer;
use super::uploads::{GAVE_WAY, Reply, UploadRefusal, WaitingUpload};
use crate::training::{Comparison, ReceivedGradient};

/// A gradient that passed every check except the engine's.
pub(crate) struct Gradient {
    pub(crate) header: GradientHeader,
    pub(crate) values: Vec<f32>,
    pub(crate) reply: oneshot::Sender<Receipt>,
}

impl Driver {
    /// Queues a gradient that is about to be sent, if the worker holds that lease and does not send its gradient yet. The reply comes
    /// once there is room.
    pub(super) fn announce(
        &mut self,
        token: SessionToken,
        lease: LeaseId,
        iteration: Iteration,
        peer: &Peer,
        reply: Reply,
    ) {
        self.hear(token);
        match self.check_announcement(token, lease, iteration, peer) {
            Ok(worker) => self.uploads.wait(token, worker, lease, reply),
            Err(refusal) => answer(reply, Err(refusal)),
        }
    }

    fn check_announcement(
        &mut self,
        token: SessionToken,
        lease: LeaseId,
        iteration: Iteration,
        peer: &Peer,
    ) -> Result<WorkerId, UploadRefusal> {
        let session = self.sessions.of_token(token).map_err(UploadRefusal::NoSession)?;
        session.admit(peer);
        let worker = session.worker();
        let checked = match self.engine.lease(worker, lease) {
            None => Err(self.why_not_held(worker, lease)),
            Some(held) if held.iteration != iteration => {
                let reason = format!("lease {lease} is of iteration {}, not {iteration}", held.iteration);
                Err((RefusalKind::Foreign, reason))
            }
            Some(_) => session.begin_upload(lease).map_err(|(kind, why)| (kind, format!("lease {lease}: {why}"))),
        };
        checked.map(|()| worker).map_err(|(kind, reason)| {
            self.refuse(worker, kind, &reason);
            UploadRefusal::NotHeld { reason }
        })
    }

    /// Gives free room to the gradients whose turn it is.
    pub(super) fn grant_uploads(&mut self) {
        while let Some((WaitingUpload { session, reply, .. }, place)) = self.uploads.next() {
            let room = self.sessions.of_token(session).map(|session| session.room(place));
            answer(reply, room.map_err(UploadRefusal::NoSession));
        }
        self.report_blocked();
    }

    /// Removes the gradient of a lease that ended from the queue.
    pub(super) fn cancel_upload(&mut self, lease: LeaseId) {
        if let Some(WaitingUpload { reply, .. }) = self.uploads.take(lease) {
            let reason = format!("lease {lease} ended while its gradient waited");
            answer(reply, Err(UploadRefusal::NotHeld { reason }));
            self.report_blocked();
        }
    }

    fn report_blocked(&mut self) {
        for event in self.uploads.blocked_changes() {
            self.notify(event);
        }
    }

    /// Makes the slowest of the workers give way that send too slowly while others wait. One per check may be enough.
    pub(super) fn check_uploads(&mut self) {
        let traffic = |session| self.uploads.traffic_blocked_by(session);
        if let Some(slow) = self.sessions.slowest_sender(self.now_s, traffic) {
            tracing::warn!(worker = %slow.worker(), name = %slow.name(), "{}", GAVE_WAY);
            slow.give_way();
        }
    }

    /// Passes a gradient that passed every other check to the engine, which decides whether it counts.
    pub(super) fn gradient(&mut self, gradient: Gradient) {
        let Gradient { header, values, reply } = gradient;
        answer(reply, self.report_done(header, values));
    }

    fn report_done(&mut self, header: GradientHeader, values: Vec<f32>) -> Receipt {
        let GradientHeader { session: token, lease, times, loss_sum, .. } = header;
        let not_held = |reason: String| Receipt::NotHeld { reason };
        let (worker, is_exact) = match self.sessions.of_token(token) {
            Ok(session) => (session.worker(), session.is_exact()),
            Err(status) => return not_held(status.message().to_owned()),
        };
        let Some(held) = self.engine.lease(worker, lease) else {
            let reason = format!("lease {lease} ended while its gradient was sent");
            self.refuse(worker, RefusalKind::Stale, &reason);
            return not_held(reason);
        };
        let mut effects = Vec::new();
        let report = Report::Done { busy_s: &times.busy_s };
        if let Err(refusal) = self.engine.report(self.now_s, worker, lease, report, &mut effects) {
            let reason = refusal.to_string();
            self.lease_failed(token, lease, RefusalKind::WrongTimes, &reason);
            return Receipt::Refused { reason };
        }
        let TaskRange { first, count } = held.tasks;
        let gradient = Partial { first, count, gradient: values, loss: loss_sum };
        self.results.insert(lease, ReceivedGradient { times, gradient, is_exact });
        if let Ok(session) = self.sessions.of_token(token) {
            session.delivered(lease);
        }
        self.effects.extend(effects);
        Receipt::Accepted
    }

    /// Fails a lease of a worker. This is where every failure of a worker goes.
    pub(super) fn lease_failed(&mut self, token: SessionToken, lease: LeaseId, kind: RefusalKind, reason: &str) {
        let Ok(session) = self.sessions.of_token(token) else { return };
        let worker = session.worker();
        if kind == RefusalKind::NotComputed && self.engine.lease(worker, lease).is_none() {
            let (kind, reason) = self.why_not_held(worker, lease);
            return self.refuse(worker, kind, &reason);
        }
        self.refuse(worker, kind, reason);
        self.last_failure = format!("worker {worker}: {reason}");
        let mut effects = Vec::new();
        // A lease that the worker does not hold (any more) cannot fail.
        if self.engine.report(self.now_s, worker, lease, Report::Failed, &mut effects).is_ok() {
            self.effects.extend(effects);
        }
    }

    /// Counts a refused result. The engine is notified of a violation, which no honest worker commits.
    fn refuse(&mut self, worker: WorkerId, kind: RefusalKind, reason: &str) {
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
            Some(session) if session.is_ready() => self.notify(Event::Violation { worker }),
            // The engine does not know the worker yet.
            _ => self.ended_sessions.extend(self.sessions.close(worker).map(|session| (session, "it is not ready"))),
        }
    }

    /// Classifies a gradient for a lease that the worker does not hold, and says why it does not.
    fn why_not_held(&mut self, worker: WorkerId, lease: LeaseId) -> (RefusalKind, String) {
        let belongs_to_another = self.engine.present().any(|other| self.engine.lease(other, lease).is_some());
        let kind = match self.sessions.of_worker(worker) {
            Some(session) if !belongs_to_another => session.kind_of_stray(lease),
            _ => RefusalKind::Foreign,
        };
        let why = match kind {
            RefusalKind::Foreign => "it never held",
            RefusalKind::Replayed => "it delivered",
            _ => "it no longer holds",
        };
        (kind, format!("worker {worker} sent a gradient for lease {lease}, which {why}"))
    }

    /// Publishes the refusals that are due; all of them if the run is over.
    pub(super) fn write_refusals(&mut self, all: bool) {
        for event in self.refusals.due(self.now_s, all) {
            self.publisher.publish(event);
        }
    }

    /// Begins the comparison of two results.
    pub(super) fn compare(&mut self, tasks: TaskRange, first: LeaseId, second: LeaseId) {
        if let Some(comparison) = self.results.begin_comparison(tasks, first, second) {
            self.steps.compare(comparison);
        }
    }

    pub(super) fn comparison_finished(&mut self, comparison: Comparison, agree: bool) {
        let Comparison { tasks, results } = comparison;
        let [first, second] = [results[0].0, results[1].0];
        self.results.end_comparison(results);
        self.notify(Event::Compared { tasks, first, second, agree });
    }

    /// Refuses a result that other workers' results contradict, if this is why its lease ended.
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
