//! Tests failures that all workers share: the run continues, and ends with the same parameters.

use std::fs::OpenOptions;
use std::time::Duration;

use ata_harness::{Settings, WorkerSettings};
use ata_record::{RunEvent, RunState};

use crate::{RECORD_BYTES, check, start};

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
    let task_time = Duration::from_millis(2);
    let with_data = |name| WorkerSettings { data: Some(path.clone()), task_time, ..WorkerSettings::new(name) };
    let mut cluster = start(&settings, ["one", "two", "three", "four"].map(with_data)).await;
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
