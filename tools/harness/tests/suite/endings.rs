//! Tests that runs which fail or are stopped leave their results, and notify their workers.

use ata_coordinator::{RunError, RunReport};
use ata_harness::{Cluster, Ended, Settings, WorkerSettings, poisoned_toy, toy};
use ata_record::{EndState, RunEvent};
use ata_worker::WorkerEnd;

/// Runs a model with one worker.
async fn run(model: &'static str, models: ata_learn::ModelResolver) -> Ended {
    let mut cluster = Cluster::start(&Settings { model, rest_s: 0.01, outage_s: 0.1, ..Settings::default() }).await;
    cluster.worker(WorkerSettings { models, ..WorkerSettings::new("one") });
    cluster.end().await
}

/// Checks that the run left a complete record, including how it ended.
fn check(ended: &Ended, iterations: u64) {
    let RunReport { state, statistics, .. } = &ended.report;
    assert_eq!(state.iterations, iterations);
    let steps = ended.events.iter().filter(|event| matches!(event, RunEvent::Step { .. })).count();
    assert_eq!(steps as u64, iterations);
    let Some(RunEvent::End { state: EndState::Failed, reason, .. }) = ended.events.last() else {
        panic!("{:?}", ended.events.last())
    };
    assert!(!reason.is_empty());
    assert_eq!(statistics["one"].observed > 0, iterations > 0);
}

/// The only worker fails.
#[tokio::test(flavor = "multi_thread")]
async fn no_worker_can_compute() {
    let ended = run("toy:8", poisoned_toy).await;
    let Err(RunError::Aborted { last_failure, .. }) = &ended.report.ended else { panic!("{:?}", ended.report.ended) };
    assert!(last_failure.contains("worker 1") && last_failure.contains("NaN"), "{last_failure}");
    check(&ended, 0);
    assert_eq!(ended.workers["one"].as_ref().unwrap(), &WorkerEnd::RunFailed);
}

#[tokio::test(flavor = "multi_thread")]
async fn the_evaluation_panics() {
    let ended = run("toy:8/doomed", toy).await;
    assert!(matches!(ended.report.ended, Err(RunError::Training)), "{:?}", ended.report.ended);
    check(&ended, 20);
    assert_eq!(ended.workers["one"].as_ref().unwrap(), &WorkerEnd::Finished);
}

/// The training succeeded, so the workers are notified of that, and the parameters are those of a successful run.
#[tokio::test(flavor = "multi_thread")]
async fn the_evaluation_fails() {
    let ended = run("toy:8/ill", toy).await;
    assert!(matches!(ended.report.ended, Err(RunError::Data(_))), "{:?}", ended.report.ended);
    check(&ended, 20);
    assert_eq!(ended.workers["one"].as_ref().unwrap(), &WorkerEnd::Finished);
    assert_eq!(ended.report.parameters_sha256, run("toy:8", toy).await.report.parameters_sha256);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_run_that_is_stopped_says_so() {
    let mut cluster = Cluster::start(&Settings { iterations: 1_000_000, ..Settings::default() }).await;
    let worker = cluster.worker(WorkerSettings::new("one"));
    cluster.wait_for("progress", |state| state.iterations > 3).await;
    cluster.stop();
    worker.abort();
    let Ended { report, events, .. } = cluster.end().await;
    assert!(report.ended.is_ok() && report.state.iterations > 3);
    assert!(matches!(events.last(), Some(RunEvent::End { state: EndState::Stopped, .. })));
}
