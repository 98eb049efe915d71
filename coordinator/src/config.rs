//! Everything a run needs, already validated.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use ata_data::{DataError, DataFile, ShardIndex};
use ata_learn::{Dataset, Model, OpenDevice};
use ata_net::Security;
use ata_record::{Labels, Listeners};
use ata_scheduler::{EngineConfig, Policy, WorkerStatistics};
use ata_sums::{LearningRate, Metadata, Optimizer};
use ata_types::{ExchangeChoice, WireFormat};
use ata_wire::limits::{CHUNK_TIMEOUT, HEARTBEATS_MISSED, IDLE_HEARTBEAT_INTERVAL};
use ata_wire::{DataSpec, RunSpec};
use tokio::sync::Semaphore;

use crate::checkpoint::{Cadence, Checkpoint, FolderStore, Retention, Store};

/// A run's settings, grouped by the part of the coordinator that uses them.
pub struct CoordinatorConfig {
    /// The run's name and records.
    pub run: RunConfig,
    /// Budget, iterations, seed and other settings of the engine.
    pub engine: EngineConfig,
    /// What chooses the allocations.
    pub policy: PolicyConfig,
    /// What the tasks are.
    pub problem: ProblemConfig,
    /// How gradients become parameters.
    pub training: TrainingConfig,
    /// When and on which data parameters are evaluated.
    pub evaluation: EvaluationConfig,
    /// When and where the run is saved.
    pub checkpoints: CheckpointConfig,
    /// What is expected of workers, and known about them.
    pub workers: WorkersConfig,
    /// What everyone who connects must prove.
    pub security: Arc<Security>,
}

/// The run's name and records.
#[derive(Default)]
pub struct RunConfig {
    /// The run's name.
    pub id: String,
    /// Its user's name and tags for it.
    pub labels: Labels,
    /// The existing folder for `events.jsonl`, `metrics.csv` and the models.
    pub folder: PathBuf,
    /// The run's settings, as in `config.toml`, for its checkpoints.
    pub settings: String,
    /// The subscribers of the run's events.
    pub listeners: Listeners,
}

/// The policy that chooses the allocations.
pub struct PolicyConfig {
    /// The policy.
    pub policy: Box<dyn Policy>,
    /// Its specification, as `--policy` takes it.
    pub specification: String,
}

/// The problem whose gradients workers compute.
pub struct ProblemConfig {
    /// The model.
    pub model: Arc<dyn Model>,
    /// Its specification, which is sent to the workers.
    pub specification: String,
    /// Samples per task.
    pub task_batch: u32,
    /// Whether samples without a finite loss or gradient are left out of the mean of their task.
    pub skip_bad_samples: bool,
    /// The data that gradients are computed on.
    pub data: SplitData,
}

/// How gradients become parameters.
pub struct TrainingConfig {
    /// The state that the run begins in.
    pub start: Start,
    /// Turns gradients into steps.
    pub optimizer: Optimizer,
    /// How vectors are represented on the wire.
    pub format: WireFormat,
    /// The learning rate of each iteration.
    pub learning_rate: LearningRate,
}

/// When, on which data and by whom parameters are evaluated.
pub struct EvaluationConfig {
    /// The test data, as workers get them.
    pub source: SplitData,
    /// What the coordinator needs to evaluate parameters itself, if it may.
    pub own: Option<OwnEvaluation>,
    /// Whether workers evaluate them, those without tasks first.
    pub by_workers: bool,
    /// Iterations between two evaluations; `None` to evaluate only the final parameters.
    pub every: Option<u64>,
}

/// What the coordinator needs to evaluate parameters itself.
pub struct OwnEvaluation {
    /// The test data.
    pub data: Arc<dyn Dataset>,
    /// The device to compute on.
    pub device: OpenDevice,
}

/// What is expected of workers, and known about them.
pub struct WorkersConfig {
    /// A worker that is not heard from for this long is lost; a worker without work is given at least 10 s.
    pub heartbeat_timeout: Duration,
    /// What transfers may cost.
    pub transfers: TransferLimits,
    /// How they exchange vectors.
    pub exchange: ExchangeChoice,
    /// Hosts at which they may tell others to reach them, other than those that they connect from.
    pub peer_hosts: Vec<String>,
    /// What an earlier run learned about the workers, by name.
    pub warm_start: BTreeMap<String, WorkerStatistics>,
}

/// What transfers to and from all workers together may cost the coordinator.
#[derive(Clone, Copy, Debug)]
pub struct TransferLimits {
    /// Memory for gradients that are being received, as much again for parameters that are being sent, and as much for what
    /// connections may send ahead.
    pub memory_bytes: u64,
    /// Time in which a worker must take some of what it is sent.
    pub timeout: Duration,
}

impl Default for TransferLimits {
    /// At most three quarters of the memory, which only a hostile cluster comes near. The optimizer and the page cache use the
    /// rest.
    fn default() -> Self {
        Self { memory_bytes: ata_net::memory_bytes() / 4, timeout: CHUNK_TIMEOUT }
    }
}

