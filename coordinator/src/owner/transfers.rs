//! What workers ask for and send in.

use std::path::PathBuf;

use ata_learn::Partial;
use ata_scheduler::{Event, LeaseId};
use ata_wire::{GradientHeader, SessionToken};
use bytes::Bytes;
use tonic::Status;

use super::Owner;
use crate::recorder::Outcome;
use crate::training::{ParameterSet, Work};

impl Owner {
    pub(super) fn parameters(&mut self, token: SessionToken, iteration: u64) -> Result<ParameterSet, Status> {
        self.members.of_token(token)?;
        if iteration == self.parameters.iteration {
            Ok(self.parameters.clone())
        } else {
            let current = self.parameters.iteration;
            Err(Status::not_found(format!("parameters of iteration {iteration}: the current one is {current}")))
        }
    }

    pub(super) fn data(&mut self, token: SessionToken, sha256: &Bytes) -> Result<PathBuf, Status> {
        self.members.of_token(token)?;
        match &self.training_file {
            Some((expected, path)) if expected == sha256 => Ok(path.clone()),
            _ => Err(Status::not_found("this run does not use that data set")),
        }
    }

    /// Whether the worker holds that lease, so that its gradient may be sent at all.
    pub(super) fn announced(&mut self, token: SessionToken, lease: LeaseId, iteration: u64) -> Result<(), Status> {
        let worker = self.members.of_token(token)?.worker;
        match self.leases.get(&lease) {
            Some((holder, held)) if *holder == worker && held.iteration == iteration => Ok(()),
            _ => {
                self.count_refused("lease not held");
                Err(Status::aborted(format!("worker {worker} does not hold lease {lease} of iteration {iteration}")))
            }
        }
    }

    pub(super) fn gradient(&mut self, header: &GradientHeader, values: Vec<f32>) -> Result<(), String> {
        let worker = self.members.of_token(header.session).map_err(|status| status.message().to_owned())?.worker;
        let lease = LeaseId(header.lease);
        let mut effects = Vec::new();
        let event = Event::TasksDone { worker, lease, busy_s: &header.busy_s };
        if let Err(refusal) = self.engine.handle(self.now_s(), event, &mut effects) {
            self.count_refused("lease not held");
            return Err(refusal.to_string());
        }
        let Some((_, held)) = self.leases.remove(&lease) else { return Err("no such lease".into()) };
        self.recorder.tasks(worker, &held, &header.busy_s, Outcome::Applied);
        self.task_times_s.resize(self.task_times_s.len().max(worker.slot() + 1), Vec::new());
        self.task_times_s[worker.slot()].extend_from_slice(&header.busy_s);
        self.tasks_outlasted += header.outlasted;
        let (first, count) = (held.tasks.first, held.tasks.count);
        self.train(Work::Add(Partial { first, count, gradient: values, loss: header.loss_sum }));
        self.apply(effects);
        Ok(())
    }

    pub(super) fn lease_failed(&mut self, token: SessionToken, lease: LeaseId, kind: &'static str, reason: &str) {
        let Ok(session) = self.members.of_token(token) else { return };
        let worker = session.worker;
        tracing::warn!(%worker, %lease, reason, "lease failed");
        self.count_refused(kind);
        self.last_failure = format!("worker {worker}: {reason}");
        let mut effects = Vec::new();
        if self.engine.handle(self.now_s(), Event::TasksFailed { worker, lease }, &mut effects).is_ok() {
            if let Some((_, held)) = self.leases.remove(&lease) {
                self.recorder.tasks(worker, &held, &[], Outcome::Failed);
            }
            self.apply(effects);
        }
    }

    fn count_refused(&mut self, kind: &'static str) {
        *self.refused.entry(kind).or_default() += 1;
    }
}
