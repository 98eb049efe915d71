//! What the other tasks send to the owner.

use ata_record::{RecordError, RefusalKind};
use ata_types::{Iteration, LeaseId};
use ata_wire::{GradientHeader, Hello, Peer, Reader, Receipt, SessionToken};
use bytes::Bytes;
use tokio::sync::oneshot;
use tonic::Status;

use super::{Ending, Owner};
use crate::checkpoint::Saved;
use crate::evaluation::Evaluated;
use crate::parameters::DueSets;
use crate::send_file::File;
use crate::sessions::SessionHandle;
use crate::training::Report;
use crate::uploads::Reply;

/// An event or a request for the owner.
pub(crate) enum Command {
    /// A worker introduced itself.
    Hello { hello: Hello, peer: Peer, reply: oneshot::Sender<Result<SessionHandle, Status>> },
    /// A worker can compute, as one batch a lease if it fuses.
    Ready { session: SessionToken, fuses: bool },
    /// A lease failed.
    LeaseFailed { session: SessionToken, lease: LeaseId, kind: RefusalKind, reason: String },
    /// A control stream ended.
    Left { session: SessionToken, why: String },
    /// A worker is ready to receive parameters.
    Parameters { session: SessionToken, reader: Reader, reply: oneshot::Sender<Result<DueSets, Status>> },
    /// A worker is about to send a gradient; the reply says whether it may, once there is room.
    Announce { session: SessionToken, lease: LeaseId, iteration: Iteration, peer: Peer, reply: Reply },
    /// A complete, finite gradient arrived.
    Gradient(Gradient),
    /// A worker asks for the training data.
    Data { session: SessionToken, sha256: Bytes, peer: Peer, reply: oneshot::Sender<Result<File, Status>> },
    /// The training thread took a step, or failed.
    Training(Report),
    /// The evaluation thread is done with an evaluation.
    Evaluated(Evaluated),
    /// The saver is done with a checkpoint or a model.
    Saved(Saved),
    /// The journal can no longer be written.
    RecordFailed(RecordError),
}

/// A gradient that passed every check except the engine's.
pub(crate) struct Gradient {
    pub(crate) header: GradientHeader,
    pub(crate) values: Vec<f32>,
    pub(crate) reply: oneshot::Sender<Receipt>,
}

/// Why a gradient must not be sent.
#[derive(Debug)]
pub(crate) enum NotAnnounced {
    /// There is no such session.
    NoSession(Status),
    /// The gradient would not count.
    NotHeld { reason: String },
}

impl Owner {
    pub(super) fn command(&mut self, command: Command) {
        match command {
            Command::Hello { hello, peer, reply } => answer(reply, self.hello(&hello, &peer)),
            Command::Ready { session, fuses } => self.ready(session, fuses),
            Command::LeaseFailed { session, lease, kind, reason } => {
                self.lease_failed(session, lease, kind, &reason);
            }
            Command::Left { session, why } => {
                if let Some(session) = self.sessions.close_token(session) {
                    self.lost(&session, &why);
                }
            }
            Command::Parameters { session, reader, reply } => answer(reply, self.parameters(session, reader)),
            Command::Announce { session, lease, iteration, peer, reply } => {
                self.announced(session, lease, iteration, &peer, reply);
            }
            Command::Gradient(Gradient { header, values, reply }) => answer(reply, self.gradient(&header, values)),
            Command::Data { session, sha256, peer, reply } => answer(reply, self.data(session, &sha256, &peer)),
            Command::Training(Report::Stepped(stepped)) => self.stepped(stepped),
            Command::Training(Report::Compared(comparison, agree)) => self.compared(comparison, agree),
            Command::Training(Report::Failed) => {
                self.training.is_stepping = false;
                self.ending = Some(Ending::TrainingFailed);
            }
            Command::Evaluated(evaluated) => self.evaluated(evaluated),
            Command::Saved(saved) => self.saved(saved),
            Command::RecordFailed(error) => self.ending = Some(Ending::RecordFailed(error)),
        }
    }
}

/// Answers a request. The sender may be gone by now, which does not matter.
pub(super) fn answer<T>(reply: oneshot::Sender<T>, value: T) {
    drop(reply.send(value));
}