/// Gradients that may arrive at the same time, whatever the memory. A lone worker gets half of this room, so that one of its
/// gradients is checked while the next one arrives. Together they take as much memory as [`LEAST_VERSIONS`] of the parameters.
const LEAST_UPLOADS: u64 = 4;

/// Versions of the parameters that may be in memory, whatever its size: the current and the next one, one that is being
/// evaluated, and one for the slowest reader.
const LEAST_VERSIONS: u64 = 4;

impl TransferLimits {
    /// How many gradients may arrive at the same time.
    pub(crate) fn uploads(&self, parameters: u64) -> usize {
        self.tensors(parameters).clamp(LEAST_UPLOADS, Semaphore::MAX_PERMITS as u64) as usize
    }

    /// How many versions of the parameters may be in memory.
    pub(crate) fn versions(&self, parameters: u64) -> usize {
        self.tensors(parameters).max(LEAST_VERSIONS) as usize
    }

    fn tensors(&self, parameters: u64) -> u64 {
        self.memory_bytes / (4 * parameters.max(1))
    }
}

/// The state that a run begins in.
#[derive(Debug)]
pub enum Start {
    /// Random parameters.
    Random,
    /// These parameters, in flat order.
    Parameters(Vec<f32>),
    /// The state in which the run stopped. Its folder holds its journal, or none.
    Checkpoint(Box<Checkpoint>),
}

/// When and where a run is saved.
pub struct CheckpointConfig {
    /// When a checkpoint is due.
    pub cadence: Cadence,
    /// Which checkpoints are kept.
    pub retention: Retention,
    /// Where they are kept.
    pub store: Box<dyn Store>,
    /// What the run's models carry in addition to their tensors.
    pub model_metadata: Metadata,
}

impl CheckpointConfig {
    /// No checkpoints.
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
    /// Generated from a seed.
    Generated {
        /// The seed.
        seed: u64,
    },
    /// A file, which is sent to the workers that lack it.
    File(DataFile),
    /// A file of images in shards, of which each worker is sent those that it needs.
    Shards {
        /// The index of the shards, which identifies all of the data.
        index: DataFile,
        /// The shards.
        shards: Vec<DataFile>,
    },
    /// A file of images in shards, which workers fetch from an object store.
    Objects {
        /// The index of the shards, which identifies all of the data.
        index: DataFile,
        /// The URL of the folder with the packed file.
        url: String,
    },
}

impl SplitData {
    /// A file or an index of shards, next to which the packed file lies.
    pub fn of_file(path: &Path) -> Result<Self, DataError> {
        let file = DataFile::identify(path)?;
        if !ShardIndex::is_index(path)? {
            return Ok(Self::File(file));
        }
        let shards = DataFile::shards(&ShardIndex::read(path)?, &path.with_extension("packed"))?;
        Ok(Self::Shards { index: file, shards })
    }

    /// An index of shards, whose packed file is in an object store.
    pub fn of_objects(index: &Path, url: String) -> Result<Self, DataError> {
        Ok(Self::Objects { index: DataFile::identify(index)?, url })
    }

    /// Identifies the content of the data.
    pub fn identity(&self) -> String {
        match self {
            Self::Generated { seed } => format!("synthetic, seed {seed}"),
            Self::File(file) | Self::Shards { index: file, .. } | Self::Objects { index: file, .. } => {
                format!("sha256 {}", ata_data::hex(&file.sha256))
            }
        }
    }

    /// The files that workers may be sent.
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
    /// The description of the run that workers get.
    pub(crate) fn run_spec(&self) -> RunSpec {
        let problem = &self.problem;
        RunSpec {
            model: problem.specification.clone(),
            parameters: problem.model.parameter_count() as u64,
            seed: self.engine.seed,
            budget: self.engine.budget,
            task_batch: problem.task_batch,
            skip_bad_samples: problem.skip_bad_samples,
            data: problem.data.spec(),
            test_data: self.evaluation.source.spec(),
            format: self.training.format,
        }
    }
}

/// How long workers may be silent.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Timeouts {
    /// The timeout of a worker that has work.
    pub(crate) heartbeat: Duration,
    /// The timeout of a worker whose last heartbeat said that it has none.
    pub(crate) idle: Duration,
    /// How long a worker may be sent parameters without taking any of them.
    pub(crate) download: Duration,
}

impl Timeouts {
    pub(crate) fn new(config: &WorkersConfig) -> Self {
        let heartbeat = config.heartbeat_timeout;
        let idle = heartbeat.max(IDLE_HEARTBEAT_INTERVAL * HEARTBEATS_MISSED);
        Self { heartbeat, idle, download: config.transfers.timeout }
    }

    /// Time between two heartbeats of a worker that has work.
    pub(crate) fn heartbeat_interval_ms(&self) -> u32 {
        interval_ms(self.heartbeat)
    }

    /// Time between two heartbeats of a worker that has none.
    pub(crate) fn idle_heartbeat_interval_ms(&self) -> u32 {
        interval_ms(self.idle)
    }
}

fn interval_ms(timeout: Duration) -> u32 {
    (timeout / HEARTBEATS_MISSED).as_millis().max(1) as u32
}
