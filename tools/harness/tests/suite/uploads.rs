//! Tests that room for vectors that are used whole is shared, and that waiting for it counts against no worker.

use std::collections::BTreeSet;

use ata_coordinator::TransferLimits;
use ata_harness::{Cluster, Peer, Session, Settings, chunks, soon};
use ata_wire::{Assignment, Receipt, gradient_parts};
use tokio::sync::mpsc;
use tokio_stream::StreamExt;
use tokio_stream::wrappers::ReceiverStream;
use tonic::Code;

use crate::{data, rests};

const SIZE: usize = 64;

/// Returns settings with room for four vectors, two of each worker. Each lease has a check, so that a worker sends two whole vectors.
fn settings() -> Settings {
    let transfers = TransferLimits { memory_bytes: 0, ..TransferLimits::default() };
    // The rest of a worker that failed is longer than any of these tests.
    let (budget, min_workers, iterations, verify, rest_s) = (9, 3, 1, 1.0, 1000.0);
    Settings { budget, min_workers, iterations, verify, transfers, rest_s, ..Settings::default() }
}

/// A worker that sends vectors part by part, on its own connection.
struct Sender {
    peer: Peer,
    session: Session,
}

impl Sender {
    async fn join(cluster: &Cluster, name: &str) -> Self {
        let peer = Peer::connect(cluster.address).await;
        let session = peer.join(name).await;
        Self { peer, session }
    }

    /// Reports a lease, sends the header of its vector, and waits until the header has been read. Returns a future that sends the rest.
    async fn announce(&self, lease: &Assignment) -> impl Future<Output = Receipt> + use<> {
        self.session.report(&[*lease]).await;
        let vector = lease.vector.expect("it is asked for with the lease");
        let parts: Vec<_> =
            gradient_parts(self.session.header(vector).into(), chunks(&[7; SIZE]).into_iter()).collect().await;
        let [first, rest] = parts.try_into().expect("a header and a chunk");
        let (parts, sent) = mpsc::channel(2);
        parts.send(first).await.unwrap();
        let peer = self.peer.clone();
        let answer = tokio::spawn(async move { peer.submit_parts(ReceiverStream::new(sent)).await });
        // On one thread, calls are served in the order in which they are made.
        for _ in 0..10 {
            let refused = data(&self.peer, &self.session, [0; 32]).await.unwrap_err();
            assert_eq!(refused.code(), Code::NotFound);
        }
        async move {
            parts.send(rest).await.unwrap();
            drop(parts);
            soon("an answer", answer).await.unwrap().unwrap()
        }
    }
}

/// Two workers take all of the room and hang. Other workers compute their tasks again, and the one that waited for room is not late.
#[tokio::test]
async fn whoever_waits_for_room_is_not_late() {
    let mut cluster = Cluster::start(&settings()).await;
    let mut senders = Vec::new();
    for name in ["hung", "hung-too", "waiting"] {
        senders.push(Sender::join(&cluster, name).await);
    }
    let mut waiting = senders.pop().unwrap();
    let leases = waiting.session.assigned().await;
    assert_eq!(leases.len(), 2, "its own, and one that it checks");
    // There is no room before all three agree on the units.
    let first = waiting.announce(&leases[0]).await;
    let mut hanging = Vec::new();
    for sender in &mut senders {
        for lease in sender.session.assigned().await {
            hanging.push(sender.announce(&lease).await);
        }
    }
    assert_eq!(first.await, Receipt::Accepted);
    assert_eq!(waiting.announce(&leases[1]).await.await, Receipt::Accepted);
    cluster.wait_for("the refusals", |state| state.refused.values().sum::<u64>() >= 2).await;
    cluster.stop();
    let ended = cluster.end().await;
    let hung = senders.iter().map(|sender| sender.session.welcome.worker);
    assert_eq!(BTreeSet::from_iter(rests(&ended)), hung.collect());
}
