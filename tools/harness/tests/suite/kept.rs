//! Tests vectors with tasks that were cancelled late, and vectors of very many leases.

use std::time::Duration;

use ata_harness::{Cluster, Ended, Settings, WorkerSettings};
use ata_record::{RefusalKind, RunEvent};

async fn run(settings: &Settings, workers: &[(&str, u64)]) -> Ended {
    let mut cluster = Cluster::start(settings).await;
    for (name, task_us) in workers {
        cluster.worker(WorkerSettings { task_time: Duration::from_micros(*task_us), ..WorkerSettings::new(*name) });
    }
    let ended = cluster.end().await;
    assert!(ended.report.ended.is_ok(), "{}: {:?}", settings.policy, ended.report.ended);
    ended
}

/// The losers of copied tasks are cancelled before, during and after their computation. No worker is blamed for that.
#[tokio::test(flavor = "multi_thread")]
async fn leases_that_are_cancelled_late_are_in_no_vector_and_no_failure() {
    for policy in ["pull", "ata-auto"] {
        let settings = Settings { policy, min_workers: 3, iterations: 150, budget: 7, ..Settings::default() };
        let ended = run(&settings, &[("one", 1500), ("two", 2000), ("three", 2600)]).await;
        // A vector that was withdrawn while it was announced arrives late, which is not a failure.
        let is_blamed = |event: &&RunEvent| match event {
            RunEvent::Refusal { kind, .. } => *kind != RefusalKind::Stale,
            event => matches!(event, RunEvent::Rest { .. }),
        };
        assert_eq!(ended.events.iter().find(is_blamed), None, "{policy}");
        let undisturbed = run(&Settings { min_workers: 1, ..settings }, &[("one", 0)]).await;
        assert_eq!(ended.report.parameters_sha256, undisturbed.report.parameters_sha256, "{policy}");
    }
}

/// There are more leases than a message may report. A request names only their tasks, which form one range.
#[tokio::test(flavor = "multi_thread")]
async fn a_vector_may_be_the_sum_of_any_number_of_leases() {
    for policy in ["ata-auto", "pull"] {
        let settings = Settings { policy, budget: 8193, iterations: 2, ..Settings::default() };
        let ended = run(&settings, &[("one", 0)]).await;
        assert_eq!(ended.report.state.tasks_applied, 2 * 8193, "{policy}");
        assert!(!ended.events.iter().any(|event| matches!(event, RunEvent::Loss { .. })), "{policy}");
    }
}
