//! A coordinator and its workers in one process.

use std::collections::{BTreeMap, VecDeque};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use ata_coordinator::{
    Cadence, CheckpointConfig, CoordinatorConfig, EvaluationConfig, FolderStore, OwnEvaluation, PolicyConfig,
    ProblemConfig, Retention, RunConfig, RunError, RunReport, SplitData, Start, TrainingSetup, WorkersConfig,
};
use ata_data::{DataSource, FolderOptions, Split};
use ata_learn::{DeviceChoice, Model};
use ata_net::Security;
use ata_policies::build_policy;
use ata_record::{MODEL_FILE, RunEvent, RunState, read_journal};
use ata_scheduler::{EngineConfig, PolicyContext, Verify};
use ata_sums::TensorSizes;
use ata_worker::{EmulatedTimes, PeerConfig, TaskTime, WorkerConfig, WorkerEnd, WorkerError};
use tempfile::TempDir;
use tokio::net::TcpListener;
use tokio::sync::{oneshot, watch};
use tokio::task::{AbortHandle, JoinHandle, JoinSet};

use crate::settings::{Settings, WorkerSettings};
use crate::{PATIENCE, soon};

/// A run in progress.
pub struct Cluster {
    /// The address on which the coordinator listens.
    pub address: SocketAddr,
    /// The state of the run.
    pub state: watch::Receiver<RunState>,
    folder: TempDir,
    /// The folders of coordinators that crashed.
    earlier: Vec<TempDir>,
    stop: Option<oneshot::Sender<()>>,
    coordinator: JoinHandle<Result<RunReport, RunError>>,
    workers: JoinSet<(String, Result<WorkerEnd, WorkerError>)>,
}

/// The results of a run.
pub struct Ended {
    /// The coordinator's report.
    pub report: RunReport,
    /// The result of each worker that was not killed.
    pub workers: BTreeMap<String, Result<WorkerEnd, WorkerError>>,
    /// The journal.
    pub events: Vec<RunEvent>,
    /// The model file that the run wrote.
    pub model: Vec<u8>,
}

static INSTANCES: AtomicU64 = AtomicU64::new(1);

impl Cluster {
    /// Starts a coordinator.
    pub async fn start(settings: &Settings) -> Self {
        let folder = tempfile::tempdir().expect("a folder can be made");
        Self::start_in(settings, folder, Start::Random).await
    }

    async fn start_in(settings: &Settings, folder: TempDir, start: Start) -> Self {
        let listener = TcpListener::bind((settings.listen, 0)).await.expect("a port is free");
        let address = listener.local_addr().expect("it is bound");
        let config = config(settings, folder.path(), start);
        let (state, seen) = watch::channel(RunState::default());
        let (stop, stopped) = oneshot::channel();
        let stopped = async {
            // The run is also stopped if the cluster is dropped.
            drop(stopped.await);
        };
        let coordinator = tokio::spawn(ata_coordinator::run(config, listener, state, stopped));
        let (workers, earlier) = (JoinSet::new(), Vec::new());
        Self { address, state: seen, folder, earlier, stop: Some(stop), coordinator, workers }
    }

    /// Crashes the coordinator, and starts another one that resumes from the newest checkpoint, at another address. It gets a copy of the
    /// folder as it was at that moment, since threads of the crashed coordinator may still write. Returns the last iteration of the
    /// checkpoint.
    pub async fn crash(&mut self, settings: &Settings) -> u64 {
        let folder = tempfile::tempdir().expect("a folder can be made");
        copy(self.folder.path(), folder.path());
        self.coordinator.abort();
        let table = (settings.models)(settings.model).expect("a model").table();
        let training = ata_sums::TrainingConfig {
            optimizer: settings.optimizer().0,
            sizes: TensorSizes::from(&table),
            format: settings.format,
            budget: settings.choice.as_ref().map_or(settings.budget, |choice| choice.most),
        };
        let found = ata_coordinator::newest(&store(folder.path()), &table, &training);
        let checkpoint = found.expect("one is whole").expect("a checkpoint").checkpoint;
        let iteration = checkpoint.progress.iteration;
        let next = Self::start_in(settings, folder, Start::Checkpoint(Box::new(checkpoint))).await;
        let before = std::mem::replace(self, next);
        self.workers = before.workers;
        self.earlier = before.earlier;
        self.earlier.push(before.folder);
        iteration.number()
    }

