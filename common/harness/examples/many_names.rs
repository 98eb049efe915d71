//! Many names in one run, one after the other: time per session, and this process's memory.
//!
//! cargo run --release -p ata-harness --example many_names

use std::time::Instant;

use ata_harness::{Cluster, Peer, Settings};

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
            println!("{i} names: {each_ms:.2} ms each, {} MiB resident", resident_mib());
        }
    }
}

/// Resident memory; 0 if the system has no `/proc`.
fn resident_mib() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).unwrap_or("0 kB");
    line.trim().trim_end_matches(" kB").parse::<u64>().unwrap_or(0) / 1024
}
