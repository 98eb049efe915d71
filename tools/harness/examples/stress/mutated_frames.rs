//! Feeds mutated frames of every RPC to their readers, and some of them to a live coordinator, and measures the memory.
//!
//! Arguments: `100000000`

use std::time::Instant;

use ata_harness::{Cluster, Flood, Frames, Peer, Reader, Settings, WorkerSettings};
use ata_mutator::{Fed, Mutator, feed, resident_bytes};
use ata_wire::SessionToken;

/// The number of frames per frame that is sent to the coordinator.
const PER_CALL: u64 = 1000;

/// One part in this many is fed before the memory is measured, so that all buffers are allocated.
const WARM_UP: u64 = 20;

pub(crate) async fn run(arguments: &[String]) {
    let count = arguments.first().map_or(1_000_000, |count| count.parse().expect("how many frames"));
    // A reader has a runtime of its own.
    std::thread::spawn(move || receive(count)).join().expect("every frame was read");
    send(count / PER_CALL).await;
}

fn receive(count: u64) {
    let reader = Reader::default();
    read(&reader, 0, count / WARM_UP);
    let (before, began) = (resident_bytes(), Instant::now());
    let Fed { accepted, refused } = read(&reader, 1, count);
    println!("{count} frames read in {:.1} s: {accepted} accepted, {refused} refused", began.elapsed().as_secs_f64());
    report("reading them", before);
}

fn read(reader: &Reader, round: u64, count: u64) -> Fed {
    let mut all = Fed { accepted: 0, refused: 0 };
    for (seed, frames) in (1..).zip(Frames::ALL) {
        let mutator = Mutator::new(100 * round + seed, frames.examples(SessionToken([5; 16])));
        let share = count / Frames::ALL.len() as u64;
        let Fed { accepted, refused } = feed(mutator, share, |frame| reader.accepts(frames, frame));
        (all.accepted, all.refused) = (all.accepted + accepted, all.refused + refused);
    }
    all
}

async fn send(calls: u64) {
    let mut cluster = Cluster::start(&Settings::default()).await;
    let session = Peer::connect(cluster.address).await.hello("mutant", 1).await.expect("it is welcome");
    let mut flood = Flood::connect(cluster.address, session.token()).await;
    flood.send(calls / WARM_UP).await;
    let (before, began) = (resident_bytes(), Instant::now());
    let answers = flood.send(calls).await;
    println!("{calls} calls answered in {:.1} s: {answers:?}", began.elapsed().as_secs_f64());
    report("answering them", before);
    cluster.worker(WorkerSettings::new("honest"));
    let ended = cluster.end().await.report.ended;
    println!("then the run ended: {:?}", ended.expect("a run"));
}

fn report(what: &str, before: Option<u64>) {
    if let (Some(before), Some(after)) = (before, resident_bytes()) {
        println!("resident memory for {what}: {:+.1} MiB", (after as f64 - before as f64) / f64::from(1 << 20));
    }
}
