//! Workers that exchange vectors in shards end with the same parameters as in a star, whatever fails.

use std::time::Duration;

use ata_harness::{Cluster, Ended, Settings, WorkerSettings};
use ata_record::RefusalKind;
use ata_types::{ExchangeChoice, WireFormat};

/// Seven chunks, so that each of four workers has one or two.
const MODEL: &str = "toy:200000";

fn settings(exchange: ExchangeChoice, format: WireFormat) -> Settings {
    Settings { model: MODEL, min_workers: 4, iterations: 30, exchange, format, ..Settings::default() }
}

fn worker(name: &str) -> WorkerSettings {
    WorkerSettings { task_time: Duration::from_millis(1), ..WorkerSettings::new(name) }
}

/// The parameters of a run in a star, by one worker.
async fn star(settings: &Settings) -> [u8; 32] {
    let exchange = ExchangeChoice::Star;
    let mut cluster = Cluster::start(&Settings { min_workers: 1, exchange, ..settings.clone() }).await;
    cluster.worker(WorkerSettings::new("alone"));
    cluster.end().await.report.parameters_sha256
}

/// The run succeeded with the parameters of a star. Returns how many of its steps were in shards.
async fn check(settings: &Settings, ended: &Ended) -> u64 {
    assert!(ended.report.ended.is_ok(), "{:?}", ended.report.ended);
    assert_eq!(ended.report.state.iterations, settings.iterations);
    // What was asked for again may have been on its way.
    let refused = &ended.report.state.refused;
    assert!(refused.keys().all(|kind| *kind == RefusalKind::Stale), "{refused:?}");
    assert_eq!(ended.report.parameters_sha256, star(settings).await);
    ended.report.state.sharded_steps
}

#[tokio::test(flavor = "multi_thread")]
async fn shards_are_a_star_bit_for_bit() {
    for format in [WireFormat::F32Exact, WireFormat::Compact] {
        for workers in [2, 4, 7] {
            let settings = Settings { min_workers: workers, ..settings(ExchangeChoice::Shards, format) };
            let mut cluster = Cluster::start(&settings).await;
            for number in 1..=workers {
                cluster.worker(worker(&format!("worker-{number}")));
            }
            let sharded = check(&settings, &cluster.end().await).await;
            // The units of the first step are not known before.
            assert_eq!(sharded, settings.iterations - 1, "{workers} workers, {format}");
        }
    }
}

/// Members die in the middle of steps, and others take their places.
#[tokio::test(flavor = "multi_thread")]
async fn a_member_that_dies_changes_nothing() {
    for format in [WireFormat::F32Exact, WireFormat::Compact] {
        let settings = Settings { iterations: 120, ..settings(ExchangeChoice::Shards, format) };
        let mut cluster = Cluster::start(&settings).await;
        for name in ["first", "second", "third"] {
            cluster.worker(worker(name));
        }
        let mut next = cluster.worker(worker("mortal-0"));
        for life in 1..=6 {
            let before = cluster.state.borrow().sharded_steps;
            cluster.wait_for("steps in shards", |state| state.sharded_steps > before + 3).await;
            // At some point of a step, which is another one each time.
            tokio::time::sleep(Duration::from_micros(700 * life)).await;
            next.abort();
            next = cluster.worker(worker(&format!("mortal-{life}")));
        }
        assert!(check(&settings, &cluster.end().await).await > 24);
    }
}

/// The others go on in shards without it.
#[tokio::test(flavor = "multi_thread")]
async fn a_worker_that_others_cannot_reach_sends_its_sum_alone() {
    let settings = settings(ExchangeChoice::Shards, WireFormat::Compact);
    let mut cluster = Cluster::start(&settings).await;
    for name in ["first", "second", "third"] {
        cluster.worker(worker(name));
    }
    // Nothing listens there.
    cluster.worker(WorkerSettings { peer_host: "127.0.0.9", ..worker("hidden") });
    let ended = cluster.end().await;
    let sharded = check(&settings, &ended).await;
    assert!((10..29).contains(&sharded), "{sharded} steps: some fail until it is known");
    assert!(ended.report.state.workers.values().all(|worker| worker.tasks_applied > 0));
}

/// The formula decides: on this machine's own network nothing is gained.
#[tokio::test(flavor = "multi_thread")]
async fn a_star_is_the_choice_where_it_is_as_short() {
    let settings = settings(ExchangeChoice::Star, WireFormat::F32Exact);
    let mut cluster = Cluster::start(&settings).await;
    for name in ["first", "second", "third", "fourth"] {
        cluster.worker(worker(name));
    }
    assert_eq!(check(&settings, &cluster.end().await).await, 0);
}
