//! Measures the memory that the coordinator needs for peers that do not read, in versions of the parameters. The peers ask for parameters,
//! never read them, and return after they are evicted. Each holds a lease of another iteration, while an honest worker continues the run.
//!
//! The peers run in another process, since their memory holds the data that HTTP/2 lets the coordinator send.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::time::{Duration, Instant};

use ata_coordinator::TransferLimits;
use ata_harness::{Cluster, Peer, Settings, WorkerSettings, resident_kb};
use ata_record::RunEvent;
use ata_wire::{FromWorker, ProcessUsage, ToWorker};
use tokio::process::Command;

const PEERS: usize = 32;
/// A model that is larger than the data that HTTP/2 lets a sender send before it is read.
const MODEL: &str = "toy:6000000";
const VERSION_KB: u64 = 4 * 6_000_000 / 1024;
const MEASURED: Duration = Duration::from_mins(1);

pub(crate) async fn run(arguments: &[String]) {
    match arguments {
        [role, address] if role == "deaf" => deaf(address.parse().expect("an address")).await,
        _ => measure().await,
    }
}

async fn measure() {
    // There is room for eight versions, and as many gradients.
    let transfers = TransferLimits { memory_bytes: 8 * 1024 * VERSION_KB, timeout: Duration::from_secs(10) };
    let settings =
        Settings { policy: "asgd", model: MODEL, budget: 1, iterations: u64::MAX, transfers, ..Settings::default() };
    let mut cluster = Cluster::start(&settings).await;
    cluster.worker(WorkerSettings::new("honest"));
    cluster.wait_for("the first iterations", |state| state.iterations > 50).await;
    let (before, first) = (resident_kb(), cluster.state.borrow().iterations);
    let mut command = Command::new(std::env::current_exe().expect("a program"));
    let command = command.args(["deaf_peers", "deaf", &cluster.address.to_string()]).kill_on_drop(true);
    let peers = command.spawn().expect("it starts");
    let (mut most, mut present, began) = (0, 0, Instant::now());
    while began.elapsed() < MEASURED {
        most = most.max(resident_kb());
        present = present.max(cluster.state.borrow().present());
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    let steps = cluster.state.borrow().iterations - first;
    let more = most.saturating_sub(before) as f64 / VERSION_KB as f64;
    println!("up to {present} workers present, {steps} steps: at most {more:.1} versions more in memory");
    drop(peers);
    cluster.stop();
    let mut reasons = BTreeMap::new();
    for event in cluster.end().await.events {
        if let RunEvent::Loss { why, .. } = event {
            *reasons.entry(why).or_insert(0) += 1;
        }
    }
    for (why, sessions) in reasons {
        println!("{sessions} sessions ended: {why}");
    }
}

async fn deaf(address: SocketAddr) {
    let peers = (0..PEERS).map(|number| async move {
        // The peers start one after the other, so that each gets a lease of another iteration.
        tokio::time::sleep(Duration::from_millis(300) * number as u32).await;
        loop {
            let (control, bulk) = tokio::join!(Peer::connect(address), Peer::connect(address));
            let mut session = control.join(&format!("deaf-{number}")).await;
            let _sets = bulk.parameters(&session).await;
            loop {
                tokio::select! {
                    message = session.next() => {
                        if matches!(message, None | Some(ToWorker::Farewell { .. })) {
                            break;
                        }
                    }
                    () = tokio::time::sleep(Duration::from_millis(500)) => {
                        session.say(FromWorker::Heartbeat { idle: false, usage: ProcessUsage::default() }).await;
                    }
                }
            }
        }
    });
    let mut all: tokio::task::JoinSet<()> = peers.collect();
    all.join_next().await;
}
