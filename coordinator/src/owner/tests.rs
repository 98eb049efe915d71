//! The owner on virtual time: sessions and gradients arrive as commands, without a network.

mod any_order;
mod exactly_once;
mod many_names;
mod stops;
mod uploads;

use std::collections::BTreeMap;

use ata_learn::{Aggregate, DataSource, DeviceChoice, Metadata, Optimizer, Split, builtin_model};
use ata_record::{RefusalKind, RunPhase, read_journal};
use ata_scheduler::{EngineConfig, PolicyContext, build_policy};
use ata_types::{Iteration, Lease};
use ata_wire::{GradientHeader, Hello, LeaseTimes, Peer, Reader, Receipt, SessionToken, ToWorker};
use rand::rngs::ChaCha8Rng;
use rand::{RngExt, SeedableRng};
use tempfile::TempDir;

use super::*;
use crate::checkpoint::{Cadence, FolderStore};
use crate::config::{Start, TrainingData, TransferLimits};
use crate::session::Presence;
use crate::sessions::SessionHandle;
use crate::training::Work;
use std::sync::mpsc as std_mpsc;
use tokio::sync::oneshot;

const HEARTBEAT_TIMEOUT_S: f64 = 2.0;

const CHECKPOINTS: &str = "checkpoints";

const MODEL: &str = "cnn:widths=1/1/1/1";

struct Rig {
    owner: Owner,
    /// What the training thread sends to the owner.
    commands: mpsc::Receiver<Command>,
    /// Work that the owner gave out, and the thread that does it when [`Rig::step`] passes it on: so the order of events
    /// depends on no thread's speed.
    work: std_mpsc::Receiver<Work>,
    training: std_mpsc::Sender<Work>,
    now_s: f64,
    parameters: usize,
    folder: TempDir,
    /// Leases that failed; three failures may end the run.
    failures: u32,
    state: watch::Receiver<RunState>,
}

/// A worker, as the service sees it.
struct Client {
    token: SessionToken,
    messages: mpsc::Receiver<ToWorker>,
    presence: Presence,
    /// Leases not answered yet.
    leases: Vec<Lease>,
}

impl Rig {
    fn new(policy: &str, budget: u64, iterations: u64) -> Self {
        Self::saving(Cadence::Never, policy, budget, iterations)
    }

    fn saving(cadence: Cadence, policy: &str, budget: u64, iterations: u64) -> Self {
        let folder = tempfile::tempdir().unwrap();
        Self::begin(folder, Start::Random, TransferLimits::default(), cadence, policy, budget, iterations)
    }

    /// A run in this folder.
    fn begin(
        folder: TempDir,
        start: Start,
        transfers: TransferLimits,
        cadence: Cadence,
        policy: &str,
        budget: u64,
        iterations: u64,
    ) -> Self {
        let model = builtin_model(MODEL).unwrap();
        let parameters = model.parameter_count();
        let test_data = model.open(&DataSource::Generated { seed: 1 }, Split::Test).unwrap();
        let config = CoordinatorConfig {
            run_id: "test".into(),
            engine: EngineConfig {
                budget,
                iterations,
                seed: 1,
                lease_timeout_s: Some(60.0),
                ..EngineConfig::default()
            },
            policy: build_policy(policy, &PolicyContext::default()).unwrap(),
            policy_specification: policy.into(),
            model_specification: "test".into(),
            model,
            aggregate: Aggregate::Mean,
            optimizer: Optimizer::default(),
            learning_rate: LearningRate::constant(0.1),
            eval_every: None,
            start,
            checkpoints: CheckpointConfig {
                cadence,
                store: Box::new(FolderStore::new(folder.path().join(CHECKPOINTS))),
                ..CheckpointConfig::never()
            },
            model_metadata: Metadata::new(),
            settings: String::new(),
            task_batch: 1,
            training_data: TrainingData::Generated { seed: 1 },
            test_data,
            device: DeviceChoice::Cpu.open().unwrap(),
            warm_start: BTreeMap::new(),
            heartbeat_timeout: duration(HEARTBEAT_TIMEOUT_S),
            transfers,
            run_folder: folder.path().to_owned(),
            listeners: ata_record::Listeners::default(),
            security: std::sync::Arc::new(ata_wire::Security::Open),
            span_links: ata_wire::SpanLinks::default(),
        };
        let (sender, commands) = mpsc::channel(64);
        let (state, seen) = watch::channel(RunState::default());
        let mut owner = Owner::new(config, &sender, Pool::default(), state).unwrap();
        let (given, work) = std_mpsc::channel();
        let training = std::mem::replace(&mut owner.training.work, given);
        owner.tell(Event::Proceed);
        let now_s = owner.now_s;
        Self { owner, commands, work, training, now_s, parameters, folder, failures: 0, state: seen }
    }

