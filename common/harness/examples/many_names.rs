//! Many names in one run, one after the other: time per session, and this process's memory.
//!
//! cargo build --release --workspace --examples && target/release/examples/many_names

use std::time::Instant;

use ata_harness::{Cluster, Peer, Settings, resident_kb};

const NAMES: usize = 20_000;

#[tokio::main]
async fn main() {
    let cluster = Cluster::start(&Settings { budget: 1, iterations: 1_000_000, ..Settings::default() }).await;
    let peer = Peer::connect(cluster.address).await;
    let started = Instant::now();
    for i in 1..=NAMES {
        let mut session = peer.join(&format!("name-{i}")).await;
        session.assigned().await;
        if i % 2000 == 0 {
            let each_ms = started.elapsed().as_secs_f64() * 1e3 / i as f64;
            println!("{i} names: {each_ms:.2} ms each, {} MiB resident", resident_kb() / 1024);
        }
    }
}
