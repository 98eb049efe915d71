//! Connections that come to nothing beside an honest worker: 1,000 that stay silent, 1,000 that send only the HTTP/2 preface,
//! and 1,000 that answer pings and open 10 calls each, on which they send only the length of a message. When they are
//! closed, what they cost in memory, and what they cost the honest worker. They live in another process.
//!
//! cargo run --release --workspace --example hostile_connections

use std::net::SocketAddr;
use std::time::{Duration, Instant};

use ata_harness::{Cluster, PREFACE, Rate, RawConnection, Settings, WorkerSettings, address_space_kb, resident_kb};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::process::Command;
use tokio::task::JoinSet;

const CONNECTIONS: usize = 1000;
const MEASURED: Duration = Duration::from_secs(15);

/// Every call with a request body.
const PATHS: [&str; 4] = [
    "/ata.v1.Coordinator/Session",
    "/ata.v1.Coordinator/Data",
    "/ata.v1.Transfers/Parameters",
    "/ata.v1.Transfers/SubmitGradient",
];

#[tokio::main]
async fn main() {
    ata_wire::raise_file_limit().unwrap_or_else(|allowed| println!("only {allowed} files may be open"));
    match &std::env::args().skip(1).collect::<Vec<_>>()[..] {
        [role, address] if role == "hostile" => hostile(address.parse().expect("an address")).await,
        _ => measure().await,
    }
}

async fn measure() {
    let mut cluster = Cluster::start(&Settings { iterations: u64::MAX, ..Settings::default() }).await;
    cluster.worker(WorkerSettings { task_time: Duration::from_millis(2), ..WorkerSettings::new("honest") });
    cluster.wait_for("the first iterations", |state| state.iterations > 50).await;
    let undisturbed = Rate::measure(&cluster, MEASURED).await;
    println!("undisturbed: {undisturbed}");

    let (space, resident) = (address_space_kb(), resident_kb());
    let program = std::env::current_exe().expect("a program");
    let address = cluster.address.to_string();
    let mut hostile = Command::new(program).args(["hostile", &address]).kill_on_drop(true).spawn().expect("it starts");
    let sampler = tokio::spawn(async move {
        let mut most = (0, 0);
        loop {
            most = (most.0.max(address_space_kb()), most.1.max(resident_kb()));
            tokio::select! {
                ended = hostile.wait() => return (most, ended.expect("it ends")),
                () = tokio::time::sleep(Duration::from_millis(50)) => {}
            }
        }
    });
    let disturbed = Rate::measure(&cluster, MEASURED).await;
    println!("disturbed: {disturbed}, ratio {:.3}", disturbed.iteration_s / undisturbed.iteration_s);
    let (most, ended) = sampler.await.expect("no panic");
    assert!(ended.success(), "all were closed");
    let more = |now: u64, before: u64| (now as f64 - before as f64) / 1024.0;
    println!(
        "address space: {:+.1} MiB at most, {:+.1} MiB after",
        more(most.0, space),
        more(address_space_kb(), space)
    );
    println!("resident: {:+.1} MiB at most, {:+.1} MiB after", more(most.1, resident), more(resident_kb(), resident));
}

/// Opens all connections, and waits until they are closed.
async fn hostile(address: SocketAddr) {
    let began = Instant::now();
    let mut closing = JoinSet::new();
    for at in 0..CONNECTIONS {
        closing.spawn(async move { closed(address, &[]).await });
        closing.spawn(async move { closed(address, PREFACE).await });
        closing.spawn(async move {
            let paths: Vec<&str> = (0..10).map(|call| PATHS[(at + call) % PATHS.len()]).collect();
            let mut calls = RawConnection::announcing(address, &paths, 4000).await.expect("it connects");
            // If the connection was closed, so were its calls.
            calls.all_over().await.unwrap_or(());
            "announced a message"
        });
    }
    let mut done = std::collections::BTreeMap::new();
    while let Some(what) = closing.join_next().await {
        let what = what.expect("no panic");
        let entry = done.entry(what).or_insert((0, Duration::ZERO));
        *entry = (entry.0 + 1, began.elapsed());
    }
    for (what, (count, last)) in done {
        println!("{count} connections that {what}: closed after {:.1} s", last.as_secs_f64());
    }
}

/// Sends this and nothing else, and waits until the connection is closed.
async fn closed(address: SocketAddr, first: &[u8]) -> &'static str {
    let mut stream = TcpStream::connect(address).await.expect("it connects");
    stream.write_all(first).await.unwrap_or(());
    let mut answers = [0; 1024];
    while let Ok(1..) = stream.read(&mut answers).await {}
    if first.is_empty() { "stayed silent" } else { "sent the preface" }
}
