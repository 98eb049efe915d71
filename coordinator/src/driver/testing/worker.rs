//! Workers on virtual time, and their requests.
#![allow(clippy::wildcard_imports, reason = "it is a part of the module above, in a file of its own")]

use super::*;

/// A worker, as the gRPC handlers see it.
pub struct VirtualWorker {
    /// The token of the worker's session.
    pub token: SessionToken,
    /// The leases that the worker has not reported yet.
    pub leases: Vec<Lease>,
    /// All leases that the worker was assigned.
    pub assigned: HashMap<LeaseId, Lease>,
    /// The requested vectors that the worker has not sent.
    pub asked: Vec<VectorRequest>,
    pub(super) messages: mpsc::Receiver<ToWorker>,
    pub(super) presence: Presence,
}

impl VirtualWorker {
    /// Reads the worker's messages, and updates its leases. Returns the reason of a farewell, if there was one.
    pub fn read(&mut self) -> Option<FarewellReason> {
        while let Ok(message) = self.messages.try_recv() {
            match message {
                ToWorker::Assign(assignments) => {
                    for assignment in assignments {
                        let lease = assignment.lease;
                        self.asked.extend(assignment.request());
                        self.assigned.insert(lease.id, lease);
                        self.leases.push(lease);
                    }
                }
                ToWorker::Cancel(gone) => self.leases.retain(|lease| !gone.contains(&lease.id)),
                ToWorker::Farewell { reason, .. } => return Some(reason),
                ToWorker::Collect { requests, withdrawn } => {
                    self.asked.retain(|asked| !withdrawn.contains(&asked.id));
                    self.asked.extend(requests);
                }
                ToWorker::Welcome(_)
                | ToWorker::Units { .. }
                | ToWorker::Evaluate { .. }
                | ToWorker::ProbeLink { .. }
                | ToWorker::Reach { .. } => {}
            }
        }
        None
    }

    /// Sends a heartbeat.
    pub fn hear(&self) {
        self.presence.hear();
    }

    /// Stops reading messages.
    pub fn stop_reading(&mut self) {
        self.messages.close();
    }
}

/// An announced vector.
pub struct VectorAnnouncement(pub(super) oneshot::Receiver<Result<VectorUpload, UploadRefusal>>);

impl VectorAnnouncement {
    /// Returns whether the announcement is still unanswered.
    pub fn is_waiting(&mut self) -> bool {
        matches!(self.0.try_recv(), Err(TryRecvError::Empty))
    }

    /// Returns whether the vector was refused.
    pub fn is_refused(&mut self) -> bool {
        matches!(self.0.try_recv(), Ok(Err(_)))
    }

    /// Returns the upload, if the vector was admitted.
    pub fn upload(&mut self) -> Option<VectorUploading> {
        self.0.try_recv().ok()?.ok().map(VectorUploading)
    }
}

/// An admitted vector.
pub struct VectorUploading(pub(super) VectorUpload);

impl VectorUploading {
    /// Returns whether the vector is assembled, rather than passed on chunk by chunk.
    pub fn is_whole(&self) -> bool {
        matches!(self.0.sink, Sink::Whole(_))
    }

    /// Records that bytes of an assembled vector have arrived.
    pub fn receive(&self, bytes: usize) {
        if let Sink::Whole(whole) = &self.0.sink {
            whole.receive(bytes);
        }
    }

    /// Returns whether an assembled vector is no longer needed.
    pub fn is_over(&self) -> bool {
        matches!(&self.0.sink, Sink::Whole(whole) if whole.has_ended())
    }
}

pub(super) fn computed(lease: &Lease) -> ComputedLease {
    let tasks = lease.tasks.count as usize;
    let times = LeaseTimes { busy_s: vec![0.0; tasks], ..LeaseTimes::default() };
    ComputedLease { lease: lease.id, times, losses: vec![1.0; tasks] }
}

/// The parameters of a session.
pub struct ParameterSets(pub(super) DueSets);

impl ParameterSets {
    /// Takes the set that is due. Returns its iteration.
    pub fn take(&self) -> Option<Iteration> {
        self.0.take().unwrap_or(None)
    }

    /// Returns whether the session is over.
    pub fn is_over(&self) -> bool {
        self.0.take().is_err()
    }
}
