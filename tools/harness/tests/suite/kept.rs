//! Tests vectors with tasks that were cancelled late, and vectors of very many leases.

use std::time::Duration;

use ata_harness::{Settings, WorkerSettings};
use ata_record::{RefusalKind, RunEvent};

use crate::{check, losses, run};

/// The losers of copied tasks are cancelled before, during and after their computation. No worker is blamed for that.
#[tokio::test(flavor = "multi_thread")]
async fn leases_that_are_cancelled_late_are_in_no_vector_and_no_failure() {
    for policy in ["pull", "ata-auto"] {
        let settings = Settings { policy, min_workers: 3, iterations: 150, budget: 7, ..Settings::default() };
        let workers = [("one", 1500), ("two", 2000), ("three", 2600)].map(|(name, task_us)| WorkerSettings {
            task_time: Duration::from_micros(task_us),
            ..WorkerSettings::new(name)
        });
        let ended = run(&settings, workers).await;
        // A vector that was withdrawn while it was announced arrives late, which is not a failure.
        let is_blamed = |event: &&RunEvent| match event {
            RunEvent::Refusal { kind, .. } => *kind != RefusalKind::Stale,
            event => matches!(event, RunEvent::Rest { .. }),
        };
        assert_eq!(ended.events.iter().find(is_blamed), None, "{policy}");
        check(&settings, &ended).await;
    }
}

/// There are more leases than a message may report. A request names only their tasks, which form one range.
#[tokio::test(flavor = "multi_thread")]
async fn a_vector_may_be_the_sum_of_any_number_of_leases() {
    for (policy, overcommit, budget) in [("ata-auto", 0.0, 8193), ("pull", 0.0, 8193), ("uta", 0.1, 20_000)] {
        let settings = Settings { policy, overcommit, budget, iterations: 2, ..Settings::default() };
        let ended = run(&settings, [WorkerSettings::new("one")]).await;
        assert_eq!((ended.report.state.tasks_applied, losses(&ended)), (2 * budget, vec![]), "{policy}");
    }
}
