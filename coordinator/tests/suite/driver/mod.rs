//! Tests of the driver on virtual time. Sessions and gradients arrive as function calls, without a network.

mod any_order;
mod exactly_once;
mod late;
mod many_names;
mod room;
mod stops;
mod vectors;

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::sync::Arc;

use ata_coordinator::testing::{Ending, VirtualRun, VirtualWorker, WorkKind};
use ata_coordinator::{
    Cadence, CheckpointConfig, CoordinatorConfig, EvaluationConfig, FolderStore, OwnEvaluation, PolicyConfig,
    ProblemConfig, RunConfig, SplitData, Start, StopReason, TrainingSetup, TransferLimits, WorkersConfig,
};
use ata_data::{DataSource, Split};
use ata_learn::{DeviceChoice, builtin_model};
use ata_net::Security;
use ata_policies::build_policy;
use ata_record::{EndState, RecordError, RefusalKind, RunEvent, RunPhase, read_journal};
use ata_scheduler::{EngineConfig, PolicyContext};
use ata_sums::{LearningRate, Optimizer, TensorSizes};
use ata_types::{ExchangeChoice, Iteration, Lease, LeaseId, TaskOutcome, TaskRange, VectorId, WireFormat};
use ata_wire::{FarewellReason, GradientHeader, Receipt, SessionToken, VectorRequest, duration};
use rand::rngs::ChaCha8Rng;
use rand::{RngExt, SeedableRng};
use tempfile::TempDir;

const HEARTBEAT_TIMEOUT_S: f64 = 2.0;

const CHECKPOINTS: &str = "checkpoints";

const MODEL: &str = "cnn:widths=1/1/1/1";

/// A model whose vectors have several chunks.
const LARGE: &str = "cnn:widths=16/32/64/96";

/// A run and its folder.
struct Rig {
    run: VirtualRun,
    folder: TempDir,
}

impl Rig {
    fn new(policy: &str, budget: u64, iterations: u64) -> Self {
        Self::saving(Cadence::Never, policy, budget, iterations)
    }

    fn saving(cadence: Cadence, policy: &str, budget: u64, iterations: u64) -> Self {
        Self::begin(tempfile::tempdir().unwrap(), Start::Random, cadence, policy, budget, iterations)
    }

    /// Begins a run in this folder.
    fn begin(folder: TempDir, start: Start, cadence: Cadence, policy: &str, budget: u64, iterations: u64) -> Self {
        Self::of(config(folder.path(), MODEL, start, cadence, policy, budget, iterations), folder)
    }

    /// Begins a run of a model whose vectors have several chunks.
    fn large(policy: &str, budget: u64, iterations: u64) -> Self {
        let folder = tempfile::tempdir().unwrap();
        Self::of(config(folder.path(), LARGE, Start::Random, Cadence::Never, policy, budget, iterations), folder)
    }

    fn of(config: CoordinatorConfig, folder: TempDir) -> Self {
        Self { run: VirtualRun::begin(config), folder }
    }

    fn join(&mut self, name: &str, instance: u64) -> Option<VirtualWorker> {
        self.run.join(name, instance)
    }

    fn leave(&mut self, passes_s: f64, session: SessionToken) -> Option<Ending> {
        self.run.leave(passes_s, session)
    }

    fn step(&mut self) -> Option<Ending> {
        self.run.step()
    }

    /// Does the next piece of a worker's work.
    fn work(&mut self, client: &mut VirtualWorker) -> Option<Ending> {
        let is_open = self.run.is_open(client.token);
        if client.leases.is_empty() {
            let asked = client.asked.remove(0);
            let (receipt, ending) = self.run.send_vector(client.token, &asked, sum(&asked));
            assert_eq!(receipt == Some(Receipt::Accepted), is_open);
            return ending;
        }
        let lease = client.leases.remove(0);
        self.run.report(client.token, &lease)
    }

    /// Does all of a worker's work.
    fn work_off(&mut self, client: &mut VirtualWorker) {
        client.read();
        while is_busy(client) {
            assert!(self.work(client).is_none());
            client.read();
        }
        client.hear();
    }
}

/// Returns whether a worker has work to do.
fn is_busy(client: &VirtualWorker) -> bool {
    !client.leases.is_empty() || !client.asked.is_empty()
}

