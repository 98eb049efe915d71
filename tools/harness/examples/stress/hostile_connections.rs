//! Measures when useless connections are closed, and what they cost in memory and in the speed of an honest worker. 1,000 connections stay
//! silent, 1,000 send only the HTTP/2 preface, and 1,000 answer pings and open 10 calls each, on which they send only the length of a
//! message. The connections are opened by another process.

use std::net::SocketAddr;
use std::time::{Duration, Instant};

use ata_harness::{
    Cluster, PREFACE, Rate, RawConnection, Settings, WorkerSettings, address_space_kb, paths, resident_kb,
};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::process::Command;
use tokio::task::JoinSet;

const CONNECTIONS: usize = 1000;
const MEASURED: Duration = Duration::from_secs(15);
/// The time without another connection being closed after which the rest is given up.
const CLOSES_WITHIN: Duration = Duration::from_secs(30);

pub(crate) async fn run(arguments: &[String]) {
    ata_net::raise_file_limit();
    match arguments {
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

    // The allocator reuses the memory of one wave for the next, so that only leaks add up.
    for wave in 1..=4 {
        let (space, resident) = (address_space_kb(), resident_kb());
        let most = tokio::spawn(sample(cluster.address));
        let disturbed = Rate::measure(&cluster, MEASURED).await;
        let relative = disturbed.iteration_s / undisturbed.iteration_s;
        let (most_space, most_resident) = most.await.expect("all were closed");
        println!("wave {wave}: {disturbed}, ratio {relative:.3}");
        let more = |now: u64, before: u64| (now as f64 - before as f64) / 1024.0;
        println!("  address space: {:+.1} MiB at most", more(most_space, space));
        println!(
            "  resident: {:+.1} MiB at most, {:+.1} MiB after",
            more(most_resident, resident),
            more(resident_kb(), resident)
        );
    }
}

/// Starts the process of the hostile connections. Returns the largest address space and resident memory of this one until that one ends, in
/// kB.
async fn sample(address: SocketAddr) -> (u64, u64) {
    let mut command = Command::new(std::env::current_exe().expect("a program"));
    let command = command.args(["hostile_connections", "hostile", &address.to_string()]).kill_on_drop(true);
    let mut hostile = command.spawn().expect("it starts");
    let (mut space, mut resident) = (0, 0);
    loop {
        (space, resident) = (space.max(address_space_kb()), resident.max(resident_kb()));
        tokio::select! {
            ended = hostile.wait() => {
                assert!(ended.is_ok_and(|ended| ended.success()));
                return (space, resident);
            }
            () = tokio::time::sleep(Duration::from_millis(50)) => {}
        }
    }
}

async fn hostile(address: SocketAddr) {
    let began = Instant::now();
    let mut closing = JoinSet::new();
    for at in 0..CONNECTIONS {
        closing.spawn(closed(address, &[]));
        closing.spawn(closed(address, PREFACE));
        closing.spawn(async move {
            let paths: Vec<&str> = (at..at + 10).map(|call| paths()[call % paths().len()]).collect();
            let mut calls = RawConnection::announcing(address, &paths, 4000).await.expect("it connects");
            // If the connection was closed, its calls are over, too.
            calls.all_over().await.unwrap_or(());
            "announced messages"
        });
        // If the kernel's queue of new connections overflowed, a silent peer would seem to be connected when it is not.
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    let mut done = std::collections::BTreeMap::new();
    while let Ok(Some(what)) = tokio::time::timeout(CLOSES_WITHIN, closing.join_next()).await {
        let what = what.expect("no panic");
        let entry = done.entry(what).or_insert((0, Duration::ZERO));
        *entry = (entry.0 + 1, began.elapsed());
    }
    for (what, (count, last)) in done {
        println!("{count} connections that {what}: closed after {:.1} s", last.as_secs_f64());
    }
    assert!(closing.is_empty(), "{} are still open", closing.len());
}

async fn closed(address: SocketAddr, first: &'static [u8]) -> &'static str {
    let mut stream = TcpStream::connect(address).await.expect("it connects");
    stream.write_all(first).await.unwrap_or(());
    let mut answers = [0; 1024];
    while let Ok(1..) = stream.read(&mut answers).await {}
    if first.is_empty() { "stayed silent" } else { "sent the preface" }
}
