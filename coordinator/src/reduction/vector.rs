//! The states of a vector.

use std::sync::Arc;

use ata_scheduler::topology::VectorProgress;
use ata_sums::{GradientSum, Units};
use ata_types::{CollectionId, Lease, WorkerId};
use ata_wire::{GradientHeader, Receipt, Stripe, VectorRequest};
use tokio::sync::oneshot;
use tonic::Status;

use super::Gate;
use super::room::{Filling, Whole};
use crate::driver::VectorUpload;
use crate::training::HeldSum;

/// A vector that a worker was asked for.
#[derive(Debug)]
pub(super) struct Vector {
    pub(super) worker: WorkerId,
    /// The engine's collection that the vector is part of.
    pub(super) part_of: CollectionId,
    pub(super) request: VectorRequest,
    pub(super) leases: Vec<Lease>,
    /// The progress of the transfer, once the leases are known to be computed.
    pub(super) progress: Option<VectorProgress>,
    /// Whether the vector was requested again, in the units of the iteration.
    pub(super) is_repeated: bool,
    /// Whether a step was ordered that uses the vector whole.
    pub(super) is_taken: bool,
    pub(super) state: VectorState,
}

/// The state of a vector. A vector passes through the states in this order, and may end in any of them.
#[derive(Debug)]
pub(super) enum VectorState {
    Asked,
    /// The header has arrived. The vector waits for the reports on its leases, for the units, for its exchange, or for room.
    Announced(Announcement),
    /// The chunks pass through the gate to the training thread.
    Open(Gate),
    /// The chunks are assembled, since the vector is used whole.
    Filling(Filling),
    /// The vector has arrived, and is kept separate from all others.
    Held(Arc<HeldSum>),
    /// All chunks have passed, or had already passed for a worker that was lost.
    Whole,
}

/// The announcement of a vector, from its header.
#[derive(Debug)]
pub(crate) struct Announcement {
    pub(crate) header: GradientHeader,
    pub(crate) units: Units,
    pub(crate) reply: VectorReply,
}

/// Replies to a worker that is about to send a vector, once it may. If it must not, the error is the response to its call.
pub(crate) type VectorReply = oneshot::Sender<Result<VectorUpload, Result<Receipt, Status>>>;

/// The destination of a vector's chunks.
#[derive(Debug)]
pub(crate) enum Sink {
    /// Chunks go to the training thread one by one.
    Gate(Gate),
    /// Chunks are assembled, and go to the driver together.
    Whole(Whole),
}

impl Vector {
    /// Returns the chunks that the worker sends, if the vector is exchanged in shards.
    pub(super) fn stripe(&self) -> Option<Stripe> {
        self.request.shards.as_ref().map(|shards| shards.of(shards.place))
    }

    /// Returns whether this is the vector of a single lease, which is used whole.
    pub(super) fn is_own(&self) -> bool {
        self.leases.iter().any(|lease| lease.own.is_some())
    }

    pub(super) fn has_arrived(&self) -> bool {
        matches!(self.state, VectorState::Held(_) | VectorState::Whole)
    }

    /// Returns whether the vector is not admitted yet.
    pub(super) fn is_outside(&self) -> bool {
        matches!(self.state, VectorState::Asked | VectorState::Announced(_))
    }

    /// Returns the announcement, if the vector was announced and is not admitted yet.
    pub(super) fn announcement(&self) -> Option<&Announcement> {
        if let VectorState::Announced(announcement) = &self.state { Some(announcement) } else { None }
    }

    /// Returns an assembled vector, from its values and its header.
    pub(super) fn held(&self, filling: Filling, values: Vec<i32>) -> HeldSum {
        let Filling { header: GradientHeader { maxima, saturated, vanished, .. }, units, .. } = filling;
        let tasks = self.leases.iter().map(|lease| lease.tasks.count).sum();
        HeldSum { sum: GradientSum { values, maxima, saturated, vanished, tasks }, units }
    }
}
