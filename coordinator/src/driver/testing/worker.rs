//! Workers on virtual time, and what they ask for.
#![allow(clippy::wildcard_imports, reason = "it is a part of the module above, in a file of its own")]

use super::*;

/// A worker, as the gRPC handlers see it.
pub struct VirtualWorker {
    /// Identifies its session.
    pub token: SessionToken,
    /// Leases that it has not answered yet.
    pub leases: Vec<Lease>,
    /// All leases that it was assigned.
    pub assigned: HashMap<LeaseId, Lease>,
    /// Vectors that it is asked for and has not sent.
    pub asked: Vec<Collection>,
    pub(super) messages: mpsc::Receiver<ToWorker>,
    pub(super) presence: Presence,
}

impl VirtualWorker {
    /// Reads its messages, and updates its leases. Returns the reason of a farewell.
    pub fn read(&mut self) -> Option<FarewellReason> {
        while let Ok(message) = self.messages.try_recv() {
            match message {
                ToWorker::Assign(assignments) => {
                    for Assignment { lease, .. } in assignments {
                        self.assigned.insert(lease.id, lease);
                        self.leases.push(lease);
                    }
                }
                ToWorker::Cancel(gone) => self.leases.retain(|lease| !gone.contains(&lease.id)),
                ToWorker::Farewell { reason, .. } => return Some(reason),
                ToWorker::Collect { collections, withdrawn } => {
                    self.asked.retain(|asked| !withdrawn.contains(&asked.id));
                    self.asked.extend(collections);
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

    /// Gives a sign of life.
    pub fn hear(&self) {
        self.presence.hear();
    }

    /// Reads no more messages.
    pub fn stop_reading(&mut self) {
        self.messages.close();
    }
}

/// A gradient that was announced.
pub struct Announcement(pub(super) oneshot::Receiver<Result<Room, UploadRefusal>>);

impl Announcement {
    /// Whether it is not answered yet.
    pub fn is_waiting(&mut self) -> bool {
        matches!(self.0.try_recv(), Err(TryRecvError::Empty))
    }

    /// The room that it was given; `None` if it waits or was refused.
    pub fn room(&mut self) -> Option<UploadRoom> {
        self.0.try_recv().ok()?.ok().map(UploadRoom)
    }

    /// Whether it was refused.
    pub fn is_refused(&mut self) -> bool {
        matches!(self.0.try_recv(), Ok(Err(_)))
    }
}

/// Room for a gradient, until it is dropped.
pub struct UploadRoom(pub(super) Room);

impl UploadRoom {
    /// Records that bytes of the gradient have arrived.
    pub fn receive(&self, bytes: usize) {
        self.0.receive(bytes);
    }

    /// Whether the gradient must give way.
    pub fn must_give_way(&self) -> bool {
        self.0.must_give_way()
    }
}

/// A vector that was announced.
pub struct VectorAnnouncement(pub(super) oneshot::Receiver<Result<VectorUpload, UploadRefusal>>);

impl VectorAnnouncement {
    /// Whether it is not answered yet.
    pub fn is_waiting(&mut self) -> bool {
        matches!(self.0.try_recv(), Err(TryRecvError::Empty))
    }

    /// Whether it was refused.
    pub fn is_refused(&mut self) -> bool {
        matches!(self.0.try_recv(), Ok(Err(_)))
    }

    /// The upload, if it was let in.
    pub fn upload(&mut self) -> Option<VectorUploading> {
        self.0.try_recv().ok()?.ok().map(VectorUploading)
    }
}

/// A vector that was let in.
pub struct VectorUploading(pub(super) VectorUpload);

pub(super) fn computed(lease: &Lease) -> ComputedLease {
    let tasks = lease.tasks.count as usize;
    let times = LeaseTimes { busy_s: vec![0.0; tasks], outlasted: 0 };
    ComputedLease { lease: lease.id, times, losses: vec![1.0; tasks] }
}

/// The parameters of a session.
pub struct ParameterSets(pub(super) DueSets);

impl ParameterSets {
    /// Takes the set that is due, and returns its iteration.
    pub fn take(&self) -> Option<Iteration> {
        self.0.take().unwrap_or(None)
    }

    /// Whether the session is over.
    pub fn is_over(&self) -> bool {
        self.0.take().is_err()
    }
}
