//! Tests workers and links that fail: the run continues, and ends with the same parameters.

use std::time::Duration;

use ata_coordinator::StopReason;
use ata_harness::{Cluster, Condition, Ended, FaultProxy, Peer, Settings, WorkerSettings, poisoned_toy, soon};
use ata_record::{RefusalKind, RunEvent, RunState};
use ata_types::{TaskOutcome, WorkerId};
use ata_wire::{FarewellReason, FromWorker, ToWorker};

const HANGS: Duration = Duration::from_hours(24);

/// Returns the parameters of an undisturbed run.
async fn honest(settings: &Settings) -> [u8; 32] {
    let mut cluster = Cluster::start(&Settings { min_workers: 1, ..settings.clone() }).await;
    cluster.worker(WorkerSettings::new("honest"));
    let Ended { report, .. } = cluster.end().await;
    assert!(report.ended.is_ok());
    report.parameters_sha256
}

fn count(events: &[RunEvent], is_one: impl Fn(&RunEvent) -> bool) -> usize {
    events.iter().filter(|event| is_one(event)).count()
}

/// Checks that the run succeeded with the parameters of an undisturbed one, and that every task entered a step once.
async fn check(settings: &Settings, ended: &Ended) {
    assert!(ended.report.ended.is_ok(), "{:?}", ended.report.ended);
    assert_eq!(ended.report.parameters_sha256, honest(settings).await);
    let applied = count(&ended.events, |event| matches!(event, RunEvent::Task { outcome: TaskOutcome::Applied, .. }));
    assert_eq!(applied as u64, settings.budget * settings.iterations);
}

fn rests(events: &[RunEvent], number: WorkerId) -> Vec<f64> {
    let rest = |event: &RunEvent| match event {
        RunEvent::Rest { worker, rest_s, .. } if *worker == number => Some(*rest_s),
        _ => None,
    };
    events.iter().filter_map(rest).collect()
}

