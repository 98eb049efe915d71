//! What two broken workers out of five cost, compared with the three good ones alone, from iteration 21 on.
//!
//! cargo build --release --workspace --examples && target/release/examples/broken_workers

use std::time::Duration;

use ata_harness::{Cluster, Settings, WorkerSettings, poisoned_toy};
use ata_record::RunEvent;

const TASK_TIME: Duration = Duration::from_millis(5);

#[tokio::main]
async fn main() {
    let none = || Vec::new();
    let (alone, sha256) = measure(none()).await;
    println!("three good workers: {:.2} ms per iteration", alone * 1e3);
    let bad = |name| WorkerSettings { task_time: TASK_TIME, ..WorkerSettings::new(name) };
    let poisoned = |name| WorkerSettings { models: poisoned_toy, ..bad(name) };
    let hanging = |name| WorkerSettings { task_time: Duration::from_hours(24), ..bad(name) };
    for (what, workers) in [
        ("two whose gradients are always NaN", vec![poisoned("bad-1"), poisoned("bad-2")]),
        ("two that always hang", vec![hanging("bad-1"), hanging("bad-2")]),
    ] {
        let (with, same) = measure(workers).await;
        assert_eq!(same, sha256, "the parameters are the same");
        println!("with {what}: {:.2} ms per iteration, {:+.1} %", with * 1e3, (with / alone - 1.0) * 100.0);
    }
}

/// Mean seconds per iteration from the 21st on, and the SHA-256 of the parameters.
async fn measure(bad: Vec<WorkerSettings>) -> (f64, [u8; 32]) {
    let workers = 3 + bad.len();
    let settings =
        Settings { policy: "ata-auto", iterations: 1000, min_workers: workers, rest_s: 1.0, ..Settings::default() };
    let mut cluster = Cluster::start(&settings).await;
    for name in ["good-1", "good-2", "good-3"] {
        cluster.worker(WorkerSettings { task_time: TASK_TIME, ..WorkerSettings::new(name) });
    }
    for settings in bad {
        cluster.worker(settings);
    }
    let ended = cluster.end().await;
    assert!(ended.report.ended.is_ok(), "{:?}", ended.report.ended);
    let times = ended.events.iter().filter_map(|event| match event {
        RunEvent::Step { iteration, time_s, .. } => Some((*iteration, *time_s)),
        _ => None,
    });
    let at = |wanted: u64| times.clone().find(|(iteration, _)| *iteration == wanted).expect("it is in the journal").1;
    let iterations = settings.iterations;
    ((at(iterations) - at(20)) / (iterations - 20) as f64, ended.report.parameters_sha256)
}
