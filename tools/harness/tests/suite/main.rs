//! Tests coordinators and workers in one process, over real connections, with faults.

mod connections;
mod data;
mod data_shards;
mod endings;
mod evaluations;
mod faults;
mod frames;
mod hostile;
mod leases;
mod leaving;
mod limits;
mod local_steps;
mod noise;
mod probes;
mod shards;
mod trust;
mod uploads;

use ata_harness::{Cluster, Ended, Peer, Session, Settings, WorkerSettings};
use ata_record::RunEvent;
use ata_types::{ExchangeChoice, TaskOutcome, WorkerId};
use ata_wire::proto::{DataRequest, TransferPart};
use ata_wire::{FarewellReason, FromWorker, ProcessUsage, ToWorker};
use tonic::{Status, Streaming};

/// The size of a record of CIFAR-100, in bytes.
const RECORD_BYTES: usize = 3074;

async fn start(settings: &Settings, workers: impl IntoIterator<Item = WorkerSettings>) -> Cluster {
    let mut cluster = Cluster::start(settings).await;
    workers.into_iter().for_each(|worker| drop(cluster.worker(worker)));
    cluster
}

/// Runs a cluster of these workers, which must succeed.
async fn run(settings: &Settings, workers: impl IntoIterator<Item = WorkerSettings>) -> Ended {
    start(settings, workers).await.end().await
}

/// Returns the parameters of an undisturbed run with one worker.
async fn undisturbed(settings: &Settings) -> [u8; 32] {
    let exchange = ExchangeChoice::Star;
    let alone = Settings { min_workers: 1, verify: 0.0, exchange, ..settings.clone() };
    let honest = WorkerSettings { models: settings.models, ..WorkerSettings::new("honest") };
    run(&alone, [honest]).await.report.parameters_sha256
}

/// Checks that the run had the parameters of an undisturbed one, and that every task entered a step once.
async fn check(settings: &Settings, ended: &Ended) {
    let policy = settings.policy;
    assert_eq!(ended.report.parameters_sha256, undisturbed(settings).await, "{policy}");
    assert_eq!(applied(ended), settings.budget * settings.iterations, "{policy}");
}

/// Returns something of each event that has it.
fn each<T>(ended: &Ended, of: impl FnMut(&RunEvent) -> Option<T>) -> Vec<T> {
    ended.events.iter().filter_map(of).collect()
}

fn applied(ended: &Ended) -> u64 {
    count(ended, |event| matches!(event, RunEvent::Task { outcome: TaskOutcome::Applied, .. }))
}

fn count(ended: &Ended, is_one: impl Fn(&RunEvent) -> bool) -> u64 {
    ended.events.iter().filter(|event| is_one(event)).count() as u64
}

fn is_loss(event: &RunEvent) -> bool {
    matches!(event, RunEvent::Loss { .. })
}

/// Returns why workers were lost or got no work before the run was over.
fn losses(ended: &Ended) -> Vec<String> {
    let is_loss = |event: &&RunEvent| matches!(event, RunEvent::Loss { .. } | RunEvent::Rest { .. });
    ended.events.iter().filter(is_loss).map(|event| format!("{event:?}")).collect()
}

fn number(ended: &Ended, name: &str) -> WorkerId {
    *ended.report.state.workers.iter().find(|(_, worker)| worker.name == name).expect("it took part").0
}

/// Returns the workers that had to rest, each as often as it did.
fn rests(ended: &Ended) -> Vec<WorkerId> {
    each(ended, |event| if let RunEvent::Rest { worker, .. } = event { Some(*worker) } else { None })
}

async fn farewell(session: &mut Session) -> (FarewellReason, String) {
    loop {
        match session.next().await {
            Some(ToWorker::Farewell { reason, detail }) => return (reason, detail),
            Some(_) => session.say(FromWorker::Heartbeat { idle: false, usage: ProcessUsage::default() }).await,
            None => panic!("the session ended without a word"),
        }
    }
}

async fn data(peer: &Peer, session: &Session, sha256: [u8; 32]) -> Result<Streaming<TransferPart>, Status> {
    let request = DataRequest { session: session.token().to_wire(), sha256: sha256.to_vec().into() };
    Ok(peer.connection.coordinator().data(request).await?.into_inner())
}
