//! Room for gradients is shared, and waiting for it counts against no worker.

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

/// With room for four gradients, two of each worker. Each lease has a check, so that a worker holds two that it sends alone.
fn settings() -> Settings {
    let transfers = TransferLimits { memory_bytes: 0, ..TransferLimits::default() };
    // The first rest of a worker that fails is longer than any of these tests.
    Settings { iterations: 1, verify: 1.0, transfers, rest_s: 1000.0, ..Settings::default() }
}

/// A worker that sends gradients part by part, on a connection of its own.
struct Sender {
    peer: Peer,
    session: Session,
}

/// A gradient that is being sent.
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

    /// Sends the header of a gradient, and returns when it has been read.
    async fn announce(&self, lease: &Assignment) -> Upload {
        let parts: Vec<_> =
            gradient_parts(self.session.header(lease).into(), chunks(&[7; SIZE]).into_iter()).collect().await;
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
    /// Sends the rest, and returns the answer.
    async fn complete(self) -> Receipt {
        self.parts.send(self.rest).await.unwrap();
        drop(self.parts);
        soon("an answer", self.answer).await.unwrap().unwrap()
    }
}

/// Two workers take all of the room and hang. They miss their deadlines; the one that had to wait for them does not.
#[tokio::test]
async fn whoever_waits_for_room_misses_no_deadline() {
    // Long enough that all three have announced their gradients by then.
    let settings = Settings { budget: 9, min_workers: 3, lease_timeout_s: 8.0, ..settings() };
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
    cluster.wait_for("the losses", |state| state.workers.values().filter(|worker| !worker.present).count() >= 2).await;
    cluster.stop();
    let Ended { report, events, .. } = cluster.end().await;
    assert!(report.ended.is_ok(), "{:?}", report.ended);
    let evicted = events.iter().filter_map(|event| match event {
        RunEvent::Loss { worker, why, .. } if why.starts_with("no result for") => Some(worker.number()),
        _ => None,
    });
    let mut evicted: Vec<u32> = evicted.collect();
    evicted.sort_unstable();
    let hung = [&senders[0], &senders[1]].map(|sender| sender.session.welcome.worker.number());
    assert_eq!(evicted, hung);
}

/// A worker that gives up while its gradient waits leaves its lease to others.
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
