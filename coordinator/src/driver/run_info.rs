//! The facts about the run that a worker gets when it joins.

use std::collections::BTreeMap;
use std::sync::Arc;

use ata_learn::DataFile;
use ata_scheduler::WorkerStatistics;
use ata_types::WorkerId;
use ata_wire::{RunSpec, SessionToken, ToWorker, Welcome};
use tonic::Status;

use crate::config::Timeouts;
use crate::send_file::TrainingFile;

/// The facts about the run that a worker gets when it joins. They never change.
pub(super) struct RunInfo {
    id: String,
    spec: RunSpec,
    timeouts: Timeouts,
    /// The training data, if workers may fetch them.
    file: Option<Arc<TrainingFile>>,
    /// What an earlier run learned about the workers, by name.
    warm_start: BTreeMap<String, WorkerStatistics>,
}

impl RunInfo {
    pub(super) fn new(
        id: String,
        spec: RunSpec,
        timeouts: Timeouts,
        file: Option<DataFile>,
        warm_start: BTreeMap<String, WorkerStatistics>,
    ) -> Self {
        let file = file.map(|file| Arc::new(TrainingFile::new(file)));
        Self { id, spec, timeouts, file, warm_start }
    }

    /// The first message of a session.
    pub(super) fn welcome(&self, session: SessionToken, worker: WorkerId) -> ToWorker {
        ToWorker::Welcome(Welcome {
            session,
            worker,
            run_id: self.id.clone(),
            heartbeat_interval_ms: self.timeouts.heartbeat_interval_ms(),
            idle_heartbeat_interval_ms: self.timeouts.idle_heartbeat_interval_ms(),
            run: self.spec.clone(),
        })
    }

    /// How long workers may be silent.
    pub(super) fn timeouts(&self) -> &Timeouts {
        &self.timeouts
    }

    /// The training data with this digest.
    pub(super) fn training_file(&self, sha256: &[u8]) -> Result<&Arc<TrainingFile>, Status> {
        let file = self.file.as_ref().filter(|file| file.sha256() == sha256);
        file.ok_or_else(|| Status::not_found("this run does not use that data set"))
    }

    /// What an earlier run learned about the worker of this name.
    pub(super) fn prior(&self, name: &str) -> WorkerStatistics {
        self.warm_start.get(name).copied().unwrap_or_default()
    }
}
