//! The validated configuration of a run.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use ata_data::{DataError, DataFile, ShardIndex};
use ata_learn::{Dataset, Model, OpenDevice};
use ata_net::Security;
use ata_record::{Labels, Listeners};
use ata_scheduler::{EngineConfig, Policy, WorkerStatistics};
use ata_sums::{InnerSteps, LearningRate, Metadata, Optimizer};
use ata_types::{ExchangeChoice, WireFormat};
use ata_wire::limits::{CHUNK_TIMEOUT, HEARTBEATS_MISSED, IDLE_HEARTBEAT_INTERVAL};
use ata_wire::{DataSpec, RunSpec};
use tokio::sync::Semaphore;

use crate::checkpoint::{Cadence, Checkpoint, FolderStore, Retention, Store};

/// A run's settings, grouped by the part of the coordinator that uses them.
pub struct CoordinatorConfig {
    /// The run's name and records.
    pub run: RunConfig,
    /// The engine's settings, such as budget, iterations and seed.
    pub engine: EngineConfig,
    /// The policy that chooses the allocations.
    pub policy: PolicyConfig,
    /// The problem whose gradients the tasks are.
    pub problem: ProblemConfig,
    /// The training settings: initial parameters, optimizer and learning rate.
    pub training: TrainingSetup,
    /// When and on which data the parameters are evaluated.
    pub evaluation: EvaluationConfig,
    /// When and where checkpoints are written.
    pub checkpoints: CheckpointConfig,
    /// The workers' limits, and what is known about their speed.
    pub workers: WorkersConfig,
    /// TLS and admission: what every client must prove.
    pub security: Arc<Security>,
}

/// The run's name and records.
#[derive(Default)]
pub struct RunConfig {
    /// The run's name.
    pub id: String,
    /// The name and tags that the user gave the run.
    pub labels: Labels,
    /// The folder for `events.jsonl`, `metrics.csv` and the models. It must exist.
    pub folder: PathBuf,
    /// Whether the journal keeps the details of all iterations, so that its size is not bounded.
    pub keeps_all_events: bool,
    /// The run's settings as in `config.toml`, which checkpoints include.
    pub settings: String,
    /// The subscribers of the run's events.
    pub listeners: Listeners,
}

/// The policy that chooses the allocations.
pub struct PolicyConfig {
    /// The policy.
    pub policy: Box<dyn Policy>,
    /// The policy's specification, as `--policy` takes it.
    pub specification: String,
}

/// The problem whose gradients workers compute.
pub struct ProblemConfig {
    /// The model.
    pub model: Arc<dyn Model>,
    /// The model's specification, which is sent to the workers.
    pub specification: String,
    /// The number of samples per task.
    pub task_batch: u32,
    /// Whether samples without a finite loss or gradient are left out of the mean of their task.
    pub skip_bad_samples: bool,
    /// The data that gradients are computed on.
    pub data: SplitData,
    /// The number of its samples, if it is known.
    pub samples: Option<u64>,
}

/// How gradients are turned into parameters.
pub struct TrainingSetup {
    /// The initial state of the run.
    pub start: Start,
    /// The optimizer, which turns gradients into steps.
    pub optimizer: Optimizer,
    /// The wire format of vectors.
    pub format: WireFormat,
    /// The learning rate of each iteration.
    pub learning_rate: LearningRate,
    /// Whether the learning rate of a step is multiplied by the [`ata_sums::outer_rate`] of the workers' shares.
    pub follows_shares: bool,
    /// How workers take inner steps, if they do: an iteration is then a round, and [`Self::optimizer`] steps along the mean difference.
    pub inner_steps: Option<InnerSteps>,
}

/// When and on which data parameters are evaluated, and by which process.
pub struct EvaluationConfig {
    /// The test data, as workers receive it.
    pub source: SplitData,
    /// The data and device with which the coordinator evaluates parameters; `None` if it does not.
    pub own: Option<OwnEvaluation>,
    /// The number of test samples, if the coordinator has the test data, whether or not it evaluates.
    pub samples: Option<u64>,
    /// Whether workers evaluate parameters. Workers without tasks are preferred.
    pub by_workers: bool,
    /// The number of iterations between two evaluations; `None` to evaluate only the final parameters.
    pub every: Option<u64>,
}

