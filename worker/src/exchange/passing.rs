//! Receives the parameters that another member passes on.

use std::pin::pin;
use std::time::{Duration, Instant};

use ata_wire::{Connection, PairFault, ParameterPart, ParameterStream, SessionToken, SetHeader, Stripe};
use bytes::Bytes;
use tokio::sync::{mpsc, watch};
use tokio::time::timeout;

use super::owner::OwnerFailure;
use super::tally::{Part, WayTally};

/// The timeout for the last chunks of a set, in chunk timeouts. It is longer, since no later chunk of this worker shows that the member
/// already has them. Within one chunk timeout, a member reports which other member it waits for.
const LAST_CHUNKS: u32 = 3;

pub(super) struct Passing {
    pub(super) place: usize,
    /// The chunks that this worker receives from the coordinator.
    pub(super) own: Stripe,
    /// The number of these chunks that have arrived.
    pub(super) own_counted: watch::Receiver<usize>,
    pub(super) expected: SetHeader,
    /// The time within which a chunk must arrive once the member has it.
    pub(super) timeout: Duration,
    pub(super) tally: WayTally,
    pub(super) chunks: mpsc::Sender<Bytes>,
}

impl Passing {
    pub(super) async fn receive(self, connection: Connection, key: SessionToken) -> Result<(), OwnerFailure> {
        let opened = connection.parameters(key, None).await;
        let mut stream = opened.map_err(|status| self.failed(PairFault::Broken, status.message()))?;
        let stripe = self.expected.stripe.unwrap_or(Stripe::ALL);
        let own: Vec<u64> = self.own.chunks(0, self.expected.chunks).collect();
        for at in stripe.chunks(0, self.expected.chunks) {
            // The coordinator steps chunks in order, so once it has sent a later one, the member has this one, too.
            let (due, limit) = match own.partition_point(|own| *own < at) {
                before if before < own.len() => (before + 1, self.timeout),
                all => (all, LAST_CHUNKS * self.timeout),
            };
            let data = {
                let mut counted = self.own_counted.clone();
                let owed = async { counted.wait_for(|count| *count >= due).await.map(drop) };
                let mut chunk = pin!(self.chunk(&mut stream));
                let early = tokio::select! {
                    biased;
                    data = &mut chunk => Some(data),
                    // If the sender is dropped, the exchange is over.
                    _ = owed => None,
                };
                if let Some(data) = early {
                    data?
                } else {
                    self.tally.wait(self.place, Part::Parameters, Instant::now());
                    let late = |_| self.failed(PairFault::Late, "its parameters did not come in time");
                    timeout(limit, chunk).await.map_err(late)??
                }
            };
            self.tally.came(self.place, Part::Parameters, data.len(), Instant::now());
            if self.chunks.send(data).await.is_err() {
                return Ok(());
            }
        }
        Ok(())
    }

    async fn chunk(&self, stream: &mut ParameterStream) -> Result<Bytes, OwnerFailure> {
        loop {
            match stream.next().await.map_err(|error| self.failed(PairFault::Broken, &error))? {
                ParameterPart::Set(found) if found == self.expected => {}
                ParameterPart::Set(_) => return Err(self.failed(PairFault::Broken, "it has other parameters")),
                ParameterPart::Chunk { data, .. } => return Ok(data),
            }
        }
    }

    fn failed(&self, fault: PairFault, reason: &(impl ToString + ?Sized)) -> OwnerFailure {
        OwnerFailure::new(self.place, fault, reason)
    }
}