    /// Starts a worker. Aborting it is like killing its process.
    pub fn worker(&mut self, settings: WorkerSettings) -> AbortHandle {
        let WorkerSettings {
            name,
            through,
            models,
            task_time,
            fuses,
            data,
            cache_bytes,
            retry_for,
            peer_listen,
            peer_host,
            leave,
        } = settings;
        let of_batch = move |_, tasks: u64, _| task_time.saturating_mul(tasks as u32);
        let task_times: EmulatedTimes = Arc::new(move |_, _| Ok(TaskTime { fuses, of_batch: Box::new(of_batch) }));
        let config = WorkerConfig {
            relocate: None,
            endpoint: format!("http://{}", through.unwrap_or(self.address)).parse().expect("an address"),
            name: name.parse().expect("a name"),
            name_is_fixed: true,
            number: None,
            device: DeviceChoice::Cpu.open().expect("there is a CPU"),
            fuse: fuses,
            models,
            data,
            folder_options: FolderOptions::default(),
            cache: self.cache(),
            cache_bytes,
            peers: Some(PeerConfig { listen: peer_listen, host: peer_host.map(Into::into) }),
            retry_for: Some(retry_for),
            drain: PATIENCE,
            task_times: (!task_time.is_zero()).then_some(task_times),
            instance: INSTANCES.fetch_add(1, Ordering::Relaxed),
        };
        self.workers.spawn(async move { (name, ata_worker::run(config, leave.cancelled_owned()).await) })
    }

    /// The cache that all workers share.
    pub fn cache(&self) -> PathBuf {
        self.folder.path().join("cache")
    }

    /// Waits until `is_so` holds for the run's state.
    pub async fn wait_for(&mut self, what: &str, is_so: impl FnMut(&RunState) -> bool) {
        let seen = tokio::time::timeout(PATIENCE, self.state.wait_for(is_so)).await.map(|seen| seen.is_ok());
        let why = match seen {
            Ok(true) => return,
            Ok(false) => "the run is over",
            Err(_) => "it did not happen",
        };
        panic!("{what}: {why}; this happened last:\n{}", self.last_events());
    }

    /// Returns the size in bytes of `state.json` in the newest checkpoint, which is the state saved in addition to the
    /// parameters. It is 0 if there is no checkpoint.
    pub fn saved_bytes(&self) -> u64 {
        let checkpoints = self.folder.path().join("checkpoints");
        let newest = std::fs::read_to_string(checkpoints.join("latest")).unwrap_or_default();
        checkpoints.join(newest.trim()).join("state.json").metadata().map_or(0, |file| file.len())
    }

    /// Waits until a worker ends, and returns its name and how it ended.
    pub async fn worker_ends(&mut self) -> (String, Result<WorkerEnd, WorkerError>) {
        let ended = soon("the end of a worker", self.workers.join_next()).await;
        ended.expect("a worker was started").expect("it was not killed")
    }

    /// Asks the coordinator to stop.
    pub fn stop(&mut self) {
        self.stop.take();
    }

    /// Waits for the end of a run that succeeds.
    pub async fn end(self) -> Ended {
        let ended = self.end_or_fail().await;
        assert!(ended.report.ended.is_ok(), "{:?}", ended.report.ended);
        ended
    }

    /// Waits for the end of the coordinator and of the workers, whether or not the run succeeds.
    pub async fn end_or_fail(mut self) -> Ended {
        let ending = tokio::time::timeout(PATIENCE, &mut self.coordinator).await;
        let ending =
            ending.unwrap_or_else(|_| panic!("the run did not end; it did this last:\n{}", self.last_events()));
        let report = ending.expect("no panic").expect("a run");
        let mut workers = BTreeMap::new();
        while let Some(ended) = soon("the end of the workers", self.workers.join_next()).await {
            workers.extend(ended.ok());
        }
        let mut events = Vec::new();
        read_journal(self.folder.path(), |event| events.push(event)).expect("a good journal");
        let model = std::fs::read(self.folder.path().join(MODEL_FILE)).expect("a run leaves its model");
        Ended { report, workers, events, model }
    }

    /// Returns the last lines of the journal, which help to debug a failure.
    fn last_events(&self) -> String {
        let mut lines = VecDeque::new();
        let kept = read_journal(self.folder.path(), |event| {
            lines.push_back(format!("{event:?}\n"));
            lines.drain(..lines.len().saturating_sub(30));
        });
        kept.map_or_else(|error| error.to_string(), |_| lines.into_iter().collect())
    }
}

