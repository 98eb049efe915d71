//! Tests that connections live exactly as long as the sessions that they belong to.

use std::time::Duration;

use ata_harness::{Cluster, Peer, RawConnection, Settings, hello, soon};
use ata_net::limits::CONNECTIONS_PER_WORKER;
use ata_types::VectorId;
use ata_wire::proto::{GradientPart, gradient_part};

/// Starts a cluster in which sessions without heartbeats live longer than this test.
async fn cluster() -> Cluster {
    Cluster::start(&Settings { budget: 1, heartbeat_timeout: Duration::from_mins(10), ..Settings::default() }).await
}

async fn is_open(connection: &mut RawConnection) -> bool {
    tokio::time::timeout(Duration::ZERO, connection.closed()).await.is_err()
}

/// A process that reconnects repeatedly, as over a bad link, leaves no connections behind.
#[tokio::test(flavor = "multi_thread")]
async fn connections_of_replaced_sessions_are_closed() {
    let cluster = cluster().await;
    let mut connections = Vec::new();
    for _ in 0..50 {
        let (path, hello) = ("/ata.v1.Coordinator/Session", hello("flapping", 1));
        connections.push(RawConnection::calling(cluster.address, path, &hello).await.unwrap());
    }
    let mut last = connections.pop().unwrap();
    for (at, mut connection) in connections.into_iter().enumerate() {
        soon(&format!("the end of connection {at}"), connection.closed()).await;
    }
    assert!(is_open(&mut last).await, "its session lives");
}

/// A peer may use its session on many connections, but only as many stay open as a worker needs.
#[tokio::test(flavor = "multi_thread")]
async fn a_session_has_two_connections() {
    let cluster = cluster().await;
    let peer = Peer::connect(cluster.address).await;
    let mut scripted = peer.join("greedy").await;
    // A vector that nobody asked for would end the session of a worker whose Ready is still on its way.
    scripted.assigned().await;
    let foreign = scripted.header(VectorId(1_000_000));
    let header = GradientPart { kind: Some(gradient_part::Kind::Header(foreign.into())) };
    let mut connections = Vec::new();
    for _ in 0..4 {
        let path = "/ata.v1.Transfers/SubmitGradient";
        connections.push(RawConnection::calling(cluster.address, path, &header).await.unwrap());
    }
    // The control stream uses one connection.
    let stay = CONNECTIONS_PER_WORKER - 1;
    for connection in &mut connections[stay..] {
        soon("the end of a connection", connection.closed()).await;
    }
    for connection in &mut connections[..stay] {
        assert!(is_open(connection).await, "its session lives");
    }
}