/// The data and device with which the coordinator evaluates parameters itself.
pub struct OwnEvaluation {
    /// The test data.
    pub data: Arc<dyn Dataset>,
    /// The device to compute on.
    pub device: OpenDevice,
}

/// The limits for workers, and what is known about their speed.
#[derive(Default)]
pub struct WorkersConfig {
    /// The time after which a silent worker is lost. A worker without work is given at least 10 s.
    pub heartbeat_timeout: Duration,
    /// The memory and time that transfers may take.
    pub transfers: TransferLimits,
    /// How workers exchange vectors.
    pub exchange: ExchangeChoice,
    /// The hosts that workers may announce to their peers, in addition to the host from which they connect.
    pub peer_hosts: Vec<String>,
    /// The statistics of the workers from an earlier run, by name.
    pub warm_start: BTreeMap<String, WorkerStatistics>,
}

/// Limits of the transfers to and from all workers together.
#[derive(Clone, Copy, Debug)]
pub struct TransferLimits {
    /// The memory in bytes for gradients that are being received. Parameters that are being sent get the same amount, and so does the data
    /// that connections may send ahead.
    pub memory_bytes: u64,
    /// The time within which a worker must read some of the data that it is sent.
    pub timeout: Duration,
}

impl Default for TransferLimits {
    /// The three parts take at most three quarters of the memory, which only a hostile cluster comes near. The optimizer and the page cache
    /// use the rest.
    fn default() -> Self {
        Self { memory_bytes: ata_net::memory_bytes() / 4, timeout: CHUNK_TIMEOUT }
    }
}

/// The number of gradients that may arrive at the same time even if memory is scarce. A single worker gets half of this, so that one of its
/// gradients is checked while the next one arrives. Together they take as much memory as [`LEAST_VERSIONS`] versions of the parameters.
const LEAST_UPLOADS: u64 = 4;

/// The number of versions of the parameters that may be in memory even if memory is scarce: the current and the next
/// one, one that is being evaluated, and one for the slowest reader.
const LEAST_VERSIONS: u64 = 4;

impl TransferLimits {
    /// Returns how many gradients may arrive at the same time.
    pub(crate) fn uploads(&self, parameters: u64) -> usize {
        self.tensors(parameters).clamp(LEAST_UPLOADS, Semaphore::MAX_PERMITS as u64) as usize
    }

    pub(crate) fn versions(&self, parameters: u64) -> usize {
        self.tensors(parameters).max(LEAST_VERSIONS) as usize
    }

    fn tensors(&self, parameters: u64) -> u64 {
        self.memory_bytes / (4 * parameters.max(1))
    }
}

/// The initial state of a run.
#[derive(Debug)]
pub enum Start {
    /// The parameters are random.
    Random,
    /// The parameters are given, in flat order.
    Parameters(Vec<f32>),
    /// The run resumes from a checkpoint. Its folder may hold its journal.
    Checkpoint(Box<Checkpoint>),
}

/// When and where a run's checkpoints are written.
pub struct CheckpointConfig {
    /// When a checkpoint is due.
    pub cadence: Cadence,
    /// Which checkpoints are kept.
    pub retention: Retention,
    /// The store for the checkpoints.
    pub store: Box<dyn Store>,
    /// The metadata of the run's model files.
    pub model_metadata: Metadata,
}

impl CheckpointConfig {
    /// Returns a configuration that writes no checkpoints.
    pub fn never() -> Self {
        Self {
            cadence: Cadence::Never,
            retention: Retention { newest: 1, every: None },
            store: Box::new(FolderStore::new("")),
            model_metadata: Metadata::new(),
        }
    }
}

/// One split of a run's data.
#[derive(Debug)]
pub enum SplitData {
    /// Data that is generated from a seed.
    Generated {
        /// The seed.
        seed: u64,
    },
    /// A file, which is sent to the workers that lack it.
    File(DataFile),
    /// A file of images in shards. Each worker is sent the shards that it needs.
    Shards {
        /// The index of the shards, which identifies the data.
        index: DataFile,
        /// The shards.
        shards: Vec<DataFile>,
    },
    /// A file of images in shards, which workers fetch from an object store.
    Objects {
        /// The index of the shards, which identifies the data.
        index: DataFile,
        /// The URL of the folder that contains the packed file.
        url: String,
    },
}

