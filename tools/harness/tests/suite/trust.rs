//! Tests that spot checks find workers whose results look right but are wrong.

use ata_harness::{Cluster, Ended, Settings, WorkerSettings, wrong_toy};
use ata_record::{RefusalKind, RunEvent};
use ata_types::{TaskOutcome, WireFormat, WorkerId};
use ata_worker::WorkerError;

use crate::{check, each, number, undisturbed};

/// Returns settings for four workers, of which the last one may be byzantine.
fn settings() -> Settings {
    Settings { budget: 16, min_workers: 4, rest_s: 0.02, iterations: 40, ..Settings::default() }
}

async fn start(settings: &Settings, last: WorkerSettings) -> Cluster {
    crate::start(settings, ["one", "two", "three"].map(WorkerSettings::new).into_iter().chain([last])).await
}

async fn run(settings: &Settings, last: WorkerSettings) -> Ended {
    start(settings, last).await.end().await
}

fn byzantine() -> WorkerSettings {
    WorkerSettings { models: wrong_toy, ..WorkerSettings::new("byzantine") }
}

fn outcomes(ended: &Ended, number: WorkerId) -> Vec<TaskOutcome> {
    each(ended, |event| match event {
        RunEvent::Task { worker, outcome, busy_s: Some(_), .. } if *worker == number => Some(*outcome),
        _ => None,
    })
}

/// Gradients multiplied by 1.001 are finite and plausible. Without checks, they change the run. If all leases are checked, none of them
/// counts, and their worker is named.
#[tokio::test(flavor = "multi_thread")]
async fn every_mismatch_is_caught_if_everything_is_checked() {
    let unchecked = run(&settings(), byzantine()).await;
    assert_ne!(unchecked.report.parameters_sha256, undisturbed(&settings()).await, "it would matter");

    let ended = run(&Settings { verify: 1.0, ..settings() }, byzantine()).await;
    check(&settings(), &ended).await;
    let byzantine = number(&ended, "byzantine");
    let outcomes = outcomes(&ended, byzantine);
    assert!(outcomes.contains(&TaskOutcome::Mismatched), "{outcomes:?}");
    let state = &ended.report.state;
    // What it computed when a mismatch set it to rest is cancelled, and lost if it was the third, which expels it.
    let is_void = |of| matches!(of, TaskOutcome::Mismatched | TaskOutcome::Cancelled);
    let may_be = |of| is_void(of) || of == TaskOutcome::Lost && state.workers[&byzantine].expelled.is_some();
    assert!(outcomes.iter().all(|outcome| may_be(*outcome)), "{outcomes:?}");
    assert!(state.refused.contains_key(&RefusalKind::Mismatched), "{:?}", state.refused);
    for (number, worker) in &state.workers {
        assert_eq!(worker.mismatches > 0, *number == byzantine, "{worker:?}");
    }
}

/// Successful results do not reset the count of mismatches: after the third one, the byzantine worker is expelled.
#[tokio::test(flavor = "multi_thread")]
async fn a_byzantine_worker_is_expelled() {
    let mut cluster = start(&Settings { verify: 1.0, iterations: u64::MAX, ..settings() }, byzantine()).await;
    cluster.wait_for("the expulsion", |state| state.workers.values().any(|worker| worker.expelled.is_some())).await;
    cluster.stop();
    let ended = cluster.end().await;
    let workers = &ended.report.state.workers;
    let worker = &workers[&number(&ended, "byzantine")];
    assert!(worker.expelled.is_some() && worker.mismatches >= 3, "{worker:?}");
    assert_eq!(workers.values().filter(|worker| worker.expelled.is_some()).count(), 1);
    assert!(matches!(ended.workers["byzantine"], Err(WorkerError::Refused(_))), "{:?}", ended.workers["byzantine"]);
}

/// Honest workers agree, and checks change nothing, in either format.
#[tokio::test(flavor = "multi_thread")]
async fn honest_workers_are_never_accused() {
    let exact = WireFormat::F32Exact;
    for (policy, format) in [("uta", exact), ("uta", WireFormat::Compact), ("ata", exact), ("ata-auto", exact)] {
        let settings = Settings { policy, format, verify: 0.5, ..settings() };
        let ended = run(&settings, WorkerSettings::new("four")).await;
        check(&settings, &ended).await;
        // An honest worker may be late.
        let refused = &ended.report.state.refused;
        assert!(refused.keys().all(|kind| *kind == RefusalKind::Stale), "{policy}: {refused:?}");
        assert!(ended.report.state.totals.tasks_wasted > 0, "{policy}: leases were computed twice");
    }
}

/// A worker that computes leases as batches rounds differently, and is compared within a tolerance.
#[tokio::test(flavor = "multi_thread")]
async fn a_worker_that_fuses_may_round_otherwise() {
    let fusing = WorkerSettings { fuses: true, ..WorkerSettings::new("fusing") };
    let ended = run(&Settings { verify: 1.0, ..settings() }, fusing).await;
    assert!(ended.report.state.refused.is_empty(), "{:?}", ended.report.state.refused);
    assert!(!outcomes(&ended, number(&ended, "fusing")).is_empty(), "it took part");
}
