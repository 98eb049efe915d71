//! Tests of the driver on virtual time. Sessions and gradients arrive as function calls, without a network.

mod blame;
mod exactly_once;
mod late;
mod many_names;
mod rig;
mod room;
mod stops;
mod vectors;

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;
use std::path::Path;
use std::sync::mpsc as std_mpsc;

use ata_data::{DataSource, Split};
use ata_learn::{DeviceChoice, builtin_model};
use ata_net::{Peer, Security};
use ata_policies::build_policy;
use ata_record::{EndState, RecordError, RefusalKind, RunEvent, RunPhase, read_journal};
use ata_scheduler::{EngineConfig, PolicyContext, Verify};
use ata_sums::{LearningRate, Optimizer, Units};
use ata_types::{Iteration, Lease, LeaseId, TaskOutcome, TaskRange, VectorId, WireFormat};
use ata_wire::{
    Assignment, ComputedLease, FarewellReason, FromWorker, GradientHeader, Hello, LeaseTimes, Reader, Receipt,
    SessionToken, ToWorker, VectorRequest, units_crc32c,
};
use rand::rngs::ChaCha8Rng;
use rand::{RngExt, SeedableRng};
use tempfile::TempDir;
use tokio::sync::oneshot;
use tokio::sync::oneshot::error::TryRecvError;
use tonic::Status;

use super::*;
use crate::checkpoint::{Cadence, FolderStore, SaveResult, Store};
use crate::config::{EvaluationConfig, OwnEvaluation, PolicyConfig, ProblemConfig, SplitData, Start, WorkersConfig};
use crate::parameters::{DueSets, Versions};
use crate::reduction::Sink;
use crate::training::Work;
use rig::{Announced, Rig, VirtualWorker};

const HEARTBEAT_TIMEOUT_S: f64 = 2.0;

const CHECKPOINTS: &str = "checkpoints";

const MODEL: &str = "cnn:widths=1/1/1/1";

/// A model whose vectors have several chunks, and whose evaluation takes little time.
const LARGE: &str = "cnn:widths=1/1/64/120";

/// Returns workers that have computed all tasks of the first iteration, and have not read the requests for their vectors.
fn computed<const N: usize>(rig: &mut Rig, names: [&str; N]) -> [VirtualWorker; N] {
    let mut clients = names.map(|name| rig.join(name, 1).unwrap());
    for client in &mut clients {
        client.read();
        assert!(!client.leases.is_empty());
        rig.report_all(client);
    }
    clients
}

/// Returns workers as [`computed`] does, each of which has read the request for its vector.
fn asked<const N: usize>(rig: &mut Rig, names: [&str; N]) -> [VirtualWorker; N] {
    computed(rig, names).map(|mut client| {
        client.read();
        assert_eq!(client.asked.len(), 1);
        client
    })
}

fn hear(clients: &[VirtualWorker]) {
    for client in clients {
        client.presence.hear();
    }
}

/// Does all work of these workers until the run ends. Returns why it ended, and the digest of the parameters.
fn finish<'a>(rig: &mut Rig, clients: impl IntoIterator<Item = &'a mut VirtualWorker>) -> (Ending, [u8; 32]) {
    let mut clients: Vec<&mut VirtualWorker> = clients.into_iter().collect();
    loop {
        let mut ending = None;
        for client in &mut clients {
            client.read();
            client.presence.hear();
            while ending.is_none() && client.is_busy() {
                ending = rig.work(client);
                client.read();
            }
        }
        // Either a step is due, or other workers hold the remaining leases until they are lost.
        if let Some(ending) = ending.or_else(|| rig.step()) {
            return (ending, rig.parameters_sha256());
        }
    }
}

fn finished<'a>(rig: &mut Rig, clients: impl IntoIterator<Item = &'a mut VirtualWorker>) -> [u8; 32] {
    let (ending, sha256) = finish(rig, clients);
    assert!(matches!(ending, Ok(StopReason::Finished(_))), "{ending:?}");
    sha256
}

/// Lets one honest worker finish a run that has not ended. Returns how it ended, which is a success, and the digest of the parameters.
fn finish_alone(rig: &mut Rig, ending: Option<Ending>, what: &str) -> (Ending, [u8; 32]) {
    let ending = ending.unwrap_or_else(|| {
        let mut last = rig.join("last", 9).unwrap();
        finish(rig, [&mut last]).0
    });
    assert!(matches!(ending, Ok(StopReason::Finished(_))), "{what}: {ending:?}");
    (ending, rig.parameters_sha256())
}

