//! Measures the cost of a worker that joins and leaves ten times a second under a new name each time, like a container that restarts
//! repeatedly. Three honest workers run at the same time. Their rate is compared with that of three others in a separate run. This
//! process's memory and the size of the saved state are printed every minute. Checkpoints are written at the default cadence. The program
//! fails if the rate falls below 90 %, or if the memory or the saved state grows.
//!
//! Arguments: `--minutes 10`

use std::net::SocketAddr;
use std::time::Duration;

use ata_harness::{Cluster, Peer, Rate, Settings, WorkerSettings, resident_kb};

const MINUTE: Duration = Duration::from_mins(1);

pub(crate) async fn run(arguments: &[String]) {
    let minutes = match arguments {
        [flag, minutes] if flag == "--minutes" => minutes.parse().expect("a number of minutes"),
        _ => 10,
    };
    let (undisturbed, disturbed) = tokio::join!(three_honest_workers(), three_honest_workers());
    let flapper = tokio::spawn(flap(disturbed.address));
    let mut settled = None;
    for minute in 1..=minutes {
        let (usual, rate) = tokio::join!(Rate::measure(&undisturbed, MINUTE), Rate::measure(&disturbed, MINUTE));
        let relative = usual.iteration_s / rate.iteration_s;
        let (resident, saved) = (resident_kb(), disturbed.saved_bytes());
        println!(
            "minute {minute}: {:.2} ms per iteration, rate {relative:.3} of undisturbed, {resident} kB resident, \
             {saved} bytes of state.json",
            rate.iteration_s * 1e3
        );
        assert!(!flapper.is_finished(), "it flaps");
        assert!(relative >= 0.9, "the honest workers are held up");
        // The number of remembered names reaches its maximum in the first minute, and a checkpoint holds all of them after the second.
        if minute >= 2 {
            let (resident_then, saved_then) = *settled.get_or_insert((resident, saved));
            let grown = resident as f64 / resident_then as f64;
            assert!(grown < 1.05 && saved <= saved_then * 5 / 4, "{grown:.3} of the memory after two minutes");
        }
    }
}

async fn three_honest_workers() -> Cluster {
    let settings = Settings {
        policy: "ata-auto",
        iterations: u64::MAX,
        min_workers: 3,
        checkpoint_every_s: Some(60.0),
        ..Settings::default()
    };
    let mut cluster = Cluster::start(&settings).await;
    for name in ["honest-1", "honest-2", "honest-3"] {
        cluster.worker(WorkerSettings { task_time: Duration::from_millis(5), ..WorkerSettings::new(name) });
    }
    cluster.wait_for("the first iterations", |state| state.iterations > 50).await;
    cluster
}

async fn flap(address: SocketAddr) {
    let mut turns = tokio::time::interval(Duration::from_millis(100));
    for joined in 1_u64.. {
        turns.tick().await;
        let (control, bulk) = tokio::join!(Peer::connect(address), Peer::connect(address));
        let session = control.join(&format!("flapper-{joined}")).await;
        // The worker may have left when its parameters arrive.
        let sets = bulk.parameters(&session).await;
        tokio::time::sleep(Duration::from_millis(50)).await;
        drop((session, sets));
        if joined % 600 == 0 {
            println!("{joined} sessions of the flapping worker");
        }
    }
}
