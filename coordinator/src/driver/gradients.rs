//! Leases that are computed, alone gradients that are announced and sent, and results that are refused.

use ata_learn::GradientSum;
use ata_record::RefusalKind;
use ata_scheduler::{Event, Report};
use ata_types::{Iteration, Lease, LeaseId, TaskOutcome, TaskRange, WorkerId};
use ata_wire::{ComputedLease, GradientHeader, Peer, Receipt, SessionToken};
use tokio::sync::oneshot;

use super::Driver;
use super::commands::answer;
use super::uploads::{GAVE_WAY, Reply, UploadRefusal, WaitingUpload};
use crate::training::{AloneSum, Comparison, LeaseResult};

/// The gradient of an alone lease, which passed every check except the engine's.
pub(crate) struct Gradient {
    pub(crate) header: GradientHeader,
    pub(crate) computed: ComputedLease,
    pub(crate) values: Vec<i32>,
    pub(crate) reply: oneshot::Sender<Receipt>,
}

impl Driver {
    /// Queues a gradient that is about to be sent, if the worker holds that lease and does not send its gradient yet. The reply comes
    /// once there is room.
    pub(super) fn announce(&mut self, header: &GradientHeader, lease: LeaseId, peer: &Peer, reply: Reply) {
        let (token, iteration) = (header.session, header.iteration);
        self.hear(token);
        let worker = match self.check_announcement(token, lease, iteration, peer) {
            Ok(worker) => worker,
            Err(refusal) => return answer(reply, Err(refusal)),
        };
        let refused = match self.units(header, iteration) {
            Ok(units) if self.fits(iteration, &units) => {
                return self.uploads.wait(token, worker, lease, units, reply);
            }
            Ok(_) => self.repeat_lease(token, lease),
            Err(reason) => {
                self.lease_failed(token, lease, RefusalKind::WrongSize, &reason);
                UploadRefusal::NotHeld { reason }
            }
        };
        answer(reply, Err(refused));
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

    /// Gives free room to the gradients whose turn it is, once their units are known.
    pub(super) fn grant_uploads(&mut self) {
        while self.agree_on_units()
            && let Some((WaitingUpload { session, reply, .. }, place)) = self.uploads.next()
        {
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
        let Gradient { header, computed, values, reply } = gradient;
        answer(reply, self.report_alone(header, computed, values));
    }

    fn report_alone(&mut self, header: GradientHeader, computed: ComputedLease, values: Vec<i32>) -> Receipt {
        let (token, lease) = (header.session, computed.lease);
        let not_held = |reason: String| Receipt::NotHeld { reason };
        let worker = match self.sessions.of_token(token) {
            Ok(session) => session.worker(),
            Err(status) => return not_held(status.message().to_owned()),
        };
        let Some(held) = self.engine.lease(worker, lease) else {
            let reason = format!("lease {lease} ended while its gradient was sent");
            self.refuse(worker, RefusalKind::Stale, &reason);
            return not_held(reason);
        };
        let units = match self.units(&header, header.iteration) {
            Ok(units) if self.fits(header.iteration, &units) => units,
            Ok(_) => {
                // Those that were agreed on meanwhile are others.
                self.repeat_lease(token, lease);
                return not_held("its units are not those of the iteration".into());
            }
            Err(reason) => {
                self.lease_failed(token, lease, RefusalKind::WrongSize, &reason);
                return Receipt::Refused { reason };
            }
        };
        let GradientHeader { maxima, saturated, vanished, .. } = header;
        let sum = GradientSum { values, maxima, saturated, vanished, tasks: held.tasks.count };
        let alone = AloneSum { sum, units };
        match self.report_done(token, worker, &held, computed, Some(alone)) {
            Ok(()) => {
                if let Ok(session) = self.sessions.of_token(token) {
                    session.delivered(lease);
                }
                Receipt::Accepted
            }
            Err(reason) => Receipt::Refused { reason },
        }
    }

    /// A worker has computed leases whose gradients it keeps.
    pub(super) fn progress(&mut self, token: SessionToken, computed: Vec<ComputedLease>) {
        let Ok(session) = self.sessions.of_token(token) else { return };
        session.hear(self.now_s);
        let worker = session.worker();
        for computed in computed {
            let lease = computed.lease;
            match self.engine.lease(worker, lease) {
                None => {
                    let (kind, reason) = self.why_not_held(worker, lease);
                    self.refuse(worker, kind, &reason);
                }
                Some(held) if held.is_alone => {
                    self.lease_failed(
                        token,
                        lease,
                        RefusalKind::NotReceived,
                        "the gradient of an alone lease was not sent",
                    );
                }
                // A failure was recorded.
                Some(held) => drop(self.report_done(token, worker, &held, computed, None)),
            }
        }
        self.accept_parked();
    }

    /// Passes a result to the engine. If it is refused, the lease fails, and the error says why.
    fn report_done(
        &mut self,
        token: SessionToken,
        worker: WorkerId,
        held: &Lease,
        computed: ComputedLease,
        alone: Option<AloneSum>,
    ) -> Result<(), String> {
        let ComputedLease { lease, times, losses } = computed;
        if let Some(loss) = losses.iter().find(|loss| !loss.is_finite()) {
            let reason = format!("the loss is {loss}: expected a finite number");
            self.lease_failed(token, lease, RefusalKind::NotFinite, &reason);
            return Err(reason);
        }
        let mut effects = Vec::new();
        let report = Report::Done { busy_s: &times.busy_s };
        if let Err(refusal) = self.engine.report(self.now_s, worker, lease, report, &mut effects) {
            let reason = refusal.to_string();
            self.lease_failed(token, lease, RefusalKind::WrongTimes, &reason);
            return Err(reason);
        }
        let is_exact = self.sessions.of_token(token).is_ok_and(|session| session.is_exact());
        self.results.insert(lease, LeaseResult { times, losses, tasks: held.tasks, alone, is_exact });
        self.effects.extend(effects);
        Ok(())
    }

    /// Fails a lease of a worker. This is where every failure of a worker goes.
    pub(super) fn lease_failed(&mut self, token: SessionToken, lease: LeaseId, kind: RefusalKind, reason: &str) {
        let Ok(session) = self.sessions.of_token(token) else { return };
        let worker = session.worker();
        let is_unsent = matches!(kind, RefusalKind::NotComputed | RefusalKind::Uncomputable);
        if is_unsent && self.engine.lease(worker, lease).is_none() {
            let (kind, reason) = self.why_not_held(worker, lease);
            return self.refuse(worker, kind, &reason);
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

    /// Counts a refused result. The engine is notified of a violation, which no honest worker commits.
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
