//! Tests that runs which fail or are stopped leave their results, and notify their workers.

use ata_coordinator::{RunError, RunReport};
use ata_harness::{Ended, Settings, WorkerSettings, poisoned_toy, toy};
use ata_learn::ModelResolver;
use ata_record::{EndState, RefusalKind, RunEvent};
use ata_worker::WorkerEnd;

use crate::{count, start, undisturbed};

/// Runs a model with one worker, until the run fails. Checks that it left a complete record, including how it ended.
async fn fail(model: &'static str, models: ModelResolver, iterations: u64, worker: WorkerEnd) -> Ended {
    let settings = Settings { model, rest_s: 0.01, outage_s: 0.1, ..Settings::default() };
    let one = WorkerSettings { models, ..WorkerSettings::new("one") };
    let ended = start(&settings, [one]).await.end_or_fail().await;
    let RunReport { state, statistics, .. } = &ended.report;
    assert_eq!(state.iterations, iterations);
    assert_eq!(count(&ended, |event| matches!(event, RunEvent::Step { .. })), iterations);
    let Some(RunEvent::End { state: EndState::Failed, reason, .. }) = ended.events.last() else {
        panic!("{:?}", ended.events.last())
    };
    assert!(!reason.is_empty());
    assert_eq!(statistics["one"].observed > 0, iterations > 0);
    assert_eq!(ended.workers["one"].as_ref().unwrap(), &worker);
    ended
}

#[tokio::test(flavor = "multi_thread")]
async fn no_worker_can_compute() {
    let RunReport { ended, state, .. } = fail("toy:8", poisoned_toy, 0, WorkerEnd::RunFailed).await.report;
    assert!(state.refused.contains_key(&RefusalKind::Uncomputable), "{:?}", state.refused);
    let Err(RunError::Aborted { last_failure, .. }) = &ended else { panic!("{ended:?}") };
    assert!(last_failure.contains("worker 1") && last_failure.contains("NaN"), "{last_failure}");
}

/// The training succeeded, so the workers are notified of that, and the parameters are those of a successful run.
#[tokio::test(flavor = "multi_thread")]
async fn the_evaluation_panics_or_fails() {
    let ended = fail("toy:8/doomed", toy, 20, WorkerEnd::Finished).await.report.ended;
    assert!(matches!(ended, Err(RunError::Training)), "{ended:?}");
    let report = fail("toy:8/ill", toy, 20, WorkerEnd::Finished).await.report;
    assert!(matches!(report.ended, Err(RunError::Data(_))), "{:?}", report.ended);
    let well = Settings { model: "toy:8", ..Settings::default() };
    assert_eq!(report.parameters_sha256, undisturbed(&well).await);
}