/// Returns the digest of the parameters of a run with one honest worker.
fn honest(mut rig: Rig) -> [u8; 32] {
    let mut client = rig.join("a", 1).unwrap();
    finished(&mut rig, [&mut client])
}

/// Returns the values of the gradient of some tasks. They are whole numbers, so that their sum is the same in every order.
fn value(iteration: Iteration, tasks: TaskRange) -> f32 {
    tasks.indices().map(|task| (task + 10 * iteration.number()) as f32).sum()
}

fn sum(asked: &VectorRequest) -> f32 {
    asked.tasks.iter().map(|tasks| value(asked.iteration, tasks)).sum()
}

pub(crate) fn config(folder: &Path, model: &str, policy: &str, budget: u64, iterations: u64) -> CoordinatorConfig {
    let model = builtin_model(model).unwrap();
    CoordinatorConfig {
        run: RunConfig { id: "test".into(), folder: folder.to_owned(), ..RunConfig::default() },
        engine: EngineConfig { budget, iterations, seed: 1, lease_timeout_s: Some(60.0), ..EngineConfig::default() },
        policy: PolicyConfig {
            policy: build_policy(policy, &PolicyContext::default()).unwrap(),
            specification: policy.into(),
        },
        evaluation: EvaluationConfig {
            source: SplitData::Generated { seed: 1 },
            own: Some(OwnEvaluation {
                data: model.open(&DataSource::Generated { seed: 1 }, Split::Test).unwrap(),
                device: DeviceChoice::Cpu.open().unwrap(),
            }),
            samples: None,
            by_workers: false,
            every: None,
        },
        problem: ProblemConfig {
            model,
            specification: "test".into(),
            task_batch: 1,
            skip_bad_samples: false,
            data: SplitData::Generated { seed: 1 },
            samples: None,
        },
        training: TrainingSetup {
            start: Start::Random,
            optimizer: Optimizer::default(),
            learning_rate: LearningRate::constant(0.1),
            follows_shares: false,
            inner_steps: None,
            format: WireFormat::F32Exact,
        },
        checkpoints: CheckpointConfig {
            store: Box::new(FolderStore::new(folder.join(CHECKPOINTS))),
            ..CheckpointConfig::never()
        },
        workers: WorkersConfig { heartbeat_timeout: duration(HEARTBEAT_TIMEOUT_S), ..WorkersConfig::default() },
        security: Arc::new(Security::Open),
    }
}

/// With a checkpoint after each iteration, the next step waits until the checkpoint is durable, so that a crash loses one step at most.
#[test]
fn a_step_waits_for_the_checkpoint_before_it() {
    let mut rig = Rig::changed(MODEL, "uta", 4, 2, |config| config.checkpoints.cadence = Cadence::Iterations(1));
    let mut client = rig.join("a", 1).unwrap();
    rig.work_off(&mut client);
    rig.step();
    // The second iteration is computed before the copy for the first checkpoint is made.
    rig.work_off(&mut client);
    assert_eq!(rig.pass_work_on(), [1, 0]);
    // The checkpoint is written.
    let written = rig.commands.blocking_recv().unwrap();
    rig.handle(written);
    assert_eq!(rig.pass_work_on(), [0, 1]);
}

/// In an asynchronous run, a slow worker still gets the parameters of its task after other workers have moved on. Workers that read none of
/// them cannot keep more versions in memory than the limit: those that keep the oldest versions are evicted.
#[test]
fn parameters_are_sent_with_the_tasks_that_need_them_while_there_is_room() {
    let mut rig = Rig::new("asgd", 1, 20);
    rig.driver.steps.versions = Versions::new(4);
    rig.driver.steps.versions.add(&rig.driver.steps.parameters);
    let mut fast = rig.join("fast", 1).unwrap();
    let mut slow = Vec::new();
    for at in 0..10 {
        slow.push(rig.join(&format!("slow-{at}"), 1).unwrap());
        rig.work_off(&mut fast);
        assert!(rig.step().is_none());
    }
    let said: Vec<_> = slow.iter_mut().map(VirtualWorker::read).collect();
    // The limit is four: the current version, and those of three slow workers.
    assert_eq!(said[..7], [Some(FarewellReason::Evicted); 7]);
    assert_eq!(said[7..], [None; 3]);
    assert!(rig.is_open(fast.token));
    assert_eq!(slow[7].leases[0].iteration, Iteration(8));
    let sets = rig.parameters(slow[7].token);
    assert_eq!(sets.take(), Ok(Some(Iteration(8))));
    assert_eq!(rig.parameters(fast.token).take(), Ok(Some(Iteration(11))));
    assert!(rig.leave(slow[7].token).is_none());
    assert!(sets.take().is_err());
}