/// Returns workers that have computed all tasks of the first iteration, and have not read the requests for their vectors.
fn computed<const N: usize>(rig: &mut Rig, names: [&str; N]) -> [VirtualWorker; N] {
    let mut clients = names.map(|name| rig.join(name, 1).unwrap());
    for client in &mut clients {
        client.read();
        assert!(!client.leases.is_empty());
        for lease in std::mem::take(&mut client.leases) {
            assert!(rig.run.report(client.token, &lease).is_none());
        }
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

/// Does all work of these workers until the run ends.
fn run_to_the_end<'a>(rig: &mut Rig, clients: impl IntoIterator<Item = &'a mut VirtualWorker>) -> Ending {
    let mut clients: Vec<&mut VirtualWorker> = clients.into_iter().collect();
    loop {
        let mut ending = None;
        for client in &mut clients {
            client.read();
            client.hear();
            while ending.is_none() && is_busy(client) {
                ending = rig.work(client);
                client.read();
            }
        }
        if let Some(ending) = ending.or_else(|| rig.step()) {
            return ending;
        }
    }
}

/// Returns the values of the gradient of some tasks. They are whole numbers, so that their sum is the same in every order.
fn value(iteration: Iteration, tasks: TaskRange) -> f32 {
    tasks.indices().map(|task| (task + 10 * iteration.number()) as f32).sum()
}

/// Returns the values of a requested vector.
fn sum(asked: &VectorRequest) -> f32 {
    asked.tasks.iter().map(|tasks| value(asked.iteration, tasks)).sum()
}

fn config(
    folder: &Path,
    model: &str,
    start: Start,
    cadence: Cadence,
    policy: &str,
    budget: u64,
    iterations: u64,
) -> CoordinatorConfig {
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
            by_workers: false,
            every: None,
        },
        problem: ProblemConfig {
            model,
            specification: "test".into(),
            task_batch: 1,
            skip_bad_samples: false,
            data: SplitData::Generated { seed: 1 },
        },
        training: TrainingSetup {
            start,
            optimizer: Optimizer::default(),
            learning_rate: LearningRate::constant(0.1),
            format: WireFormat::F32Exact,
        },
        checkpoints: CheckpointConfig {
            cadence,
            store: Box::new(FolderStore::new(folder.join(CHECKPOINTS))),
            ..CheckpointConfig::never()
        },
        workers: WorkersConfig {
            heartbeat_timeout: duration(HEARTBEAT_TIMEOUT_S),
            transfers: TransferLimits::default(),
            exchange: ExchangeChoice::default(),
            peer_hosts: Vec::new(),
            warm_start: BTreeMap::new(),
        },
        security: Arc::new(Security::Open),
    }
}

/// Does all of a worker's work until the run ends. Returns why the run ended, and the digest of the parameters.
fn finish(rig: &mut Rig, client: &mut VirtualWorker) -> (Ending, [u8; 32]) {
    loop {
        client.read();
        let ending = if is_busy(client) {
            rig.work(client)
        } else {
            // Either a step is due, or other workers hold the remaining leases until they are lost.
            client.hear();
            rig.step()
        };
        if let Some(ending) = ending {
            return (ending, rig.run.parameters_sha256());
        }
    }
}

fn honest(budget: u64, iterations: u64) -> [u8; 32] {
    honest_end(Rig::new("uta", budget, iterations))
}

/// Returns the digest of the parameters of a run with one honest worker.
fn honest_end(mut rig: Rig) -> [u8; 32] {
    let mut client = rig.join("a", 1).unwrap();
    let (ending, sha256) = finish(&mut rig, &mut client);
    assert!(matches!(ending, Ending::Stop(StopReason::Finished(_))));
    sha256
}

/// If messages cannot be sent to a worker, its leases go to other workers.
#[test]
fn a_message_that_cannot_be_sent_is_a_loss() {
    let mut rig = Rig::new("uta", 8, 3);
    let mut good = rig.join("good", 1).unwrap();
    let mut bad = rig.join("bad", 1).unwrap();
    bad.stop_reading();
    let (ending, sha256) = finish(&mut rig, &mut good);
    assert!(matches!(ending, Ending::Stop(StopReason::Finished(_))));
    assert_eq!(sha256, honest(8, 3));
    assert!(!rig.run.is_open(bad.token));
}

