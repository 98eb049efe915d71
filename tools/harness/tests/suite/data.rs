//! Tests the training data that a coordinator sends: it is the data that it read when the run began, or the reason why it cannot be sent.
#![cfg(unix)]

use std::fs::OpenOptions;
use std::path::PathBuf;
use std::time::Duration;

use ata_data::{hex, sha256_of_file};
use ata_harness::{Cluster, FaultProxy, Peer, Session, Settings, WorkerSettings, soon};
use ata_record::{RunEvent, RunState};
use ata_wire::proto::{TransferPart, transfer_part};
use ata_worker::{WorkerEnd, WorkerError};
use tempfile::TempDir;
use tonic::Code;

use crate::{RECORD_BYTES, check, data, run, start};

fn records(pixel: u8) -> Vec<u8> {
    // A record has two labels, and an image of one color.
    let record = [vec![0, 1], vec![pixel; RECORD_BYTES - 2]].concat();
    record.repeat(600)
}

/// The settings of a run with data in a file, and a copy of the file.
struct Rig {
    _folder: TempDir,
    path: PathBuf,
    sha256: [u8; 32],
    settings: Settings,
    copy: PathBuf,
}

impl Rig {
    fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let (path, copy) = (folder.path().join("train.bin"), folder.path().join("original/train.bin"));
        std::fs::create_dir(copy.parent().unwrap()).unwrap();
        std::fs::write(&path, records(7)).unwrap();
        std::fs::write(&copy, records(7)).unwrap();
        let sha256 = sha256_of_file(&path).unwrap();
        let settings = Settings { data: Some(path.clone()), iterations: 3, ..Settings::default() };
        Self { _folder: folder, path, sha256, settings, copy }
    }

    fn original(&self) -> Settings {
        Settings { data: Some(self.copy.clone()), ..self.settings.clone() }
    }

    /// Requests the data. Returns how many bytes arrived, and the error that ended the transfer.
    async fn fetch(&self, peer: &Peer, session: &Session) -> (usize, Option<Code>) {
        let mut parts = match data(peer, session, self.sha256).await {
            Ok(parts) => parts,
            Err(status) => return (0, Some(status.code())),
        };
        let mut bytes = 0;
        loop {
            match soon("a part of the data", parts.message()).await {
                Ok(Some(TransferPart { kind: Some(transfer_part::Kind::Chunk(chunk)) })) => bytes += chunk.data.len(),
                Ok(Some(_)) => {}
                Ok(None) => return (bytes, None),
                Err(status) => return (bytes, Some(status.code())),
            }
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn another_file_in_its_place_changes_nothing() {
    let rig = Rig::new();
    let mut cluster = Cluster::start(&rig.settings).await;
    std::fs::write(rig.path.with_extension("new"), records(8)).unwrap();
    std::fs::rename(rig.path.with_extension("new"), &rig.path).unwrap();
    cluster.worker(WorkerSettings::new("late"));
    check(&rig.original(), &cluster.end().await).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_has_changed_is_sent_once_at_most() {
    let rig = Rig::new();
    let whole = records(7).len();
    let cluster = Cluster::start(&rig.settings).await;
    let peer = Peer::connect(cluster.address).await;
    let session = peer.hello("a", 1).await.unwrap();
    assert_eq!(rig.fetch(&peer, &session).await, (whole, None));
    std::fs::write(&rig.path, records(8)).unwrap();
    assert_eq!(rig.fetch(&peer, &session).await, (whole, Some(Code::DataLoss)), "it is found out at the end");
    for _ in 0..3 {
        assert_eq!(rig.fetch(&peer, &session).await, (0, Some(Code::DataLoss)));
    }
    std::fs::write(&rig.path, &records(7)[..whole / 2]).unwrap();
    assert_eq!(rig.fetch(&peer, &session).await, (0, Some(Code::DataLoss)), "it is too short");
    std::fs::write(&rig.path, records(7)).unwrap();
    assert_eq!(rig.fetch(&peer, &session).await, (whole, None), "it was put back");
}

/// A worker that cannot obtain the data retries at growing intervals, and finally fails with the reason.
#[tokio::test(flavor = "multi_thread")]
async fn a_worker_without_data_gives_up() {
    let rig = Rig::new();
    let mut cluster = Cluster::start(&rig.settings).await;
    std::fs::write(&rig.path, records(8)).unwrap();
    let link = FaultProxy::to(cluster.address).await;
    let (through, retry_for) = (Some(link.address), Duration::from_secs(4));
    cluster.worker(WorkerSettings { through, retry_for, ..WorkerSettings::new("poor") });
    let (_, ended) = cluster.worker_ends().await;
    let Err(WorkerError::NoData { cause, .. }) = ended else { panic!("{ended:?}") };
    assert!(cause.contains("train.bin, have changed since the run began"), "{cause}");
    // Attempts are made after 0 s, 0.5 to 1 s, 1 to 2 s more, 2 to 4 s more, and at the end, with two connections each.
    assert!(link.connections() <= 2 * 5, "{} connections", link.connections());
    cluster.worker(WorkerSettings { data: Some(rig.copy.clone()), ..WorkerSettings::new("rich") });
    check(&rig.original(), &cluster.end().await).await;
}

/// A worker's own copy with other content is refused, and a damaged file in the cache is fetched again.
#[tokio::test(flavor = "multi_thread")]
async fn other_content_is_found_out() {
    let rig = Rig::new();
    std::fs::write(&rig.copy, records(8)).unwrap();
    let mut cluster = Cluster::start(&rig.settings).await;
    let cached = cluster.cache().join("train").join(format!("{}.bin", hex(&rig.sha256)));
    std::fs::create_dir_all(cached.parent().unwrap()).unwrap();
    std::fs::write(&cached, "damaged").unwrap();
    cluster.worker(WorkerSettings { data: Some(rig.copy.clone()), ..WorkerSettings::new("wrong") });
    cluster.worker(WorkerSettings::new("right"));
    let ended = cluster.end().await;
    assert!(matches!(&ended.workers["wrong"], Err(WorkerError::OtherData(path, _)) if *path == rig.copy));
    assert_eq!(ended.workers["right"].as_ref().unwrap(), &WorkerEnd::Finished);
}

/// Returns settings of a run whose tasks include a bad sample several times.
fn spoilt(rig: &Rig) -> Settings {
    Settings { model: "toy:64/spoilt", task_batch: 4, iterations: 60, outage_s: 6.0, ..rig.settings.clone() }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_bad_sample_ends_the_run_and_is_named() {
    let rig = Rig::new();
    let settings = Settings { min_workers: 2, ..spoilt(&rig) };
    let fusing = WorkerSettings { fuses: true, ..WorkerSettings::new("two") };
    let ended = start(&settings, [WorkerSettings::new("one"), fusing]).await.end_or_fail().await;
    let reason = ended.report.ended.unwrap_err().to_string();
    for part in ["sample 5 of the training data", "--on-bad-sample skip"] {
        assert!(reason.contains(part), "{reason}");
    }
}

/// The parameters do not depend on which worker computes the task without the bad sample.
#[tokio::test(flavor = "multi_thread")]
async fn a_bad_sample_is_left_out() {
    let rig = Rig::new();
    let settings = Settings { policy: "ata-auto", min_workers: 3, skip_bad_samples: true, ..spoilt(&rig) };
    let ended = run(&settings, ["one", "two", "three"].map(WorkerSettings::new)).await;
    check(&settings, &ended).await;
    let fusing = WorkerSettings { fuses: true, ..WorkerSettings::new("fusing") };
    run(&Settings { min_workers: 1, ..settings }, [fusing]).await;
}

/// The data file of four workers is empty until one of them has failed twice. The number of tasks that are left when it is emptied
/// depends on chance. A single task fails on one worker after the other, after pauses as long as the outage so far: for the fifth time
/// after 15 s, and for the ninth after four minutes.
#[tokio::test(flavor = "multi_thread")]
async fn data_that_nobody_can_read_for_a_while() {
    let rig = Rig::new();
    // The run must not be over before its data is removed, which a busy machine may delay.
    let settings = Settings { budget: 4, min_workers: 4, iterations: 1000, ..rig.settings.clone() };
    let task_time = Duration::from_millis(2);
    let with_data = |name| WorkerSettings { data: Some(rig.path.clone()), task_time, ..WorkerSettings::new(name) };
    let mut cluster = start(&settings, ["one", "two", "three", "four"].map(with_data)).await;
    cluster.wait_for("progress", |state| state.iterations >= 3).await;
    OpenOptions::new().write(true).open(&rig.path).unwrap().set_len(0).unwrap();
    let has_failed_twice = |state: &RunState| state.workers.values().any(|worker| worker.usage.failures >= 2);
    cluster.wait_for("failures", has_failed_twice).await;
    // The same file must be rewritten, since the workers have it open.
    std::fs::write(&rig.path, records(7)).unwrap();
    let ended = cluster.end().await;
    check(&settings, &ended).await;
    let is_gone = |event: &&RunEvent| matches!(event, RunEvent::Loss { .. } | RunEvent::Expulsion { .. });
    assert_eq!(ended.events.iter().find(is_gone), None, "no worker had to leave");
}
