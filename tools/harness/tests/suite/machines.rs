//! Tests failures that all workers share, and broken machines under many names: the run continues, and ends with the same parameters.

use std::fs::OpenOptions;
use std::time::Duration;

use ata_harness::{Breaks, Cluster, Ended, Peer, Settings, WorkerSettings, come_back_again, fail_all};
use ata_record::{RefusalKind, RunEvent, RunState};
use tokio::task::JoinSet;

/// The size of a record of CIFAR-100, in bytes.
const RECORD_BYTES: usize = 3074;

/// Returns a sound worker, whose tasks take long enough for others to join and leave meanwhile.
fn sound(name: &str) -> WorkerSettings {
    WorkerSettings { task_time: Duration::from_millis(2), ..WorkerSettings::new(name) }
}

fn failures(state: &RunState) -> u64 {
    state.refused.get(&RefusalKind::NotComputed).copied().unwrap_or(0)
}

/// Checks that the run succeeded with the parameters of an undisturbed one.
async fn check(settings: &Settings, ended: &Ended) {
    let policy = settings.policy;
    assert!(ended.report.ended.is_ok(), "{policy}: {:?}", ended.report.ended);
    let mut cluster = Cluster::start(&Settings { min_workers: 1, ..settings.clone() }).await;
    cluster.worker(WorkerSettings::new("one"));
    assert_eq!(ended.report.parameters_sha256, cluster.end().await.report.parameters_sha256, "{policy}");
}

/// The data file of four sound workers is empty until one of them has failed twice. The number of tasks that are left when it is emptied
/// depends on chance. A single task fails on one worker after the other, after pauses as long as the outage so far: for the fifth time
/// after 15 s, and for the ninth after four minutes.
#[tokio::test(flavor = "multi_thread")]
async fn data_that_nobody_can_read_for_a_while() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("train.bin");
    let bytes = vec![0; 500 * RECORD_BYTES];
    std::fs::write(&path, &bytes).unwrap();
    // The run must not be over before its data is removed, which a busy machine may delay.
    let iterations = 1000;
    let settings = Settings { data: Some(path.clone()), budget: 4, min_workers: 4, iterations, ..Settings::default() };
    let mut cluster = Cluster::start(&settings).await;
    for name in ["one", "two", "three", "four"] {
        cluster.worker(WorkerSettings { data: Some(path.clone()), ..sound(name) });
    }
    cluster.wait_for("progress", |state| state.iterations >= 3).await;
    OpenOptions::new().write(true).open(&path).unwrap().set_len(0).unwrap();
    let has_failed_twice = |state: &RunState| state.workers.values().any(|worker| worker.usage.failures >= 2);
    cluster.wait_for("failures", has_failed_twice).await;
    // The same file must be rewritten, since the workers have it open.
    std::fs::write(&path, &bytes).unwrap();
    let ended = cluster.end().await;
    check(&settings, &ended).await;
    let is_gone = |event: &&RunEvent| matches!(event, RunEvent::Loss { .. } | RunEvent::Expulsion { .. });
    assert_eq!(ended.events.iter().find(is_gone), None, "no worker had to leave");
}

/// A client fails all of its leases, under four names, before a sound worker joins.
#[tokio::test(flavor = "multi_thread")]
async fn a_client_with_four_names() {
    let settings = Settings { min_workers: 4, ..Settings::default() };
    let mut cluster = Cluster::start(&settings).await;
    let peer = Peer::connect(cluster.address).await;
    let mut client = JoinSet::new();
    for name in ["a", "b", "c", "d"] {
        client.spawn(fail_all(peer.join(name).await));
    }
    cluster.wait_for("failures", |state| failures(state) >= 12).await;
    cluster.worker(sound("one"));
    check(&settings, &cluster.end().await).await;
}

/// Runs three machines that break every lease and return under new names, together with five sound ones.
async fn three_broken(policy: &'static str, breaks: Breaks) {
    let settings = Settings { policy, min_workers: 8, iterations: 100, lease_timeout_s: 2.0, ..Settings::default() };
    let mut cluster = Cluster::start(&settings).await;
    let mut broken = JoinSet::new();
    for name in ["x", "y", "z"] {
        broken.spawn(come_back_again(cluster.address, name.into(), breaks));
    }
    for name in ["one", "two", "three", "four", "five"] {
        cluster.worker(sound(name));
    }
    let ended = cluster.end().await;
    check(&settings, &ended).await;
    let of_broken = |event: &RunEvent| matches!(event, RunEvent::Join { name, .. } if name.contains('-'));
    assert!(ended.events.iter().filter(|event| of_broken(event)).count() > 3, "{policy}: none came back");
}

#[tokio::test(flavor = "multi_thread")]
async fn machines_that_fail_under_new_names() {
    for policy in ["uta", "pull", "ata-auto"] {
        three_broken(policy, Breaks::Fails).await;
    }
}

/// The policy waits for the results of the machines that hang.
#[tokio::test(flavor = "multi_thread")]
async fn machines_that_hang_under_new_names() {
    for policy in ["uta", "pull"] {
        three_broken(policy, Breaks::Hangs).await;
    }
}
