//! Tests workers that are asked to leave in the middle of a run.

use std::time::Duration;

use ata_harness::{Cluster, Settings, WorkerSettings};
use ata_record::RunEvent;
use ata_types::{ExchangeChoice, TaskOutcome};
use ata_worker::WorkerEnd;

use crate::{check, count, number, start};

/// Nothing that the worker has computed is lost, and the parameters are the same bits.
#[tokio::test(flavor = "multi_thread")]
async fn a_worker_that_leaves_delivers_what_it_has_begun() {
    for (policy, exchange) in [
        ("uta", ExchangeChoice::Star),
        ("ata-auto", ExchangeChoice::Star),
        ("pull", ExchangeChoice::Star),
        ("uta", ExchangeChoice::Shards),
    ] {
        let settings = Settings { policy, exchange, min_workers: 3, iterations: 120, budget: 9, ..Settings::default() };
        let slow = |name: &str| WorkerSettings { task_time: Duration::from_millis(2), ..WorkerSettings::new(name) };
        let leaving = slow("leaving");
        let leave = leaving.leave.clone();
        let mut cluster = start(&settings, [slow("one"), slow("two"), leaving]).await;
        cluster.wait_for("progress", |state| state.iterations >= 5).await;
        leave.cancel();
        let (name, end) = cluster.worker_ends().await;
        assert!(name == "leaving" && matches!(end, Ok(WorkerEnd::Stopped)), "{policy}: {name} {end:?}");
        assert!(cluster.state.borrow().iterations < settings.iterations, "{policy}: it left in the middle");
        let ended = cluster.end().await;
        check(&settings, &ended).await;
        let left = number(&ended, "leaving");
        let says = |event: &RunEvent| matches!(event, RunEvent::Loss { worker, why, .. } if *worker == left && why == "it was told to stop");
        assert_eq!(count(&ended, says), 1, "{policy}: the coordinator knew");
        let is_lost = |event: &RunEvent| matches!(event, RunEvent::Task { worker, outcome, .. } if *worker == left && *outcome == TaskOutcome::Lost);
        assert_eq!(count(&ended, is_lost), 0, "{policy}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_worker_without_work_leaves_at_once() {
    let settings = Settings { min_workers: 2, ..Settings::default() };
    let mut cluster = Cluster::start(&settings).await;
    for joined in [0, 1] {
        let worker = WorkerSettings::new("waiting");
        let leave = worker.leave.clone();
        cluster.worker(worker);
        cluster.wait_for("a worker", |state| state.workers.len() >= joined).await;
        leave.cancel();
        let (_, end) = cluster.worker_ends().await;
        assert!(matches!(end, Ok(WorkerEnd::Stopped)), "{end:?}");
    }
    for name in ["one", "waiting"] {
        cluster.worker(WorkerSettings::new(name));
    }
    check(&settings, &cluster.end().await).await;
}
