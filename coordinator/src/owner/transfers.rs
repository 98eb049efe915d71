//! What workers fetch and submit.

use ata_learn::Partial;
use ata_record::RefusalKind;
use ata_scheduler::Report;
use ata_types::LeaseId;
use ata_wire::{GradientHeader, Peer, Reader, Receipt, SessionToken};
use bytes::Bytes;
use tonic::Status;

use super::Owner;
use crate::parameters::DueSets;
use crate::send_file::File;
use crate::training::Arrived;

impl Owner {
    pub(super) fn data(&mut self, token: SessionToken, sha256: &Bytes, peer: &Peer) -> Result<File, Status> {
        let session = self.sessions.of_token(token)?;
        session.admit(peer);
        match &self.training_file {
            Some(training) if training.sha256() == &sha256[..] => {
                Ok(File { training: training.clone(), presence: session.presence(), _sending: session.data()? })
            }
            _ => Err(Status::not_found("this run does not use that data set")),
        }
    }

    pub(super) fn parameters(&mut self, token: SessionToken, reader: Reader) -> Result<DueSets, Status> {
        self.sessions.of_token(token)?.parameters(self.now_s, reader)
    }

    /// Hands a gradient that passed every other check to the engine, which decides whether it counts.
    pub(super) fn gradient(&mut self, header: &GradientHeader, values: Vec<f32>) -> Receipt {
        let lease = header.lease;
        let not_held = |reason: String| Receipt::NotHeld { reason };
        let (worker, is_exact) = match self.sessions.of_token(header.session) {
            Ok(session) => (session.worker, session.is_exact),
            Err(status) => return not_held(status.message().to_owned()),
        };
        let Some(held) = self.engine.lease(worker, lease) else {
            let reason = format!("lease {lease} ended while its gradient was sent");
            self.refuse(worker, RefusalKind::Stale, &reason);
            return not_held(reason);
        };
        let (first, count) = (held.tasks.first, held.tasks.count);
        let gradient = Partial { first, count, gradient: values, loss: header.loss_sum };
        let mut effects = Vec::new();
        let report = Report::Done { busy_s: &header.times.busy_s };
        if let Err(refusal) = self.engine.report(self.now_s, worker, lease, report, &mut effects) {
            let reason = refusal.to_string();
            self.lease_failed(header.session, lease, RefusalKind::WrongTimes, &reason);
            return Receipt::Refused { reason };
        }
        self.arrived.insert(lease, Arrived { times: header.times.clone(), gradient, is_exact });
        if let Ok(session) = self.sessions.of_token(header.session) {
            session.past.delivered(lease);
        }
        self.queue.extend(effects);
        Receipt::Accepted
    }

    pub(super) fn lease_failed(&mut self, token: SessionToken, lease: LeaseId, kind: RefusalKind, reason: &str) {
        let Ok(session) = self.sessions.of_token(token) else { return };
        let worker = session.worker;
        if kind == RefusalKind::NotComputed && self.engine.lease(worker, lease).is_none() {
            let (kind, reason) = self.why_not_held(worker, lease);
            return self.refuse(worker, kind, &reason);
        }
        self.refuse(worker, kind, reason);
        self.last_failure = format!("worker {worker}: {reason}");
        let mut effects = Vec::new();
        // A lease that the worker does not (or no longer) hold cannot fail.
        if self.engine.report(self.now_s, worker, lease, Report::Failed, &mut effects).is_ok() {
            self.queue.extend(effects);
        }
    }
}
