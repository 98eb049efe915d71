//! The facts about the run that a worker gets when it joins.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use ata_data::DataFile;
use ata_scheduler::WorkerStatistics;
use ata_types::WorkerId;
use ata_wire::{RunSpec, SessionToken, ToWorker, Welcome};
use tonic::Status;

use crate::config::Timeouts;
use crate::send_file::ServedFile;

/// The facts about the run that a worker gets when it joins. They never change.
pub(super) struct RunInfo {
    id: String,
    spec: RunSpec,
    timeouts: Timeouts,
    /// The training data and the test data, if workers may fetch them.
    files: HashMap<[u8; 32], Arc<ServedFile>>,
    /// What an earlier run learned about the workers, by name.
    warm_start: BTreeMap<String, WorkerStatistics>,
    /// Hosts at which workers may tell others to reach them, other than those that they connect from.
    peer_hosts: Vec<String>,
}

impl RunInfo {
    pub(super) fn new(
        id: String,
        spec: RunSpec,
        timeouts: Timeouts,
        files: impl IntoIterator<Item = DataFile>,
        warm_start: BTreeMap<String, WorkerStatistics>,
        peer_hosts: Vec<String>,
    ) -> Self {
        let files = files.into_iter().map(|file| (file.sha256, Arc::new(ServedFile::new(file)))).collect();
        Self { id, spec, timeouts, files, warm_start, peer_hosts }
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

    /// The data with this digest.
    pub(super) fn file(&self, sha256: &[u8]) -> Result<&Arc<ServedFile>, Status> {
        let file = <[u8; 32]>::try_from(sha256).ok().and_then(|sha256| self.files.get(&sha256));
        file.ok_or_else(|| Status::not_found("this run does not use that data set"))
    }

    /// Hosts at which workers may tell others to reach them, other than those that they connect from.
    pub(super) fn peer_hosts(&self) -> &[String] {
        &self.peer_hosts
    }

    /// What an earlier run learned about the worker of this name.
    pub(super) fn prior(&self, name: &str) -> WorkerStatistics {
        self.warm_start.get(name).copied().unwrap_or_default()
    }
}
