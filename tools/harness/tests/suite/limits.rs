//! Tests the limits on the memory and time that peers may take: the other workers continue, and end with the same parameters.

use std::{future::poll_fn, pin::Pin, task::Poll, time::Duration};

use ata_coordinator::TransferLimits;
use ata_harness::{
    Cluster, Condition, Ended, FaultProxy, PREFACE, Peer, RawConnection, Settings, WorkerSettings, paths, soon,
};
use ata_wire::FarewellReason;
use ata_wire::limits::MAX_DATA_TRANSFERS;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio_stream::{Stream, StreamExt};
use tonic::Code;

use crate::{RECORD_BYTES, check, count, data, farewell, is_loss, losses, run};

/// Eight workers send gradients of 4 MB, two of which fit into the limit.
#[tokio::test(flavor = "multi_thread")]
async fn more_gradients_than_fit_all_arrive() {
    let transfers = TransferLimits { memory_bytes: 0, ..TransferLimits::default() };
    let settings =
        Settings { model: "toy:1000000", budget: 16, iterations: 5, min_workers: 8, transfers, ..Settings::default() };
    let ended = run(&settings, (0..8).map(|number| WorkerSettings::new(format!("worker-{number}")))).await;
    check(&settings, &ended).await;
    assert!(losses(&ended).is_empty() && ended.report.state.refused.is_empty(), "{:?}", ended.events);
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
    let (reason, detail) = farewell(&mut session).await;
    assert_eq!((reason, detail.as_str()), (FarewellReason::Evicted, "it does not read its parameters"));
    // The connection is closed, and no data is kept for it.
    soon("the end of the call", async { while sets.next().await.is_ok() {} }).await;
    cluster.worker(WorkerSettings::new("honest"));
    let ended = cluster.end().await;
    check(&settings, &ended).await;
    assert_eq!(count(&ended, is_loss), 1);
}

/// The training data is requested by one peer more than may receive it at a time, and none of them reads it. The last one waits for the end
/// of another one's session.
#[tokio::test(flavor = "multi_thread")]
async fn data_are_sent_to_a_few_at_a_time() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("train.bin");
    // The file is larger than the data that HTTP/2 lets a sender send before it is read.
    std::fs::write(&path, vec![0; RECORD_BYTES * 12_000]).unwrap();
    let sha256 = ata_data::sha256_of_file(&path).unwrap();
    let transfers = TransferLimits { timeout: Duration::from_secs(4), ..TransferLimits::default() };
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
    // That end may arrive later, on its own connection; without the wait, it would come a whole timeout later.
    let any_end = poll_fn(|context| {
        let mut ends = deaf.iter_mut().map(|(session, _)| Pin::new(&mut session.incoming).poll_next(context));
        ends.find(Poll::is_ready).map_or(Poll::Pending, |_| Poll::Ready(()))
    });
    assert!(tokio::time::timeout(transfers.timeout / 2, any_end).await.is_ok(), "it did not wait");
    for (session, _) in &mut deaf {
        assert!(soon("the end of a session", session.incoming.next()).await.is_none());
    }
    assert!(soon("the end of the last session", last.incoming.next()).await.is_none());
    cluster.worker(WorkerSettings::new("honest"));
    check(&settings, &cluster.end().await).await;
}

/// Calls that send only the length of their first message, on a connection that answers pings, are closed, and so are connections without a
/// call.
#[tokio::test(flavor = "multi_thread")]
async fn what_comes_to_nothing_is_closed() {
    let cluster = Cluster::start(&Settings::default()).await;
    let mut announcing = RawConnection::announcing(cluster.address, &paths(), 4000).await.unwrap();
    let mut quiet = TcpStream::connect(cluster.address).await.unwrap();
    quiet.write_all(PREFACE).await.unwrap();
    soon("the end of all calls", announcing.all_over()).await.expect("the connection is open");
    // The connection is either reset or closed.
    soon("the end of the connection", quiet.read_to_end(&mut Vec::new())).await.unwrap_or(0);
}

/// A transfer takes many heartbeats on one of the links, and a response does on the other.
#[tokio::test(flavor = "multi_thread")]
async fn workers_behind_slow_links_keep_their_sessions() {
    let slow = Condition { bytes_per_s: Some(100_000), ..Condition::default() };
    let far = Condition { latency: Duration::from_secs(2), ..Condition::default() };
    tokio::join!(keeps_its_session(slow, "toy:300000", 20.0), keeps_its_session(far, "toy:64", 3.5));
}

/// Runs one task of a model on a worker behind a link.
async fn behind(condition: Condition, model: &'static str) -> Ended {
    let heartbeat_timeout = Duration::from_secs(2);
    let settings = Settings { model, budget: 1, iterations: 1, heartbeat_timeout, ..Settings::default() };
    let mut cluster = Cluster::start(&settings).await;
    let link = FaultProxy::to(cluster.address).await;
    link.set(condition);
    cluster.worker(WorkerSettings { through: Some(link.address), ..WorkerSettings::new("far") });
    let ended = cluster.end().await;
    check(&settings, &ended).await;
    ended
}

async fn keeps_its_session(condition: Condition, model: &'static str, at_least_s: f64) {
    let ended = behind(condition, model).await;
    assert_eq!(losses(&ended), [""; 0]);
    let runtime_s = ended.report.state.runtime_s();
    assert!(runtime_s > at_least_s, "{condition:?}: it took only {runtime_s} s");
}

/// The parameters take a second on the worker's link, and the statistics of its speed do not count it.
#[tokio::test(flavor = "multi_thread")]
async fn waiting_for_parameters_counts_in_no_statistics() {
    let ended = behind(Condition { bytes_per_s: Some(400_000), ..Condition::default() }, "toy:100000").await;
    let measured_s = ended.report.state.workers.values().map(|worker| worker.overhead_s).sum::<f64>();
    let known_s = ended.report.statistics["far"].first_overhead_s.expect("it has computed");
    assert!(known_s < measured_s, "{known_s} s of {measured_s} s");
}
