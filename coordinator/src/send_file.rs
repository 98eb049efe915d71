//! Sends a worker the training data.

use std::io;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use ata_wire::limits::CHUNK_BYTES;
use ata_wire::proto::{TransferPart, transfer_part};
use ata_wire::{Peer, SessionToken, file_parts};
use tokio::io::AsyncReadExt;
use tokio::sync::{Semaphore, mpsc};
use tonic::Status;

use crate::owner::Command;
use crate::session::Presence;

/// A data file that a session may be sent.
#[derive(Debug)]
pub(crate) struct File {
    pub(crate) path: PathBuf,
    pub(crate) presence: Presence,
    /// Held for as long as it is being sent.
    pub(crate) _sending: Arc<()>,
}

/// A data file on its way to a worker.
pub(crate) struct DataTransfer {
    pub(crate) file: File,
    pub(crate) sender: mpsc::Sender<Result<TransferPart, Status>>,
    pub(crate) peer: Peer,
    /// One is taken for as long as the file is being sent.
    pub(crate) permits: Arc<Semaphore>,
    /// Time in which the worker must take a chunk.
    pub(crate) timeout: Duration,
}

/// Why a file was not sent.
#[derive(Debug, thiserror::Error)]
enum NotSent {
    #[error("the coordinator cannot read its training data: {0}")]
    Read(#[from] io::Error),
    #[error("it does not read the training data")]
    Stalled,
    /// The call is over.
    #[error("the worker gave up")]
    Dropped,
}

impl DataTransfer {
    /// Sends the file once it is its turn, unless the session ends before.
    pub(crate) async fn run(self, owner: mpsc::Sender<Command>, session: SessionToken) {
        let sent = tokio::select! {
            sent = self.send() => sent,
            // What is left of the call does not keep the memory of its chunks.
            () = self.file.presence.ended.cancelled() => return self.peer.close(),
        };
        match sent {
            Ok(()) | Err(NotSent::Dropped) => {}
            Err(error @ NotSent::Stalled) => {
                self.peer.close();
                // If the owner is gone, all sessions are over.
                owner.send(Command::Left { session, why: error.to_string() }).await.unwrap_or(());
            }
            Err(error @ NotSent::Read(_)) => {
                tracing::warn!(path = %self.file.path.display(), %error, "cannot send the training data");
                // The worker may have given up.
                self.sender.send(Err(Status::internal(error.to_string()))).await.unwrap_or(());
            }
        }
    }

    async fn send(&self) -> Result<(), NotSent> {
        let _permit = tokio::select! {
            permit = self.permits.acquire() => permit.map_err(|_| NotSent::Dropped)?,
            () = self.sender.closed() => return Err(NotSent::Dropped),
        };
        let mut file = tokio::fs::File::open(&self.file.path).await?;
        let mut left = file.metadata().await?.len();
        for header in file_parts(left, []) {
            self.send_part(header).await?;
        }
        while left > 0 {
            let mut data = vec![0; left.min(CHUNK_BYTES as u64) as usize];
            file.read_exact(&mut data).await?;
            left -= data.len() as u64;
            self.send_part(TransferPart { kind: Some(transfer_part::Kind::Chunk(ata_wire::chunk(data.into()))) })
                .await?;
        }
        Ok(())
    }

    async fn send_part(&self, part: TransferPart) -> Result<(), NotSent> {
        let sent = tokio::time::timeout(self.timeout, self.sender.send(Ok(part))).await;
        sent.map_err(|_| NotSent::Stalled)?.map_err(|_| NotSent::Dropped)
    }
}
