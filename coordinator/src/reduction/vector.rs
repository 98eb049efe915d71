//! A vector's life.

use std::sync::Arc;

use ata_scheduler::topology::VectorProgress;
use ata_sums::{GradientSum, Units};
use ata_types::{CollectionId, Lease, WorkerId};
use ata_wire::{SessionToken, Stripe, VectorRequest};
use tokio::sync::oneshot;
use tonic::Status;

use super::Gate;
use super::room::{Filling, Whole};
use crate::driver::VectorUpload;
use crate::training::{HeldSum, Magnitudes};

/// A vector that a worker was asked for.
#[derive(Debug)]
pub(super) struct Vector {
    pub(super) worker: WorkerId,
    /// The collection of the engine that it is part of.
    pub(super) part_of: CollectionId,
    pub(super) request: VectorRequest,
    /// The leases with its tasks.
    pub(super) leases: Vec<Lease>,
    /// How far it has come, once its leases are known to be computed.
    pub(super) progress: Option<VectorProgress>,
    /// Whether it was asked for again, in the units of the iteration.
    pub(super) is_repeated: bool,
    /// Whether a step was ordered that takes it whole.
    pub(super) is_taken: bool,
    pub(super) state: State,
}

/// Where a vector is. Each one goes through these in order, and may end in any of them.
#[derive(Debug)]
pub(super) enum State {
    /// It was asked for.
    Asked,
    /// Its header came. It waits for the reports on its leases, for the units, for its exchange, or for room.
    Announced(Announcement),
    /// Its chunks pass the gate to the training thread.
    Open(Gate),
    /// Its chunks are put together, since it is used whole.
    Filling(Filling),
    /// It is here, apart from all others.
    Held(Arc<HeldSum>),
    /// All of its chunks have passed, or came before from a worker that was lost.
    Whole,
}

/// A vector whose header came.
#[derive(Debug)]
pub(crate) struct Announcement {
    pub(crate) session: SessionToken,
    pub(crate) magnitudes: Magnitudes,
    pub(crate) units: Units,
    pub(crate) reply: VectorReply,
}

/// Answers a worker that is about to send a vector, once it may.
pub(crate) type VectorReply = oneshot::Sender<Result<VectorUpload, UploadRefusal>>;

/// Where the chunks of a vector go.
#[derive(Debug)]
pub(crate) enum Sink {
    /// To the training thread, one by one.
    Gate(Gate),
    /// Together to the driver.
    Whole(Whole),
}

/// Why a vector must not be sent.
#[derive(Debug)]
pub(crate) enum UploadRefusal {
    /// There is no such session.
    NoSession(Status),
    /// The vector would not count.
    NotHeld { reason: String },
}

impl Vector {
    /// The chunks that the worker sends in an exchange in shards.
    pub(super) fn stripe(&self) -> Option<Stripe> {
        self.request.shards.as_ref().map(|shards| shards.of(shards.place))
    }

    /// Whether it is the vector of one lease, which is used whole.
    pub(super) fn is_own(&self) -> bool {
        self.leases.iter().any(|lease| lease.own.is_some())
    }

    /// Whether nothing more has to come.
    pub(super) fn has_arrived(&self) -> bool {
        matches!(self.state, State::Held(_) | State::Whole)
    }

    /// Whether it was not let in.
    pub(super) fn is_outside(&self) -> bool {
        matches!(self.state, State::Asked | State::Announced(_))
    }

    /// The gate that its chunks pass.
    pub(super) fn gate(&self) -> Option<&Gate> {
        if let State::Open(gate) = &self.state { Some(gate) } else { None }
    }

    /// What is known of it, if it was announced and was not let in.
    pub(super) fn announcement(&self) -> Option<&Announcement> {
        if let State::Announced(announcement) = &self.state { Some(announcement) } else { None }
    }

    /// The values of a vector that was let in whole, with what its header says.
    pub(super) fn held(&self, filling: Filling, values: Vec<i32>) -> HeldSum {
        let (Magnitudes { maxima, saturated, vanished }, units) = filling.into_header();
        let tasks = self.leases.iter().map(|lease| lease.tasks.count).sum();
        HeldSum { sum: GradientSum { values, maxima, saturated, vanished, tasks }, units }
    }
}
