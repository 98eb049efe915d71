//! Tests the training data that a coordinator sends: it is the data that it read when the run began, or the reason why it cannot be sent.
#![cfg(unix)]

use std::path::{Path, PathBuf};
use std::time::Duration;

use ata_harness::{Cluster, Ended, FaultProxy, Peer, Session, Settings, WorkerSettings, soon};
use ata_wire::proto::{DataRequest, TransferPart, transfer_part};
use ata_worker::WorkerError;
use tempfile::TempDir;
use tonic::Code;

/// The size of a record of CIFAR-100, in bytes.
const RECORD_BYTES: usize = 3074;

fn records(pixel: u8) -> Vec<u8> {
    // A record has two labels, and an image of one color.
    let record = [vec![0, 1], vec![pixel; RECORD_BYTES - 2]].concat();
    record.repeat(600)
}

struct Rig {
    _folder: TempDir,
    path: PathBuf,
    sha256: [u8; 32],
    settings: Settings,
}

impl Rig {
    fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("train.bin");
        std::fs::write(&path, records(7)).unwrap();
        let sha256 = ata_data::sha256_of_file(&path).unwrap();
        let settings = Settings { data: Some(path.clone()), iterations: 3, ..Settings::default() };
        Self { _folder: folder, path, sha256, settings }
    }

    /// Makes a copy of the original file.
    fn copy(&self) -> PathBuf {
        let folder = self.path.with_file_name("original");
        std::fs::create_dir(&folder).unwrap();
        let copy = folder.join("train.bin");
        std::fs::write(&copy, records(7)).unwrap();
        copy
    }

    /// Requests the data. Returns how many bytes arrived, and the error that ended the transfer.
    async fn fetch(&self, peer: &Peer, session: &Session) -> (usize, Option<Code>) {
        let request = DataRequest { session: session.token().to_wire(), sha256: self.sha256.to_vec().into() };
        let mut parts = match peer.connection.coordinator().data(request).await {
            Ok(parts) => parts.into_inner(),
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

/// Returns the parameters of an undisturbed run.
async fn undisturbed(settings: &Settings, data: &Path) -> [u8; 32] {
    let mut cluster = Cluster::start(&Settings { data: Some(data.to_owned()), ..settings.clone() }).await;
    cluster.worker(WorkerSettings::new("honest"));
    cluster.end().await.report.parameters_sha256
}

#[tokio::test(flavor = "multi_thread")]
async fn another_file_in_its_place_changes_nothing() {
    let rig = Rig::new();
    let copy = rig.copy();
    let mut cluster = Cluster::start(&rig.settings).await;
    std::fs::write(rig.path.with_extension("new"), records(8)).unwrap();
    std::fs::rename(rig.path.with_extension("new"), &rig.path).unwrap();
    cluster.worker(WorkerSettings::new("late"));
    let Ended { report, .. } = cluster.end().await;
    assert_eq!(report.parameters_sha256, undisturbed(&rig.settings, &copy).await);
}

#[tokio::test(flavor = "multi_thread")]
async fn what_has_changed_is_sent_once_at_most() {
    let rig = Rig::new();
    let whole = records(7).len();
    let mut cluster = Cluster::start(&rig.settings).await;
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
    drop(session);
    cluster.worker(WorkerSettings::new("late"));
    assert!(cluster.end().await.report.ended.is_ok());
}

/// A worker that cannot obtain the data retries at growing intervals, and finally fails with the reason.
#[tokio::test(flavor = "multi_thread")]
async fn a_worker_without_data_gives_up() {
    let rig = Rig::new();
    let copy = rig.copy();
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
    cluster.worker(WorkerSettings { data: Some(copy.clone()), ..WorkerSettings::new("rich") });
    let Ended { report, .. } = cluster.end().await;
    assert_eq!(report.parameters_sha256, undisturbed(&rig.settings, &copy).await);
}