    /// Ends the run as its loop does, while the training thread does what it was given.
    fn end(self, ending: Ending) -> (RunReport, TempDir) {
        let Self { owner, commands, work, training, folder, .. } = self;
        // It ends when the owner does. The training thread may have failed.
        std::thread::spawn(move || while work.iter().next().is_some_and(|work| training.send(work).is_ok()) {});
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        let report = runtime.block_on(owner.finish(ending, commands, pin!(std::future::pending())));
        (report, folder)
    }

    /// Lets time pass, then handles a command.
    fn turn(&mut self, passes_s: f64, command: Option<Command>) -> Option<Ending> {
        self.now_s += passes_s;
        self.owner.turn(self.now_s, command)
    }

    /// Takes the step and writes the checkpoint that are due, if any; otherwise only time passes.
    fn step(&mut self) -> Option<Ending> {
        let mut reports = 0;
        for work in self.work.try_iter() {
            reports += usize::from(matches!(work, Work::Step { .. } | Work::Copy(_)));
            self.training.send(work).unwrap();
        }
        let mut ending = self.turn(0.1, None);
        for _ in 0..reports {
            let report = self.commands.blocking_recv();
            ending = ending.or(self.turn(0.0, report));
        }
        ending
    }

    fn ask<T>(&mut self, command: impl FnOnce(oneshot::Sender<T>) -> Command) -> T {
        let (reply, mut answer) = oneshot::channel();
        assert!(self.turn(0.0, Some(command(reply))).is_none());
        answer.try_recv().expect("every request is answered at once")
    }

    fn join(&mut self, name: &str, instance: u64) -> Option<Client> {
        let hello = Hello {
            name: name.parse().unwrap(),
            instance,
            number: None,
            device: String::new(),
            version: String::new(),
        };
        let hello = |reply| Command::Hello { hello, peer: Peer::default(), reply };
        let SessionHandle { token, messages, presence } = self.ask(hello).ok()?;
        assert!(self.turn(0.0, Some(Command::Ready { session: token, fuses: false })).is_none());
        presence.hear_heartbeat(false);
        Some(Client { token, messages, presence, leases: Vec::new() })
    }

    /// Whether a gradient may be sent.
    fn announce(&mut self, session: SessionToken, lease: &Lease) -> bool {
        let (lease, iteration, peer) = (lease.id, lease.iteration, Peer::default());
        self.ask(|reply| Command::Announce { session, lease, iteration, peer, reply }).is_ok()
    }

    /// Announces a gradient, and sends it if it may be sent.
    fn submit(&mut self, token: SessionToken, lease: &Lease, good: bool) -> (Option<Receipt>, Option<Ending>) {
        if self.announce(token, lease) { self.gradient(token, lease, good) } else { (None, None) }
    }

    /// Sends a gradient that depends on its tasks only, or one that must not count.
    fn gradient(&mut self, session: SessionToken, lease: &Lease, good: bool) -> (Option<Receipt>, Option<Ending>) {
        let header = GradientHeader {
            session,
            lease: lease.id,
            iteration: lease.iteration,
            times: LeaseTimes { busy_s: vec![0.0; lease.tasks.count as usize], outlasted: 0 },
            loss_sum: 1.0,
        };
        // Whole numbers, so that their sum is the same in every order.
        let value = if good {
            lease.tasks.indices().map(|task| (task + 10 * lease.iteration.number()) as f32).sum()
        } else {
            1e6
        };
        let values = vec![value; self.parameters];
        let (reply, mut answer) = oneshot::channel();
        let ending = self.turn(0.0, Some(Command::Gradient(Gradient { header, values, reply })));
        (answer.try_recv().ok(), ending)
    }
}