#[test]
fn silent_workers_are_lost_and_those_that_are_heard_are_not() {
    let mut rig = Rig::new("uta", 4, 2);
    let (silent, mut good) = (rig.join("silent", 1).unwrap(), rig.join("good", 1).unwrap());
    for _ in 0..10 {
        good.hear();
        rig.run.pass(HEARTBEAT_TIMEOUT_S / 4.0);
    }
    assert!(!rig.run.is_open(silent.token));
    rig.run.wait_for("one worker", |state| state.present() == 1);
    assert_eq!(finish(&mut rig, &mut good).1, honest(4, 2));
}

/// If the journal cannot be written, the run ends, and the workers are notified that it failed.
#[test]
fn a_full_disk_ends_the_run() {
    let mut rig = Rig::new("uta", 4, 2);
    let mut client = rig.join("a", 1).unwrap();
    let cause = Arc::new(std::io::ErrorKind::StorageFull.into());
    let error = RecordError { path: "events.jsonl".into(), cause };
    let ending = rig.run.fail_record(error).unwrap();
    assert!(matches!(ending, Ending::RecordFailed(_)));
    rig.run.take_leave(&ending);
    assert_eq!(client.read(), Some(FarewellReason::Failed));
}

#[test]
fn a_step_that_fails_ends_the_run() {
    let mut rig = Rig::new("uta", 4, 2);
    assert!(matches!(rig.run.fail_training(), Some(Ending::TrainingFailed)));
}

/// With a checkpoint after each iteration, the next step waits until the checkpoint is durable, so that a crash loses one step at most.
#[test]
fn a_step_waits_for_the_checkpoint_before_it() {
    let mut rig = Rig::saving(Cadence::Iterations(1), "uta", 4, 2);
    let mut client = rig.join("a", 1).unwrap();
    rig.work_off(&mut client);
    rig.step();
    // The second iteration is computed before the copy for the first checkpoint is made.
    rig.work_off(&mut client);
    let work = rig.run.pass_work_on();
    assert!(work.contains(&WorkKind::Copy) && !work.contains(&WorkKind::Step), "{work:?}");
    // The checkpoint is written.
    rig.run.handle_report(0.1);
    assert_eq!(rig.run.pass_work_on(), [WorkKind::Step]);
}

/// In an asynchronous run, a slow worker still gets the parameters of its task after other workers have moved on.
#[test]
fn parameters_are_sent_with_the_tasks_that_need_them() {
    let mut rig = Rig::new("asgd", 1, 20);
    let (mut fast, mut slow) = (rig.join("fast", 1).unwrap(), rig.join("slow", 1).unwrap());
    slow.read();
    assert_eq!(slow.leases[0].iteration, Iteration::FIRST);
    for _ in 0..5 {
        rig.work_off(&mut fast);
        assert!(rig.step().is_none());
    }
    let sets = rig.run.parameters(slow.token);
    assert_eq!(sets.take(), Some(Iteration(1)));
    assert_eq!(rig.run.parameters(fast.token).take(), Some(Iteration(6)));
    assert!(rig.leave(0.1, slow.token).is_none());
    assert!(sets.is_over());
}

/// Workers that are assigned tasks of different iterations and read none of the parameters cannot keep more versions in
/// memory than the limit: the workers that keep the oldest versions are evicted.
#[test]
fn the_slowest_readers_make_room() {
    let mut rig = Rig::new("asgd", 1, 20);
    rig.run.limit_versions(4);
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
    assert!(rig.run.is_open(fast.token));
}

/// Ends the run as its loop does, and checks in the journal that every task entered its step once.
fn check_end(rig: Rig, ending: Ending, seed: u64, applied: u64) {
    let Rig { run, folder } = rig;
    let report = run.end(ending);
    assert!(report.ended.is_ok(), "seed {seed}: {:?}", report.ended);
    assert_eq!((report.state.iterations, report.state.tasks_applied), (4, applied), "seed {seed}");
    assert!(matches!(report.state.phase, RunPhase::Over(EndState::Finished)), "seed {seed}");
    let mut tasks = BTreeSet::new();
    read_journal(folder.path(), |event| {
        if let RunEvent::Task { iteration, task, outcome: TaskOutcome::Applied, .. } = event {
            assert!(tasks.insert((iteration, task)), "seed {seed}: {iteration}, {task}");
        }
    })
    .unwrap();
    assert_eq!(tasks.len() as u64, applied, "seed {seed}");
}
