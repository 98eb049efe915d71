//! Tests that room for vectors that are used whole is shared, and that waiting for it counts against no worker.

use std::collections::BTreeSet;

use ata_coordinator::TransferLimits;
use ata_harness::{Cluster, Ended, Peer, Session, Settings, chunks, soon};
use ata_record::RunEvent;
use ata_wire::proto::{DataRequest, GradientPart};
use ata_wire::{Assignment, Receipt, gradient_parts};
use tokio::sync::mpsc;
use tokio::task::JoinHandle;
use tokio_stream::StreamExt;
use tokio_stream::wrappers::ReceiverStream;
use tonic::{Code, Status};

const SIZE: usize = 64;

/// Returns settings with room for four vectors, two of each worker. Each lease has a check, so that a worker sends two whole vectors.
fn settings() -> Settings {
    let transfers = TransferLimits { memory_bytes: 0, ..TransferLimits::default() };
    // The rest of a worker that failed is longer than any of these tests.
    Settings { iterations: 1, verify: 1.0, transfers, rest_s: 1000.0, ..Settings::default() }
}

/// A worker that sends vectors part by part, on its own connection.
struct Sender {
    peer: Peer,
    session: Session,
}

/// A vector that is being sent.
struct Upload {
    parts: mpsc::Sender<GradientPart>,
    rest: GradientPart,
    answer: JoinHandle<Result<Receipt, Status>>,
}

impl Sender {
    async fn join(cluster: &Cluster, name: &str) -> Self {
        let peer = Peer::connect(cluster.address).await;
        let session = peer.join(name).await;
        Self { peer, session }
    }

    /// Reports a lease, sends the header of its vector, and waits until the header has been read.
    async fn announce(&self, lease: &Assignment) -> Upload {
        self.session.report(&[*lease]).await;
        let vector = lease.vector.expect("it is asked for with the lease");
        let parts: Vec<_> =
            gradient_parts(self.session.header(vector).into(), chunks(&[7; SIZE]).into_iter()).collect().await;
        let [first, rest] = parts.try_into().expect("a header and a chunk");
        let (sender, parts) = mpsc::channel(2);
        sender.send(first).await.unwrap();
        let peer = self.peer.clone();
        let answer = tokio::spawn(async move { peer.submit_parts(ReceiverStream::new(parts)).await });
        // On one thread, calls are served in the order in which they are made.
        for _ in 0..10 {
            let request = DataRequest { session: self.session.token().to_wire(), sha256: vec![0; 32].into() };
            let refused = self.peer.connection.coordinator().data(request).await.unwrap_err();
            assert_eq!(refused.code(), Code::NotFound);
        }
        Upload { parts: sender, rest, answer }
    }
}

impl Upload {
    /// Sends the rest, and returns the response.
    async fn complete(self) -> Receipt {
        self.parts.send(self.rest).await.unwrap();
        drop(self.parts);
        soon("an answer", self.answer).await.unwrap().unwrap()
    }
}

/// Two workers take all of the room and hang. Other workers compute their tasks again, and the one that waited for room is not late.
#[tokio::test]
async fn whoever_waits_for_room_is_not_late() {
    let settings = Settings { budget: 9, min_workers: 3, ..settings() };
    let mut cluster = Cluster::start(&settings).await;
    let (mut senders, mut assigned) = (Vec::new(), Vec::new());
    for name in ["hung", "hung-too", "waiting"] {
        senders.push(Sender::join(&cluster, name).await);
    }
    for sender in &mut senders {
        let leases = sender.session.assigned().await;
        assert_eq!(leases.len(), 2, "its own, and one that it checks");
        assigned.push(leases);
    }
    // There is no room before all three agree on the units.
    let first = senders[2].announce(&assigned[2][0]).await;
    let mut hanging = Vec::new();
    for (sender, leases) in senders.iter().zip(&assigned).take(2) {
        for lease in leases {
            hanging.push(sender.announce(lease).await);
        }
    }
    assert_eq!(first.complete().await, Receipt::Accepted);
    assert_eq!(senders[2].announce(&assigned[2][1]).await.complete().await, Receipt::Accepted);
    cluster.wait_for("the refusals", |state| state.refused.values().sum::<u64>() >= 2).await;
    cluster.stop();
    let Ended { report, events, .. } = cluster.end().await;
    assert!(report.ended.is_ok(), "{:?}", report.ended);
    let rests = events.iter().filter_map(|event| match event {
        RunEvent::Rest { worker, .. } => Some(*worker),
        _ => None,
    });
    let hung = [&senders[0], &senders[1]].map(|sender| sender.session.welcome.worker);
    assert_eq!(rests.collect::<BTreeSet<_>>(), BTreeSet::from(hung));
}

/// A worker that gives up while its vector waits leaves its lease to others.
#[tokio::test]
async fn whoever_gives_up_waiting_fails_its_lease() {
    let mut cluster = Cluster::start(&Settings { budget: 9, min_workers: 3, ..settings() }).await;
    let (mut senders, mut uploads) = (Vec::new(), Vec::new());
    for name in ["a", "b", "fickle"] {
        senders.push(Sender::join(&cluster, name).await);
    }
    for sender in &mut senders {
        for lease in sender.session.assigned().await {
            uploads.push(sender.announce(&lease).await);
        }
    }
    assert_eq!(uploads.len(), 6);
    uploads.pop().unwrap().answer.abort();
    cluster.wait_for("a refusal", |state| !state.refused.is_empty()).await;
    for upload in uploads {
        assert_eq!(upload.complete().await, Receipt::Accepted);
    }
    cluster.stop();
    let Ended { report, .. } = cluster.end().await;
    assert!(report.ended.is_ok(), "{:?}", report.ended);
    assert_eq!(report.state.refused, [(ata_record::RefusalKind::NotReceived, 1)].into());
}