impl SplitData {
    /// Opens a data file, or an index of shards with the packed file next to it.
    pub fn of_file(path: &Path) -> Result<Self, DataError> {
        let file = DataFile::identify(path)?;
        if !ShardIndex::is_index(path)? {
            return Ok(Self::File(file));
        }
        let shards = DataFile::shards(&ShardIndex::read(path)?, &path.with_extension("packed"))?;
        Ok(Self::Shards { index: file, shards })
    }

    /// Opens an index of shards whose packed file is in an object store.
    pub fn of_objects(index: &Path, url: String) -> Result<Self, DataError> {
        Ok(Self::Objects { index: DataFile::identify(index)?, url })
    }

    /// Returns a string that identifies the content of the data.
    pub fn identity(&self) -> String {
        match self {
            Self::Generated { seed } => format!("synthetic, seed {seed}"),
            Self::File(file) | Self::Shards { index: file, .. } | Self::Objects { index: file, .. } => {
                format!("sha256 {}", ata_data::hex(&file.sha256))
            }
        }
    }

    /// Returns the files that workers may be sent.
    pub(crate) fn files(&self) -> impl Iterator<Item = &DataFile> {
        let (file, shards) = match self {
            Self::Generated { .. } => (None, &[][..]),
            Self::File(file) | Self::Objects { index: file, .. } => (Some(file), &[][..]),
            Self::Shards { index, shards } => (Some(index), &shards[..]),
        };
        file.into_iter().chain(shards)
    }

    fn spec(&self) -> DataSpec {
        let (file, shards_url) = match self {
            Self::Generated { seed } => return DataSpec::Generated { seed: *seed },
            Self::File(file) | Self::Shards { index: file, .. } => (file, None),
            Self::Objects { index, url } => (index, Some(url.clone())),
        };
        DataSpec::File { sha256: file.sha256, bytes: file.bytes, shards_url }
    }
}

impl CoordinatorConfig {
    /// Returns whether vectors count only whole: one may turn out to be wrong, or no other worker can send the rest of a difference.
    pub(crate) fn keeps_vectors_apart(&self) -> bool {
        self.engine.verify.is_some() || self.training.inner_steps.is_some()
    }

    pub(crate) fn run_spec(&self) -> RunSpec {
        let problem = &self.problem;
        RunSpec {
            model: problem.specification.clone(),
            parameters: problem.model.parameter_count() as u64,
            tensors: problem.model.table().tensors.iter().map(|tensor| tensor.elements() as u64).collect(),
            seed: self.engine.seed,
            budget: self.engine.budget,
            most_tasks: self.engine.choice.as_ref().map_or(self.engine.budget, |choice| choice.most),
            task_batch: problem.task_batch,
            skip_bad_samples: problem.skip_bad_samples,
            data: problem.data.spec(),
            test_data: self.evaluation.source.spec(),
            format: self.training.format,
            inner_steps: self.training.inner_steps.clone().map(Box::new),
        }
    }
}

/// The times after which silent or slow workers are lost.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Timeouts {
    /// The timeout for a worker that has work.
    pub(crate) heartbeat: Duration,
    /// The timeout for a worker whose last heartbeat said that it has no work.
    pub(crate) idle: Duration,
    /// The time that a worker may go without reading any of the parameters that it is sent.
    pub(crate) download: Duration,
}

impl Timeouts {
    pub(crate) fn new(config: &WorkersConfig) -> Self {
        let heartbeat = config.heartbeat_timeout;
        let idle = heartbeat.max(IDLE_HEARTBEAT_INTERVAL * HEARTBEATS_MISSED);
        Self { heartbeat, idle, download: config.transfers.timeout }
    }
}

/// Returns the time between two heartbeats of a worker, of which some may be missed within `timeout`.
pub(crate) fn interval_ms(timeout: Duration) -> u32 {
    (timeout / HEARTBEATS_MISSED).as_millis().max(1) as u32
}
