//! Adds up the chunks that belong to this worker.

use std::sync::Arc;
use std::time::{Duration, Instant};

use ata_sums::{GradientSum, add_sums, decode_sums, encode_sums};
use ata_types::{CHUNK_VALUES, WireFormat};
use ata_wire::{GradientUpload, PairFault, Stripe};
use bytes::Bytes;
use tokio::sync::{mpsc, oneshot};
use tokio::task::JoinSet;
use tokio::time::timeout;

use super::peers::PeerUpload;
use super::tally::{Part, WayTally};
use crate::transfer::total;

#[derive(Debug)]
pub(super) struct OwnerFailure {
    pub(super) place: usize,
    pub(super) fault: PairFault,
    pub(super) reason: String,
}

impl OwnerFailure {
    pub(super) fn new(place: usize, fault: PairFault, reason: &(impl ToString + ?Sized)) -> Self {
        Self { place, fault, reason: reason.to_string() }
    }
}

pub(super) struct Owner {
    pub(super) own: Vec<Arc<GradientSum>>,
    pub(super) stripe: Stripe,
    pub(super) format: WireFormat,
    pub(super) totals: mpsc::Sender<Bytes>,
    pub(super) tally: WayTally,
    /// The time within which a chunk of another member must arrive, once all members send.
    pub(super) timeout: Duration,
}

struct StripeSource {
    place: usize,
    chunks: mpsc::Receiver<Result<Bytes, OwnerFailure>>,
    arrived: oneshot::Sender<()>,
}

impl Owner {
    pub(super) async fn run(self, uploads: &mut mpsc::Receiver<PeerUpload>) -> Result<(), OwnerFailure> {
        // There is no timeout here: members send once they have computed, and the coordinator handles those that are late.
        let mut readers = JoinSet::new();
        // If no more sums can come, the exchange is over.
        let Some(mut sources) = self.all(uploads, &mut readers).await? else { return Ok(()) };
        let mut read = Vec::with_capacity(CHUNK_VALUES);
        for at in self.stripe.chunks(0, self.chunks()) {
            let mut total = total(&self.own, at).into_owned();
            for StripeSource { place, chunks, .. } in &mut sources {
                let place = *place;
                // If the reader has ended, the exchange is over.
                let Some(data) = chunks.recv().await else { return Ok(()) };
                read.clear();
                decode_sums(self.format, &data?, total.len(), &mut read)
                    .map_err(|error| OwnerFailure::new(place, PairFault::Undecodable, &error))?;
                add_sums(&mut total, &read);
            }
            if self.totals.send(encode_sums(self.format, &total).into()).await.is_err() {
                // The exchange is over.
                return Ok(());
            }
        }
        for StripeSource { arrived, .. } in sources {
            // The caller may have ended its call, and no longer wait.
            arrived.send(()).unwrap_or(());
        }
        Ok(())
    }

    fn chunks(&self) -> u64 {
        self.own.first().map_or(0, |sum| sum.values.len()).div_ceil(CHUNK_VALUES) as u64
    }

    /// Returns the sums of all other members, in the order of their places; `None` if the exchange ends before. They are read concurrently,
    /// so that the time spent waiting for one member counts only against it.
    async fn all(
        &self,
        uploads: &mut mpsc::Receiver<PeerUpload>,
        readers: &mut JoinSet<()>,
    ) -> Result<Option<Vec<StripeSource>>, OwnerFailure> {
        let (own, members) = (self.stripe.first as usize, self.stripe.stride as usize);
        let mut senders: Vec<PeerUpload> = Vec::new();
        (0..members).filter(|place| *place != own).for_each(|place| self.tally.wait(place, Part::Sum, Instant::now()));
        while senders.len() + 1 < members {
            let Some(sum) = uploads.recv().await else { return Ok(None) };
            let place = sum.place;
            if senders.iter().any(|other| other.place == place) {
                return Err(OwnerFailure::new(place, PairFault::Undecodable, "it sends its sum twice"));
            }
            self.tally.stop(place, Part::Sum);
            senders.push(sum);
        }
        senders.sort_by_key(|sum| sum.place);
        let count = self.stripe.chunks(0, self.chunks()).count();
        let source = |PeerUpload { place, upload, arrived }| {
            let (sender, chunks) = mpsc::channel(1);
            readers.spawn(read_ahead(place, upload, count, self.timeout, self.tally.clone(), sender));
            StripeSource { place, chunks, arrived }
        };
        Ok(Some(senders.into_iter().map(source).collect()))
    }
}

/// Reads `count` chunks of a member's sum, each while the previous one is added.
async fn read_ahead(
    place: usize,
    mut upload: GradientUpload,
    count: usize,
    limit: Duration,
    tally: WayTally,
    chunks: mpsc::Sender<Result<Bytes, OwnerFailure>>,
) {
    for _ in 0..count {
        tally.wait(place, Part::Sum, Instant::now());
        let chunk = match timeout(limit, upload.chunk(|_| {})).await {
            Err(_) => Err(OwnerFailure::new(place, PairFault::Late, "a chunk did not come in time")),
            Ok(Err(error)) => Err(OwnerFailure::new(place, PairFault::Broken, &error)),
            Ok(Ok(None)) => Err(OwnerFailure::new(place, PairFault::Undecodable, "its sum ended early")),
            Ok(Ok(Some(data))) => {
                tally.came(place, Part::Sum, data.len(), Instant::now());
                Ok(data)
            }
        };
        let is_last = chunk.is_err();
        // If the receiver is closed, the exchange is over.
        if chunks.send(chunk).await.is_err() || is_last {
            return;
        }
    }
}
