//! The facts about the run that a worker receives when it joins.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use ata_scheduler::WorkerStatistics;
use ata_types::WorkerId;
use ata_wire::{RunSpec, SessionToken, ToWorker, Welcome};
use tonic::Status;

use crate::config::{Timeouts, interval_ms};
use crate::send_file::ServedFile;

/// The facts about the run that a worker receives when it joins. They never change.
pub(super) struct RunInfo {
    pub(super) id: String,
    pub(super) spec: RunSpec,
    /// The times after which silent or slow workers are lost.
    pub(super) timeouts: Timeouts,
    /// The training data and the test data, if workers may fetch them.
    pub(super) files: HashMap<[u8; 32], Arc<ServedFile>>,
    /// The statistics of the workers from an earlier run, by name.
    pub(super) warm_start: BTreeMap<String, WorkerStatistics>,
    /// The hosts that workers may announce to their peers, in addition to the host from which they connect.
    pub(super) peer_hosts: Vec<String>,
}

impl RunInfo {
    pub(super) fn welcome(&self, session: SessionToken, worker: WorkerId) -> ToWorker {
        ToWorker::Welcome(Welcome {
            session,
            worker,
            run_id: self.id.clone(),
            heartbeat_interval_ms: interval_ms(self.timeouts.heartbeat),
            idle_heartbeat_interval_ms: interval_ms(self.timeouts.idle),
            run: self.spec.clone(),
        })
    }

    pub(super) fn file(&self, sha256: &[u8]) -> Result<&Arc<ServedFile>, Status> {
        let file = <[u8; 32]>::try_from(sha256).ok().and_then(|sha256| self.files.get(&sha256));
        file.ok_or_else(|| Status::not_found("this run does not use that data set"))
    }
}
