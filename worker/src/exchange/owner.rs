//! Adds up the chunks that belong to this worker.

use std::sync::Arc;
use std::time::Duration;

use ata_learn::{GradientSum, add_sums, decode_sums, encode_sums};
use ata_types::{CHUNK_VALUES, WireFormat};
use ata_wire::{GradientUpload, Shard};
use bytes::Bytes;
use tokio::sync::{mpsc, oneshot};
use tokio::time::timeout;

use super::peers::PeerUpload;
use crate::transfer::total;

/// Time that a chunk of another member may take once all of them send: a link of 100 kB/s needs 1.3 s for one, and as long for each
/// of the others that it carries at the same time.
const CHUNK_TIMEOUT: Duration = Duration::from_secs(15);

/// A member that could not be worked with, and why.
#[derive(Debug)]
pub(super) struct Failure {
    pub(super) place: usize,
    pub(super) reason: String,
}

/// This worker's sum, and the chunks of it and of the others' that belong to this worker.
pub(super) struct Owner {
    pub(super) own: Vec<Arc<GradientSum>>,
    pub(super) shard: Shard,
    pub(super) format: WireFormat,
    /// Takes the totals.
    pub(super) totals: mpsc::Sender<Bytes>,
}

impl Owner {
    /// Adds up all chunks as they arrive.
    pub(super) async fn run(self, uploads: &mut mpsc::Receiver<PeerUpload>) -> Result<(), Failure> {
        // Members send when they have computed, which may take any time. The coordinator takes care of those that are late.
        let mut senders = self.all(uploads).await?;
        let values = self.own.first().map_or(0, |sum| sum.values.len());
        let mut read = Vec::with_capacity(CHUNK_VALUES);
        for at in self.shard.chunks(0, values.div_ceil(CHUNK_VALUES) as u64) {
            let mut total = total(&self.own, at).into_owned();
            for (place, upload, _) in &mut senders {
                let failed = |reason: String| Failure { place: *place, reason };
                let data = next_chunk(upload).await.map_err(failed)?;
                read.clear();
                decode_sums(self.format, &data, total.len(), &mut read).map_err(|error| failed(error.to_string()))?;
                add_sums(&mut total, &read);
            }
            if self.totals.send(encode_sums(self.format, &total).into()).await.is_err() {
                // The exchange is over.
                return Ok(());
            }
        }
        for (_, _, arrived) in senders {
            // Without the caller, nobody waits for it.
            arrived.send(()).unwrap_or(());
        }
        Ok(())
    }

    /// The sums of all other members, each once, in the order of their places.
    async fn all(
        &self,
        uploads: &mut mpsc::Receiver<PeerUpload>,
    ) -> Result<Vec<(usize, GradientUpload, oneshot::Sender<()>)>, Failure> {
        let (own, members) = (self.shard.first as usize, self.shard.stride as usize);
        let mut senders: Vec<(usize, GradientUpload, oneshot::Sender<()>)> = Vec::new();
        while senders.len() + 1 < members {
            let Some(PeerUpload { place, upload, arrived }) = uploads.recv().await else { return Ok(senders) };
            if place == own || place >= members || senders.iter().any(|(other, ..)| *other == place) {
                return Err(Failure { place, reason: format!("a sum of place {place}, which is not awaited") });
            }
            senders.push((place, upload, arrived));
        }
        senders.sort_by_key(|(place, ..)| *place);
        Ok(senders)
    }
}

async fn next_chunk(upload: &mut GradientUpload) -> Result<Bytes, String> {
    match timeout(CHUNK_TIMEOUT, upload.chunk(|_| {})).await {
        Err(_) => Err(format!("a chunk did not come within {} s", CHUNK_TIMEOUT.as_secs())),
        Ok(Err(error)) => Err(error.to_string()),
        Ok(Ok(None)) => Err("its sum ended early".into()),
        Ok(Ok(Some(data))) => Ok(data),
    }
}