fn store(folder: &Path) -> FolderStore {
    FolderStore::new(folder.join("checkpoints"))
}

fn checkpoints(settings: &Settings, folder: &Path) -> CheckpointConfig {
    let (cadence, newest) = match (settings.checkpoint_every, settings.checkpoint_every_s) {
        // All checkpoints are kept, so that none is dropped while the folder is copied.
        (Some(every), _) => (Cadence::Iterations(every), usize::MAX),
        (None, Some(every_s)) => (Cadence::Seconds(every_s), 3),
        (None, None) => return CheckpointConfig::never(),
    };
    CheckpointConfig {
        cadence,
        retention: Retention { newest, every: None },
        store: Box::new(store(folder)),
        ..CheckpointConfig::never()
    }
}

fn own_evaluation(model: &dyn Model, source: &DataSource) -> OwnEvaluation {
    let data = model.open(source, Split::Test).expect("good data");
    OwnEvaluation { data, device: DeviceChoice::Cpu.open().expect("there is a CPU") }
}

/// The seed of the data and of the run.
const SEED: u64 = 1;

fn config(settings: &Settings, folder: &Path, start: Start) -> CoordinatorConfig {
    let model = (settings.models)(settings.model).expect("a model");
    let source = settings.data.clone().map_or(DataSource::Generated { seed: SEED }, DataSource::File);
    let split = || match &settings.data {
        Some(path) => SplitData::of_file(path).expect("a file"),
        None => SplitData::Generated { seed: SEED },
    };
    CoordinatorConfig {
        run: RunConfig { id: "harness".into(), folder: folder.to_owned(), ..RunConfig::default() },
        engine: EngineConfig {
            budget: settings.budget,
            choice: settings.choice.clone(),
            iterations: settings.iterations,
            min_workers: settings.min_workers,
            lease_timeout_s: Some(settings.lease_timeout_s),
            rest_s: settings.rest_s,
            expel_after: Some(settings.expel_after),
            outage_s: settings.outage_s,
            verify: (settings.verify > 0.0).then_some(Verify { share: settings.verify, secret: 7 }),
            overcommit: settings.overcommit,
            takes_local_steps: settings.inner_steps.is_some(),
            overlap: settings.inner_steps.as_ref().is_some_and(|steps| steps.overlap),
            seed: SEED,
            ..EngineConfig::default()
        },
        policy: PolicyConfig {
            policy: build_policy(settings.policy, &PolicyContext::default()).expect("a policy"),
            specification: settings.policy.into(),
        },
        evaluation: EvaluationConfig {
            source: split(),
            samples: settings.evaluates.then(|| own_evaluation(&*model, &source).data.count()),
            own: settings.evaluates.then(|| own_evaluation(&*model, &source)),
            by_workers: settings.workers_evaluate,
            every: settings.evaluate_every,
        },
        problem: ProblemConfig {
            model,
            specification: settings.model.into(),
            task_batch: settings.task_batch,
            skip_bad_samples: settings.skip_bad_samples,
            data: split(),
            samples: None,
        },
        training: training(settings, start),
        checkpoints: checkpoints(settings, folder),
        workers: WorkersConfig {
            heartbeat_timeout: settings.heartbeat_timeout,
            transfers: settings.transfers,
            exchange: settings.exchange,
            peer_hosts: settings.peer_hosts.iter().map(ToString::to_string).collect(),
            warm_start: BTreeMap::new(),
        },
        security: Arc::new(Security::Open),
    }
}

fn training(settings: &Settings, start: Start) -> TrainingSetup {
    let (optimizer, learning_rate) = settings.optimizer();
    let (inner_steps, format) = (settings.inner_steps.clone(), settings.format);
    TrainingSetup { start, optimizer, learning_rate, follows_shares: false, inner_steps, format }
}

/// Copies the files in a folder, which may be changing.
fn copy(from: &Path, to: &Path) {
    for entry in std::fs::read_dir(from).into_iter().flatten().flatten() {
        let (from, to) = (entry.path(), to.join(entry.file_name()));
        if from.is_dir() {
            std::fs::create_dir(&to).expect("a folder can be made");
            copy(&from, &to);
        } else {
            // The file may have been removed meanwhile.
            drop(std::fs::copy(&from, &to));
        }
    }
}