impl Client {
    /// Reads its messages, and updates its leases. Returns why it was told to leave, if it was.
    fn read(&mut self) -> Option<FarewellReason> {
        while let Ok(message) = self.messages.try_recv() {
            match message {
                ToWorker::Assign(leases) => self.leases.extend(leases.into_iter().map(|assignment| assignment.lease)),
                ToWorker::Cancel(gone) => self.leases.retain(|lease| !gone.contains(&lease.id)),
                ToWorker::Farewell { reason, .. } => return Some(reason),
                ToWorker::Welcome(_) => {}
            }
        }
        None
    }
}

/// Lets a client compute all its leases until the run ends. Returns why the run ended, and the parameters.
fn finish(rig: &mut Rig, client: &mut Client) -> (Ending, [u8; 32]) {
    loop {
        client.read();
        let ending = if client.leases.is_empty() {
            // A step is due, or other workers hold the remaining leases until they are lost.
            client.presence.hear();
            rig.step()
        } else {
            let lease = client.leases.remove(0);
            let (receipt, ending) = rig.submit(client.token, &lease, true);
            assert_eq!(receipt, Some(Receipt::Accepted));
            ending
        };
        if let Some(ending) = ending {
            return (ending, rig.owner.parameters.sha256());
        }
    }
}

fn honest(budget: u64, iterations: u64) -> [u8; 32] {
    let mut rig = Rig::new("uta", budget, iterations);
    let mut client = rig.join("a", 1).unwrap();
    let (ending, sha256) = finish(&mut rig, &mut client);
    assert!(matches!(ending, Ending::Stop(StopReason::Finished(_))));
    sha256
}

/// A worker that cannot be sent its leases loses them to others.
#[test]
fn a_message_that_cannot_be_sent_is_a_loss() {
    let mut rig = Rig::new("uta", 8, 3);
    let mut good = rig.join("good", 1).unwrap();
    let bad = rig.join("bad", 1).unwrap();
    drop(bad.messages);
    let (ending, sha256) = finish(&mut rig, &mut good);
    assert!(matches!(ending, Ending::Stop(StopReason::Finished(_))));
    assert_eq!(sha256, honest(8, 3));
    assert!(rig.owner.sessions.of_token(bad.token).is_err());
}

#[test]
fn silent_workers_are_lost_and_those_that_are_heard_are_not() {
    let mut rig = Rig::new("uta", 4, 2);
    let (silent, mut good) = (rig.join("silent", 1).unwrap(), rig.join("good", 1).unwrap());
    for _ in 0..10 {
        good.presence.hear();
        rig.turn(HEARTBEAT_TIMEOUT_S / 4.0, None);
    }
    assert!(rig.owner.sessions.of_token(silent.token).is_err());
    assert_eq!(rig.state.borrow().present(), 1);
    assert_eq!(finish(&mut rig, &mut good).1, honest(4, 2));
}

/// If its journal cannot be written, the run ends and its workers are told that it failed.
#[test]
fn a_full_disk_ends_the_run() {
    let mut rig = Rig::new("uta", 4, 2);
    let mut client = rig.join("a", 1).unwrap();
    let cause = std::sync::Arc::new(std::io::ErrorKind::StorageFull.into());
    let error = RecordError { path: "events.jsonl".into(), cause };
    let ending = rig.turn(0.0, Some(Command::RecordFailed(error))).unwrap();
    assert!(matches!(ending, Ending::RecordFailed(_)));
    rig.owner.take_leave(&ending);
    assert_eq!(client.read(), Some(FarewellReason::Failed));
}

#[test]
fn a_step_that_fails_ends_the_run() {
    let mut rig = Rig::new("uta", 4, 2);
    assert!(matches!(rig.turn(0.0, Some(Command::Training(training::Report::Failed))), Some(Ending::TrainingFailed)));
}

