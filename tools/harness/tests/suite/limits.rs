//! Tests the limits on the memory and time that peers may take: the other workers continue, and end with the same parameters.

use std::time::Duration;

use ata_coordinator::TransferLimits;
use ata_harness::{
    Cluster, Condition, Ended, FaultProxy, PREFACE, Peer, RawConnection, Session, Settings, WorkerSettings, soon,
};
use ata_record::{RunEvent, RunState};
use ata_wire::limits::MAX_DATA_TRANSFERS;
use ata_wire::proto::{DataRequest, TransferPart};
use ata_wire::{FarewellReason, ToWorker};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio_stream::StreamExt;
use tonic::{Code, Status, Streaming};

/// Returns the parameters of an undisturbed run.
async fn undisturbed(settings: &Settings) -> [u8; 32] {
    let mut cluster = Cluster::start(&Settings { min_workers: 1, ..settings.clone() }).await;
    cluster.worker(WorkerSettings::new("honest"));
    cluster.end().await.report.parameters_sha256
}

/// Returns why sessions ended, in order.
fn losses(events: &[RunEvent]) -> Vec<&str> {
    let losses = events.iter().filter_map(|event| match event {
        RunEvent::Loss { why, .. } => Some(why.as_str()),
        _ => None,
    });
    losses.collect()
}

async fn data(peer: &Peer, session: &Session, sha256: [u8; 32]) -> Result<Streaming<TransferPart>, Status> {
    let request = DataRequest { session: session.token().to_wire(), sha256: sha256.to_vec().into() };
    Ok(peer.connection.coordinator().data(request).await?.into_inner())
}

/// Eight workers send gradients of 4 MB, two of which fit into the limit.
#[tokio::test(flavor = "multi_thread")]
async fn more_gradients_than_fit_all_arrive() {
    let transfers = TransferLimits { memory_bytes: 0, ..TransferLimits::default() };
    let settings =
        Settings { model: "toy:1000000", budget: 16, iterations: 5, min_workers: 8, transfers, ..Settings::default() };
    let mut cluster = Cluster::start(&settings).await;
    for number in 0..8 {
        cluster.worker(WorkerSettings::new(format!("worker-{number}")));
    }
    let Ended { report, events, .. } = cluster.end().await;
    assert!(report.ended.is_ok(), "{:?}", report.ended);
    assert!(losses(&events).is_empty() && report.state.refused.is_empty(), "{:?}", report.state.refused);
    assert_eq!(report.parameters_sha256, undisturbed(&settings).await);
}

/// The model is larger than the data that HTTP/2 lets a sender send before it is read.
#[tokio::test(flavor = "multi_thread")]
async fn a_peer_that_does_not_read_its_parameters_is_sent_away() {
    let transfers = TransferLimits { timeout: Duration::from_secs(1), ..TransferLimits::default() };
    let settings = Settings { model: "toy:12000000", budget: 1, iterations: 2, transfers, ..Settings::default() };
    let mut cluster = Cluster::start(&settings).await;
    let peer = Peer::connect(cluster.address).await;
    let bulk = Peer::connect(cluster.address).await;
    let mut session = peer.join("deaf").await;
    let mut sets = bulk.parameters(&session).await.unwrap();
    assert_eq!(session.assigned().await.len(), 1);
    let farewell = loop {
        match session.next().await {
            Some(ToWorker::Farewell { reason, detail }) => break (reason, detail),
            Some(_) => {}
            None => panic!("expected a farewell"),
        }
    };
    assert_eq!((farewell.0, &*farewell.1), (FarewellReason::Evicted, "it does not read its parameters"));
    // The connection is closed, and no data is kept for it.
    soon("the end of the call", async { while sets.next().await.is_ok() {} }).await;
    cluster.worker(WorkerSettings::new("honest"));
    let Ended { report, events, .. } = cluster.end().await;
    assert_eq!(losses(&events), ["it does not read its parameters"]);
    assert_eq!(report.parameters_sha256, undisturbed(&settings).await);
}

