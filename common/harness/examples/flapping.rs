//! A worker that joins and leaves ten times a second beside three honest ones: their rate compared with that before, and
//! this process's memory every minute.
//!
//! cargo build --release --workspace --examples && target/release/examples/flapping --minutes 10

use std::time::Duration;

use ata_harness::{Cluster, Peer, Rate, Settings, WorkerSettings, resident_kb};

const MINUTE: Duration = Duration::from_mins(1);

#[tokio::main]
async fn main() {
    let minutes = match &std::env::args().skip(1).collect::<Vec<_>>()[..] {
        [flag, minutes] if flag == "--minutes" => minutes.parse().expect("a number of minutes"),
        _ => 10,
    };
    let settings = Settings { policy: "ata-auto", iterations: u64::MAX, min_workers: 3, ..Settings::default() };
    let mut cluster = Cluster::start(&settings).await;
    for name in ["honest-1", "honest-2", "honest-3"] {
        cluster.worker(WorkerSettings { task_time: Duration::from_millis(5), ..WorkerSettings::new(name) });
    }
    cluster.wait_for("the first iterations", |state| state.iterations > 50).await;
    let undisturbed = Rate::measure(&cluster, MINUTE).await;
    println!("undisturbed: {undisturbed}, {} kB resident", resident_kb());
    let address = cluster.address;
    let flapper = tokio::spawn(async move {
        let mut turns = tokio::time::interval(Duration::from_millis(100));
        for joined in 1_u64.. {
            turns.tick().await;
            let (control, bulk) = tokio::join!(Peer::connect(address), Peer::connect(address));
            let session = control.join("flapper").await;
            // It may be gone when its parameters come.
            let sets = bulk.parameters(&session).await;
            tokio::time::sleep(Duration::from_millis(50)).await;
            drop((session, sets));
            if joined % 600 == 0 {
                println!("{joined} sessions of the flapping worker");
            }
        }
    });
    for minute in 1..=minutes {
        let rate = Rate::measure(&cluster, MINUTE).await;
        let relative = undisturbed.iteration_s / rate.iteration_s;
        println!("minute {minute}: {rate}, rate {relative:.3} of undisturbed, {} kB resident", resident_kb());
        assert!(!flapper.is_finished(), "it flaps");
    }
}