/// With a checkpoint after each iteration, the next step waits until it is durable: a crash loses one step at most.
#[test]
fn a_step_waits_for_the_checkpoint_before_it() {
    let mut rig = Rig::saving(Cadence::Iterations(1), "uta", 4, 2);
    let mut client = rig.join("a", 1).unwrap();
    let mut compute = |rig: &mut Rig| {
        client.read();
        for lease in std::mem::take(&mut client.leases) {
            rig.submit(client.token, &lease, true);
        }
    };
    compute(&mut rig);
    rig.step();
    // The copy of the first checkpoint is still to be made while the second iteration is computed.
    compute(&mut rig);
    let work: Vec<Work> = rig.work.try_iter().collect();
    let has_step = |work: &[Work]| work.iter().any(|work| matches!(work, Work::Step { .. }));
    assert!(work.iter().any(|work| matches!(work, Work::Copy(_))) && !has_step(&work));
    for work in work {
        rig.training.send(work).unwrap();
    }
    let saved = rig.commands.blocking_recv();
    assert!(matches!(saved, Some(Command::Saved(_))));
    rig.turn(0.1, saved);
    assert!(has_step(&rig.work.try_iter().collect::<Vec<_>>()));
}

/// In an asynchronous run a slow worker still gets the parameters of its task after others have moved on.
#[test]
fn parameters_are_sent_with_the_tasks_that_need_them() {
    let mut rig = Rig::new("asgd", 1, 20);
    let (mut fast, mut slow) = (rig.join("fast", 1).unwrap(), rig.join("slow", 1).unwrap());
    slow.read();
    assert_eq!(slow.leases[0].iteration, Iteration(1));
    for _ in 0..5 {
        fast.read();
        let lease = fast.leases.remove(0);
        assert_eq!(rig.submit(fast.token, &lease, true).0, Some(Receipt::Accepted));
        assert!(rig.step().is_none());
    }
    let mut of = |session| rig.ask(|reply| Command::Parameters { session, reader: Reader::default(), reply }).unwrap();
    let sets = of(slow.token);
    assert_eq!(sets.take(), Ok(Some(Iteration(1))));
    assert_eq!(of(fast.token).take(), Ok(Some(Iteration(6))));
    let left = Command::Left { session: slow.token, why: "it left".into() };
    assert!(rig.turn(0.1, Some(left)).is_none());
    assert_eq!(sets.take(), Err(()), "its session is over");
}

/// Workers that are assigned tasks of different iterations and read none of the parameters do not keep more versions in
/// memory than there may be: those that keep the oldest are sent away.
#[test]
fn the_slowest_readers_make_room() {
    let mut rig = Rig::new("asgd", 1, 20);
    rig.owner.versions = Versions::new(4);
    assert!(!rig.owner.versions.add(&rig.owner.parameters));
    let mut fast = rig.join("fast", 1).unwrap();
    let mut slow = Vec::new();
    for at in 0..10 {
        slow.push(rig.join(&format!("slow-{at}"), 1).unwrap());
        fast.read();
        let lease = fast.leases.remove(0);
        assert_eq!(rig.submit(fast.token, &lease, true).0, Some(Receipt::Accepted));
        assert!(rig.step().is_none());
    }
    let said: Vec<_> = slow.iter_mut().map(Client::read).collect();
    // The current version, and those of three slow workers.
    assert_eq!(said[..7], [Some(FarewellReason::Evicted); 7]);
    assert_eq!(said[7..], [None; 3]);
    assert!(rig.owner.sessions.of_token(fast.token).is_ok());
}

/// The run ends as it does in its loop. According to its journal, every task entered its step once.
fn check_end(rig: Rig, ending: Ending, seed: u64, applied: u64) {
    let (report, folder) = rig.end(ending);
    assert!(report.ended.is_ok(), "seed {seed}: {:?}", report.ended);
    assert_eq!((report.state.iterations, report.state.tasks_applied), (4, applied), "seed {seed}");
    assert!(matches!(report.state.phase, RunPhase::Over(EndState::Finished)), "seed {seed}");
    let mut tasks = std::collections::BTreeSet::new();
    read_journal(folder.path(), |event| {
        if let RunEvent::Task { iteration, task, outcome: ata_types::TaskOutcome::Applied, .. } = event {
            assert!(tasks.insert((iteration, task)), "seed {seed}: {iteration}, {task}");
        }
    })
    .unwrap();
    assert_eq!(tasks.len() as u64, applied, "seed {seed}");
}