/// The training data is requested by one peer more than may receive it at a time, and none of them reads it. The last one waits for the end
/// of another one's session.
#[tokio::test(flavor = "multi_thread")]
async fn data_are_sent_to_a_few_at_a_time() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("train.bin");
    // The records have the size of CIFAR-100's, and the file is larger than the data that HTTP/2 lets a sender send before it is read.
    std::fs::write(&path, vec![0; 3074 * 12_000]).unwrap();
    let sha256 = ata_data::sha256_of_file(&path).unwrap();
    let transfers = TransferLimits { timeout: Duration::from_secs(1), ..TransferLimits::default() };
    let settings = Settings { data: Some(path), iterations: 2, transfers, ..Settings::default() };
    let mut cluster = Cluster::start(&settings).await;
    let mut deaf = Vec::new();
    for number in 0..=MAX_DATA_TRANSFERS {
        let peer = Peer::connect(cluster.address).await;
        let session = peer.hello(&format!("deaf-{number}"), 1).await.unwrap();
        // Each peer has its own connection, since the connection is closed.
        let parts = data(&Peer::connect(cluster.address).await, &session, sha256).await.unwrap();
        assert_eq!(data(&peer, &session, sha256).await.unwrap_err().code(), Code::ResourceExhausted, "once a session");
        deaf.push((session, parts));
    }
    let (mut last, mut parts) = deaf.pop().unwrap();
    // The header for the last peer arrives only after another peer's session has ended.
    assert!(soon("its turn", parts.message()).await.unwrap().is_some());
    let mut over = 0;
    for (session, _) in &mut deaf {
        over += usize::from(tokio::time::timeout(Duration::ZERO, session.incoming.next()).await.is_ok());
    }
    assert!(over > 0, "it did not wait");
    for (session, _) in &mut deaf {
        assert!(soon("the end of a session", session.incoming.next()).await.is_none());
    }
    assert!(soon("the end of the last session", last.incoming.next()).await.is_none());
    cluster.worker(WorkerSettings::new("honest"));
    let Ended { report, .. } = cluster.end().await;
    assert_eq!(report.parameters_sha256, undisturbed(&settings).await);
}

/// Calls that send only the length of their first message, on a connection that answers pings, are closed, and so are connections without a
/// call.
#[tokio::test(flavor = "multi_thread")]
async fn what_comes_to_nothing_is_closed() {
    let cluster = Cluster::start(&Settings::default()).await;
    let calls = [
        "/ata.v1.Coordinator/Session",
        "/ata.v1.Coordinator/Data",
        "/ata.v1.Coordinator/Probe",
        "/ata.v1.Transfers/Parameters",
        "/ata.v1.Transfers/SubmitGradient",
    ];
    let mut announcing = RawConnection::announcing(cluster.address, &calls, 4000).await.unwrap();
    let mut quiet = TcpStream::connect(cluster.address).await.unwrap();
    quiet.write_all(PREFACE).await.unwrap();
    soon("the end of all calls", announcing.all_over()).await.expect("the connection is open");
    let mut answers = Vec::new();
    // The connection is either reset or closed.
    soon("the end of the connection", quiet.read_to_end(&mut answers)).await.unwrap_or(0);
}

/// A transfer takes many heartbeats on one of the links, and a response does on the other.
#[tokio::test(flavor = "multi_thread")]
async fn workers_behind_slow_links_keep_their_sessions() {
    let slow = Condition { bytes_per_s: Some(100_000), ..Condition::default() };
    let far = Condition { latency: Duration::from_secs(2), ..Condition::default() };
    let large = Settings { model: "toy:300000", ..Settings::default() };
    tokio::join!(keeps_its_session(slow, large, 20.0), keeps_its_session(far, Settings::default(), 3.5));
}

async fn keeps_its_session(condition: Condition, settings: Settings, at_least_s: f64) {
    let settings = Settings { budget: 1, iterations: 1, heartbeat_timeout: Duration::from_secs(2), ..settings };
    let mut cluster = Cluster::start(&settings).await;
    let link = FaultProxy::to(cluster.address).await;
    link.set(condition);
    cluster.worker(WorkerSettings { through: Some(link.address), ..WorkerSettings::new("far") });
    cluster.wait_for("the worker", |state: &RunState| state.present() == 1).await;
    let Ended { report, events, .. } = cluster.end().await;
    assert!(losses(&events).is_empty(), "{:?}", losses(&events));
    assert!(report.state.runtime_s() > at_least_s, "{:?}: it took only {} s", condition, report.state.runtime_s());
    assert_eq!(report.parameters_sha256, undisturbed(&settings).await);
}
