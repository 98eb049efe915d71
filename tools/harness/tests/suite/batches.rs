//! Tests workers that compute a lease as one batch, among others that do not, on a real cluster.

use std::collections::BTreeMap;
use std::time::Duration;

use ata_harness::{Cluster, Ended, Settings, WorkerSettings, toy};
use ata_record::RunEvent;
use ata_sums::decode_model;
use ata_types::{LeaseId, TaskOutcome};

/// Returns settings with a budget whose equal shares are not powers of two, and a model whose sums depend on their order.
fn settings(policy: &'static str) -> Settings {
    Settings { policy, model: "toy:500", budget: 31, iterations: 30, min_workers: 3, ..Settings::default() }
}

fn batches(name: &str) -> WorkerSettings {
    WorkerSettings { fuses: true, ..WorkerSettings::new(name) }
}

fn parameters(settings: &Settings, ended: &Ended) -> Vec<f32> {
    decode_model(&toy(settings.model).unwrap().table(), &ended.model).unwrap().0
}

/// Checks that the run succeeded, that every task entered a step once, and that the parameters are those of one
/// ordinary worker, except for rounding.
async fn check(settings: &Settings, ended: &Ended) {
    assert!(ended.report.ended.is_ok(), "{:?}", ended.report.ended);
    let applied = |event: &&RunEvent| matches!(event, RunEvent::Task { outcome: TaskOutcome::Applied, .. });
    assert_eq!(ended.events.iter().filter(applied).count() as u64, settings.budget * settings.iterations);
    let mut alone = Cluster::start(&Settings { min_workers: 1, ..settings.clone() }).await;
    alone.worker(WorkerSettings::new("alone"));
    let alone = alone.end().await;
    let (found, expected) = (parameters(settings, ended), parameters(settings, &alone));
    let square = |values: &mut dyn Iterator<Item = f32>| values.map(|value| f64::from(value).powi(2)).sum::<f64>();
    let error = square(&mut found.iter().zip(&expected).map(|(a, b)| a - b)).sqrt();
    let norm = square(&mut expected.iter().copied()).sqrt();
    assert!(error < 1e-5 * norm, "relative error {}", error / norm);
}

/// Returns the leases of a worker, with their tasks and the recorded seconds of each task.
fn leases(ended: &Ended, name: &str) -> Vec<Vec<(u64, f64)>> {
    let workers = &ended.report.state.workers;
    let number = *workers.iter().find(|(_, worker)| worker.name == name).expect("it joined").0;
    let mut leases: BTreeMap<LeaseId, Vec<(u64, f64)>> = BTreeMap::new();
    for event in &ended.events {
        if let RunEvent::Task { worker, lease, task, busy_s: Some(busy_s), .. } = event
            && *worker == number
        {
            leases.entry(*lease).or_default().push((*task, *busy_s));
        }
    }
    leases.into_values().collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_share_is_one_lease_of_one_time() {
    let settings = settings("uta");
    let mut cluster = Cluster::start(&settings).await;
    cluster.worker(batches("device"));
    cluster.worker(WorkerSettings::new("one"));
    cluster.worker(WorkerSettings::new("two"));
    let ended = cluster.end().await;
    check(&settings, &ended).await;
    let leases = leases(&ended, "device");
    assert_eq!(leases.len() as u64, settings.iterations);
    for lease in leases {
        assert!((10..=11).contains(&lease.len()), "{lease:?}");
        assert!(lease.iter().all(|(_, busy_s)| *busy_s == lease[0].1), "equal shares of one time");
    }
}

/// The tasks of the device go to other workers in the middle of an iteration, and later ones return to it as a batch.
#[tokio::test(flavor = "multi_thread")]
async fn a_device_that_is_killed_and_comes_back_changes_nothing() {
    let settings = Settings { iterations: 300, ..settings("uta") };
    let mut cluster = Cluster::start(&settings).await;
    let slow = Duration::from_millis(1);
    let killed = cluster.worker(WorkerSettings { task_time: slow, ..batches("device") });
    cluster.worker(WorkerSettings { task_time: slow, ..WorkerSettings::new("one") });
    cluster.worker(WorkerSettings { task_time: slow, ..batches("other") });
    cluster.wait_for("progress", |state| state.iterations >= 5).await;
    killed.abort();
    cluster.wait_for("the loss", |state| state.present() == 2).await;
    cluster.worker(batches("device"));
    let ended = cluster.end().await;
    check(&settings, &ended).await;
    assert!(ended.events.iter().any(|event| matches!(event, RunEvent::Loss { .. })));
}

#[tokio::test(flavor = "multi_thread")]
async fn every_policy_goes_with_batches() {
    for policy in ["ata-auto", "ata", "gta", "ringmaster:R=2"] {
        let settings = settings(policy);
        let mut cluster = Cluster::start(&settings).await;
        cluster.worker(batches("device"));
        cluster.worker(batches("other"));
        cluster.worker(WorkerSettings::new("one"));
        let ended = cluster.end().await;
        assert!(ended.report.ended.is_ok(), "{policy}: {:?}", ended.report.ended);
        if policy.starts_with("ata") {
            check(&settings, &ended).await;
        }
    }
}
