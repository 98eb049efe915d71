//! A broken machine that returns under another name after each failure, like a restarted container.

use std::net::SocketAddr;
use std::time::Duration;

use ata_harness::{Peer, Session};
use ata_wire::{Assignment, FromWorker, ProcessUsage, ToWorker, connect};

/// The time between the heartbeats of a worker without work, which is far less than the time after which it counts as lost.
const HEARTBEAT_INTERVAL: Duration = Duration::from_millis(500);

/// The way in which a broken machine treats its leases.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Breaks {
    /// The machine fails its leases at once.
    Fails,
    /// The machine never reports its leases.
    Hangs,
}

/// Joins as `NAME-1`, breaks its leases, and returns as `NAME-2` and so on, until the run is over.
pub(crate) async fn come_back_again(coordinator: SocketAddr, name: String, breaks: Breaks) {
    for number in 1.. {
        let endpoint = format!("http://{coordinator}").parse().expect("an address");
        let Ok(connection) = connect(&endpoint).await else { return };
        let Ok(mut session) = Peer { connection }.hello(&format!("{name}-{number}"), number).await else { return };
        session.say(FromWorker::Ready { fuses: false, peer_address: None }).await;
        while let Some(leases) = next_leases(&mut session).await {
            if breaks == Breaks::Fails {
                for Assignment { lease, .. } in leases {
                    let reason = "it is broken".into();
                    session.say(FromWorker::LeaseFailed { lease: lease.id, reason, uncomputable: false }).await;
                }
                break;
            }
        }
        session.leave().await;
    }
}

/// Waits for leases. Returns `None` when the session is over.
async fn next_leases(session: &mut Session) -> Option<Vec<Assignment>> {
    let mut heartbeats = tokio::time::interval(HEARTBEAT_INTERVAL);
    loop {
        tokio::select! {
            message = session.next() => match message? {
                ToWorker::Assign(leases) => return Some(leases),
                ToWorker::Farewell { .. } => return None,
                _ => {}
            },
            _ = heartbeats.tick() => session.say(FromWorker::Heartbeat { idle: false, usage: ProcessUsage::default() }).await,
        }
    }
}
