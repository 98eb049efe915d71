//! Sends the training data and the test data to workers.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use ata_data::{DataFile, FileState};
use ata_net::Peer;
use ata_wire::SessionToken;
use ata_wire::limits::FILE_CHUNK_BYTES;
use ata_wire::proto::{TransferHeader, TransferPart, transfer_part};
use sha2::{Digest, Sha256};
use tokio::sync::{Semaphore, mpsc, watch};
use tonic::Status;

use crate::driver::{DriverCommand, Presence};

/// One split of a run's data, for the workers that lack it.
#[derive(Debug)]
pub(crate) struct ServedFile {
    file: DataFile,
    /// The file state in which the content was found to have changed.
    changed: watch::Sender<Option<FileState>>,
}

impl ServedFile {
    pub(crate) fn new(file: DataFile) -> Self {
        Self { file, changed: watch::Sender::new(None) }
    }

    /// Returns the state of the file, or an error if its content is known to have changed in that state.
    fn unchanged(&self) -> Result<FileState, SendError> {
        let state = self.file.state()?;
        if !self.file.is_possible(state) || *self.changed.borrow() == Some(state) {
            return Err(self.has_changed(state));
        }
        Ok(state)
    }

    /// Records that the content has changed in this file state, and logs it once.
    fn has_changed(&self, state: FileState) -> SendError {
        let path = self.file.path.display();
        if self.changed.send_replace(Some(state)) != Some(state) {
            tracing::error!(%path, "the data have changed since the run began: workers that lack them cannot have them");
        }
        SendError::Changed(path.to_string())
    }

    /// Returns the chunk at `offset`, and the digest of all data up to its end.
    fn chunk(&self, offset: u64, mut digest: Sha256) -> io::Result<(Vec<u8>, Sha256)> {
        let mut data = vec![0; (self.file.bytes - offset).min(FILE_CHUNK_BYTES as u64) as usize];
        self.file.read_at(&mut data, offset)?;
        digest.update(&data);
        Ok((data, digest))
    }
}

#[derive(Debug)]
pub(crate) struct File {
    pub(crate) served: Arc<ServedFile>,
    pub(crate) presence: Presence,
    /// A mark that exists for as long as the file is being sent.
    pub(crate) _sending: Arc<()>,
}

pub(crate) struct DataTransfer {
    pub(crate) file: File,
    pub(crate) sender: mpsc::Sender<Result<TransferPart, Status>>,
    pub(crate) peer: Peer,
    /// A permit is held for as long as the file is being sent.
    pub(crate) permits: Arc<Semaphore>,
    /// The time within which the worker must accept a chunk.
    pub(crate) timeout: Duration,
}

#[derive(Debug, thiserror::Error)]
enum SendError {
    #[error("the coordinator cannot read its data: {0}")]
    Read(#[from] io::Error),
    #[error("the data at the coordinator, {0}, have changed since the run began: put them back, or begin another run")]
    Changed(String),
    #[error("the worker does not read the data")]
    Stalled,
    /// The call is over.
    #[error("the worker gave up")]
    Dropped,
}

impl DataTransfer {
    /// Sends the file once a permit is free, unless the session ends first.
    pub(crate) async fn run(self, driver: mpsc::Sender<DriverCommand>, session: SessionToken) {
        let sent = tokio::select! {
            sent = self.send() => sent,
            // Closing the connection frees the memory of the call's chunks.
            () = self.file.presence.ended.cancelled() => return self.peer.close(),
        };
        let answer = match sent {
            Ok(()) | Err(SendError::Dropped) => return,
            Err(error @ SendError::Stalled) => {
                self.peer.close();
                // If the driver is gone, all sessions are over.
                return driver.send(DriverCommand::Left { session, why: error.to_string() }).await.unwrap_or(());
            }
            Err(error @ SendError::Changed(_)) => Status::data_loss(error.to_string()),
            Err(error @ SendError::Read(_)) => {
                tracing::warn!(path = %self.file.served.file.path.display(), "{error}");
                Status::internal(error.to_string())
            }
        };
        // The worker may have ended the call.
        self.sender.send(Err(answer)).await.unwrap_or(());
    }

    /// Sends the file's content as it was hashed when the run began. If the content has changed, an error replaces the end of the transfer.
    async fn send(&self) -> Result<(), SendError> {
        let _permit = tokio::select! {
            permit = self.permits.acquire() => permit.map_err(|_| SendError::Dropped)?,
            () = self.sender.closed() => return Err(SendError::Dropped),
        };
        let served = &self.file.served;
        let state = blocking(served, ServedFile::unchanged).await?;
        let bytes = served.file.bytes;
        let header = transfer_part::Kind::Header(TransferHeader { bytes });
        self.send_part(TransferPart { kind: Some(header) }).await?;
        let (mut sent, mut digest) = (0, Sha256::new());
        while sent < bytes {
            let (data, so_far) = blocking(served, move |served| Ok(served.chunk(sent, digest)?)).await?;
            (sent, digest) = (sent + data.len() as u64, so_far);
            self.send_part(TransferPart { kind: Some(transfer_part::Kind::Chunk(ata_wire::chunk(data.into()))) })
                .await?;
        }
        if digest.finalize()[..] == served.file.sha256 { Ok(()) } else { Err(served.has_changed(state)) }
    }

    async fn send_part(&self, part: TransferPart) -> Result<(), SendError> {
        let sent = tokio::time::timeout(self.timeout, self.sender.send(Ok(part))).await;
        sent.map_err(|_| SendError::Stalled)?.map_err(|_| SendError::Dropped)
    }
}

async fn blocking<T: Send + 'static>(
    served: &Arc<ServedFile>,
    work: impl FnOnce(&ServedFile) -> Result<T, SendError> + Send + 'static,
) -> Result<T, SendError> {
    let served = served.clone();
    let done = tokio::task::spawn_blocking(move || work(&served)).await;
    done.unwrap_or_else(|error| Err(io::Error::other(error).into()))
}
