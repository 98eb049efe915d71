//! The facts about the run that a worker receives when it joins.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use ata_data::DataFile;
use ata_scheduler::WorkerStatistics;
use ata_types::WorkerId;
use ata_wire::{RunSpec, SessionToken, ToWorker, Welcome};
use tonic::Status;

use crate::config::Timeouts;
use crate::send_file::ServedFile;

/// The facts about the run that a worker receives when it joins. They never change.
pub(super) struct RunInfo {
    id: String,
    spec: RunSpec,
    timeouts: Timeouts,
    /// The training data and the test data, if workers may fetch them.
    files: HashMap<[u8; 32], Arc<ServedFile>>,
    /// The statistics of the workers from an earlier run, by name.
    warm_start: BTreeMap<String, WorkerStatistics>,
    /// The hosts that workers may announce to their peers, in addition to the host from which they connect.
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

    /// Returns the first message of a session.
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

    /// Returns the times after which silent or slow workers are lost.
    pub(super) fn timeouts(&self) -> &Timeouts {
        &self.timeouts
    }

    /// Returns the data with this digest.
    pub(super) fn file(&self, sha256: &[u8]) -> Result<&Arc<ServedFile>, Status> {
        let file = <[u8; 32]>::try_from(sha256).ok().and_then(|sha256| self.files.get(&sha256));
        file.ok_or_else(|| Status::not_found("this run does not use that data set"))
    }

    /// Returns the hosts that workers may announce to their peers, in addition to the host from which they connect.
    pub(super) fn peer_hosts(&self) -> &[String] {
        &self.peer_hosts
    }

    /// Returns the statistics of the worker of this name from an earlier run.
    pub(super) fn prior(&self, name: &str) -> WorkerStatistics {
        self.warm_start.get(name).copied().unwrap_or_default()
    }
}
