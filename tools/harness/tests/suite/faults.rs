//! Tests workers and links that fail: the run continues, and ends with the same parameters.

use std::time::Duration;

use ata_harness::{Cluster, Condition, FaultProxy, Peer, Settings, WorkerSettings};
use ata_record::{RefusalKind, RunEvent};
use ata_wire::FarewellReason;

use crate::{check, count, farewell, number, rests, run};

const HANGS: Duration = Duration::from_hours(24);

/// Each of the two rests once, and then until the end of the run.
#[tokio::test(flavor = "multi_thread")]
async fn two_of_five_hang() {
    let settings = Settings { lease_timeout_s: 1.0, min_workers: 5, rest_s: 1000.0, ..Settings::default() };
    let good = ["good-1", "good-2", "good-3"].map(WorkerSettings::new);
    let bad = ["bad-1", "bad-2"].map(|name| WorkerSettings { task_time: HANGS, ..WorkerSettings::new(name) });
    let ended = run(&settings, good.into_iter().chain(bad)).await;
    check(&settings, &ended).await;
    for number in ["bad-1", "bad-2"].map(|name| number(&ended, name)) {
        assert_eq!(rests(&ended).into_iter().filter(|worker| *worker == number).count(), 1);
        let lost = |event: &RunEvent| matches!(event, RunEvent::Loss { worker, .. } if *worker == number);
        assert_eq!(count(&ended, lost), 1, "evicted once");
    }
}

/// A worker sends heartbeats and takes leases, but never reports them. The others have already sent their sums when they get its tasks, a
/// few at a time.
#[tokio::test(flavor = "multi_thread")]
async fn a_thief_of_leases_is_found_out() {
    let settings = Settings { budget: 36, min_workers: 3, rest_s: 1000.0, lease_timeout_s: 1.0, ..Settings::default() };
    let mut cluster = Cluster::start(&settings).await;
    let mut thief = Peer::connect(cluster.address).await.join("thief").await;
    for name in ["good-1", "good-2"] {
        cluster.worker(WorkerSettings::new(name));
    }
    assert!(!thief.assigned().await.is_empty());
    assert_eq!(farewell(&mut thief).await.0, FarewellReason::Evicted);
    let ended = cluster.end().await;
    check(&settings, &ended).await;
    assert_eq!(ended.report.state.refused.get(&RefusalKind::NotComputed), None, "no sum is refused");
}

/// The link behaves like a pulled cable, which only the missing heartbeats reveal. The worker is killed meanwhile, and
/// restarted elsewhere. Its name is free as soon as the old session is closed.
#[tokio::test(flavor = "multi_thread")]
async fn a_name_waits_for_its_dying_session() {
    let settings = Settings { iterations: 300, heartbeat_timeout: Duration::from_secs(1), ..Settings::default() };
    let mut cluster = Cluster::start(&settings).await;
    let link = FaultProxy::to(cluster.address).await;
    let slow = WorkerSettings { task_time: Duration::from_millis(1), ..WorkerSettings::new("one") };
    let killed = cluster.worker(WorkerSettings { through: Some(link.address), ..slow.clone() });
    cluster.wait_for("progress", |state| state.iterations >= 3).await;
    link.set(Condition { stalled: true, ..Condition::default() });
    killed.abort();
    let done = cluster.state.borrow().iterations;
    cluster.worker(slow);
    cluster.wait_for("more progress", |state| state.iterations > done + 3).await;
    let ended = cluster.end().await;
    check(&settings, &ended).await;
    let loss = |event: &RunEvent| matches!(event, RunEvent::Loss { why, .. } if why == "no heartbeat");
    assert_eq!(count(&ended, loss), 1);
    assert_eq!(count(&ended, |event| matches!(event, RunEvent::Join { worker, .. } if worker.number() == 1)), 2);
}
