//! Measures the cost of many names that join one run one after the other, while one worker stays: the time per session, the time of an
//! iteration before and after, and the state that is kept and saved. Checkpoints are written continuously. The run fails if an iteration
//! takes a tenth more CPU time than before, or if the saved state keeps growing.

use std::time::{Duration, Instant};

use ata_harness::{Cluster, Peer, Rate, Settings, WorkerSettings, resident_kb};

const NAMES: usize = 20_000;

/// The number of names after which the saved state has reached its largest size.
const SETTLED: usize = 2000;

/// The time during which iterations without new workers are measured.
const MEASURED: Duration = Duration::from_secs(20);

pub(crate) async fn run(_: &[String]) {
    let settings = Settings {
        model: "toy:100000",
        policy: "ata-auto",
        budget: 4,
        iterations: u64::MAX,
        checkpoint_every_s: Some(1.0),
        ..Settings::default()
    };
    let mut cluster = Cluster::start(&settings).await;
    cluster.worker(WorkerSettings { task_time: Duration::from_micros(500), ..WorkerSettings::new("stays") });
    cluster.wait_for("the first iterations", |state| state.iterations > 50).await;
    let before = Rate::measure(&cluster, MEASURED).await;
    println!("before: {before}");
    let peer = Peer::connect(cluster.address).await;
    let (started, mut settled) = (Instant::now(), 0);
    for i in 1..=NAMES {
        let mut session = peer.join(&format!("name-{i}")).await;
        session.assigned().await;
        if i % SETTLED == 0 {
            let each_ms = started.elapsed().as_secs_f64() * 1e3 / i as f64;
            let (saved, resident) = (cluster.saved_bytes(), resident_kb() / 1024);
            println!("{i} names: {each_ms:.2} ms each, {saved} bytes of state.json, {resident} MiB resident");
            settled = if i == SETTLED { saved } else { settled };
        }
    }
    let after = Rate::measure(&cluster, MEASURED).await;
    println!("after: {after}, {} bytes of state.json", cluster.saved_bytes());
    assert!(settled > 0 && cluster.saved_bytes() < 2 * settled, "what is saved grows with the names");
    assert!(after.cpu_s < 1.1 * before.cpu_s, "iterations cost more than before");
}