/// Returns the numbers of the workers with these names.
fn numbers(ended: &Ended, names: &[&str]) -> Vec<WorkerId> {
    let workers = ended.report.state.workers.iter();
    workers.filter(|(_, worker)| names.contains(&worker.name.as_str())).map(|(number, _)| *number).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn two_of_five_compute_nonsense() {
    let settings = Settings { min_workers: 5, rest_s: 1000.0, iterations: 40, ..Settings::default() };
    let mut cluster = Cluster::start(&settings).await;
    for name in ["good-1", "good-2", "good-3"] {
        cluster.worker(WorkerSettings::new(name));
    }
    for name in ["bad-1", "bad-2"] {
        cluster.worker(WorkerSettings { models: poisoned_toy, ..WorkerSettings::new(name) });
    }
    let ended = cluster.end().await;
    check(&settings, &ended).await;
    for number in numbers(&ended, &["bad-1", "bad-2"]) {
        assert_eq!(rests(&ended.events, number), [1000.0], "it fails once, and then rests until the end of the run");
    }
    let refused = ended.report.state.refused.get(&RefusalKind::Uncomputable).copied().unwrap_or(0);
    // Results of the leases held at the first failure may arrive as well.
    assert!((2..=6).contains(&refused), "{refused} refusals");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_worker_that_fails_again_rests_longer() {
    let settings = Settings { min_workers: 4, rest_s: 0.02, iterations: u64::MAX, ..Settings::default() };
    let mut cluster = Cluster::start(&settings).await;
    for name in ["good-1", "good-2", "good-3"] {
        cluster.worker(WorkerSettings { task_time: Duration::from_millis(1), ..WorkerSettings::new(name) });
    }
    cluster.worker(WorkerSettings { models: poisoned_toy, ..WorkerSettings::new("bad") });
    let mut ends = Vec::new();
    let rested_thrice = |state: &RunState| {
        ends.extend(state.workers.values().filter_map(|worker| worker.rests_until_s));
        ends.dedup();
        ends.len() >= 3
    };
    cluster.wait_for("three rests", rested_thrice).await;
    cluster.stop();
    let ended = cluster.end().await;
    assert!(matches!(ended.report.ended, Ok(StopReason::Stopped)), "{:?}", ended.report.ended);
    let rests = rests(&ended.events, numbers(&ended, &["bad"])[0]);
    // The rests are longer if the failures themselves took long.
    assert!(rests.iter().zip([0.02, 0.04, 0.08]).all(|(rest_s, least_s)| *rest_s >= least_s), "{rests:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn two_of_five_hang() {
    let settings = Settings { min_workers: 5, rest_s: 1000.0, lease_timeout_s: 1.0, ..Settings::default() };
    let mut cluster = Cluster::start(&settings).await;
    for name in ["good-1", "good-2", "good-3"] {
        cluster.worker(WorkerSettings::new(name));
    }
    for name in ["bad-1", "bad-2"] {
        cluster.worker(WorkerSettings { task_time: HANGS, ..WorkerSettings::new(name) });
    }
    let ended = cluster.end().await;
    check(&settings, &ended).await;
    for number in numbers(&ended, &["bad-1", "bad-2"]) {
        let lost = |event: &RunEvent| matches!(event, RunEvent::Loss { worker, .. } if *worker == number);
        assert_eq!(count(&ended.events, lost), 1, "evicted once");
        assert_eq!(rests(&ended.events, number).len(), 1);
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
    let reason = loop {
        thief.say(FromWorker::Heartbeat { idle: false }).await;
        match thief.next().await {
            Some(ToWorker::Farewell { reason, .. }) => break reason,
            Some(_) => {}
            None => panic!("the session ended without a word"),
        }
    };
    assert_eq!(reason, FarewellReason::Evicted);
    let ended = cluster.end().await;
    check(&settings, &ended).await;
    assert_eq!(ended.report.state.refused.get(&RefusalKind::NotComputed), None, "no sum is refused");
}

/// Parameters and gradients take seconds on the worker's link, but heartbeats do not wait behind them.
#[tokio::test(flavor = "multi_thread")]
async fn a_worker_behind_a_slow_link_keeps_its_session() {
    let settings = Settings {
        model: "toy:300000",
        budget: 2,
        iterations: 2,
        heartbeat_timeout: Duration::from_millis(700),
        ..Settings::default()
    };
    let mut cluster = Cluster::start(&settings).await;
    let link = FaultProxy::to(cluster.address).await;
    link.set(Condition { bytes_per_s: Some(1_000_000), latency: Duration::from_millis(100), ..Condition::default() });
    cluster.worker(WorkerSettings { through: Some(link.address), ..WorkerSettings::new("far") });
    let ended = cluster.end().await;
    check(&settings, &ended).await;
    assert_eq!(count(&ended.events, |event| matches!(event, RunEvent::Loss { .. })), 0);
    assert!(ended.report.state.runtime_s() > 2.0, "the link was slow");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_cut_link_is_taken_up_again() {
    let settings = Settings { iterations: 60, ..Settings::default() };
    let mut cluster = Cluster::start(&settings).await;
    let link = FaultProxy::to(cluster.address).await;
    let far = WorkerSettings { through: Some(link.address), ..WorkerSettings::new("far") };
    cluster.worker(WorkerSettings { task_time: Duration::from_millis(2), ..far });
    for iterations in [3, 10, 25] {
        cluster.wait_for("progress", |state| state.iterations >= iterations).await;
        link.sever();
        cluster.wait_for("the loss", |state| state.present() == 0).await;
    }
    let ended = cluster.end().await;
    check(&settings, &ended).await;
    assert_eq!(ended.report.state.workers.len(), 1, "it keeps its number");
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
    assert_eq!(count(&ended.events, loss), 1);
    assert_eq!(count(&ended.events, |event| matches!(event, RunEvent::Join { worker, .. } if worker.number() == 1)), 2);
}

/// While a worker is silent, others compute its tasks. Once its link works again, it returns.
#[tokio::test(flavor = "multi_thread")]
async fn a_stalled_link_costs_a_heartbeat_timeout() {
    let settings =
        Settings { min_workers: 2, iterations: 400, heartbeat_timeout: Duration::from_secs(1), ..Settings::default() };
    let mut cluster = Cluster::start(&settings).await;
    let link = FaultProxy::to(cluster.address).await;
    let slow = |name| WorkerSettings { task_time: Duration::from_millis(1), ..WorkerSettings::new(name) };
    cluster.worker(slow("near"));
    cluster.worker(WorkerSettings { through: Some(link.address), ..slow("far") });
    cluster.wait_for("progress", |state| state.iterations >= 3).await;
    link.set(Condition { stalled: true, ..Condition::default() });
    cluster.wait_for("the loss", |state| state.present() == 1).await;
    link.set(Condition::default());
    cluster.wait_for("its return", |state| state.present() == 2).await;
    soon("the end", async { check(&settings, &cluster.end().await).await }).await;
}
