//! Tests that clients that measure their connections cost a run almost nothing.

use std::time::Duration;

use ata_harness::{Cluster, Peer, Settings, WorkerSettings, soon};
use ata_wire::limits::{MAX_PROBE_BYTES, MAX_PROBES};
use ata_wire::proto::coordinator_client::CoordinatorClient;
use ata_wire::proto::{ProbeAnswer, ProbeRequest};
use tokio_stream::StreamExt;
use tonic::transport::Channel;
use tonic::{Code, Streaming};

use crate::check;

/// Starts a probe whose answer is not read, on a connection that buffers little of it.
async fn deaf(cluster: &Cluster) -> Streaming<ProbeAnswer> {
    let endpoint = Channel::from_shared(format!("http://{}", cluster.address)).unwrap();
    let little = endpoint.initial_stream_window_size(65_535).initial_connection_window_size(65_535);
    let request = ProbeRequest { answer_bytes: MAX_PROBE_BYTES, padding: Vec::new().into() };
    let mut client = CoordinatorClient::new(little.connect().await.unwrap());
    client.probe(tokio_stream::once(request)).await.unwrap().into_inner()
}

#[tokio::test(flavor = "multi_thread")]
async fn probes_are_few_and_short() {
    let settings = Settings::default();
    let mut cluster = Cluster::start(&settings).await;
    let mut answer = deaf(&cluster).await;
    let stalled = Peer::connect(cluster.address).await;
    let mut client = stalled.connection.coordinator();
    // It is refused itself while the place is taken by a probe of the loop below.
    let stalled = tokio::spawn(async move {
        loop {
            let first = tokio_stream::once(ProbeRequest::default()).chain(tokio_stream::pending());
            let refused = client.probe(first).await.map(drop).unwrap_err().code();
            if refused != Code::ResourceExhausted {
                break refused;
            }
        }
    });
    let peer = Peer::connect(cluster.address).await;
    assert_eq!(MAX_PROBES, 2);
    let full = async {
        loop {
            if let Err(refused) = peer.connection.probe(0, 0).await {
                break refused.code();
            }
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    assert_eq!(soon("a refusal", full).await, Code::ResourceExhausted);

    assert_eq!(soon("an answer", stalled).await.unwrap(), Code::DeadlineExceeded);
    // A probe whose answer is read slowly does not continue for longer, either.
    let broken = async {
        loop {
            tokio::time::sleep(Duration::from_millis(500)).await;
            if answer.message().await.is_err() {
                break;
            }
        }
    };
    soon("the end of the connection", broken).await;

    let peer = Peer::connect(cluster.address).await;
    let endless = tokio_stream::iter(std::iter::repeat_with(ProbeRequest::default));
    let refused = soon("an answer", peer.connection.coordinator().probe(endless)).await.unwrap_err();
    assert_eq!(refused.code(), Code::InvalidArgument);
    peer.connection.probe(MAX_PROBE_BYTES, MAX_PROBE_BYTES).await.unwrap();
    cluster.worker(WorkerSettings::new("honest"));
    check(&settings, &cluster.end().await).await;
}
