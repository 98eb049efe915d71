//! Everything a run needs, already validated.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use ata_learn::{Aggregate, DataFile, Dataset, LearningRate, Metadata, Model, OpenDevice, Optimizer};
use ata_record::Listeners;
use ata_scheduler::{EngineConfig, Policy, WorkerStatistics};
use ata_wire::limits::{CHUNK_TIMEOUT, HEARTBEATS_MISSED, IDLE_HEARTBEAT_INTERVAL};
use ata_wire::{DataSpec, RunSpec, Security, SpanLinks};
use tokio::sync::Semaphore;

use crate::checkpoint::{Cadence, Checkpoint, FolderStore, Retention, Store};
use crate::send_file::TrainingFile;
use crate::session::Patience;

/// A run's settings.
pub struct CoordinatorConfig {
    /// The run's name.
    pub run_id: String,
    /// Budget, iterations, seed and the like.
    pub engine: EngineConfig,
    /// Chooses the allocations.
    pub policy: Box<dyn Policy>,
    /// The policy, as `--policy` takes it.
    pub policy_specification: String,
    /// The model's specification, which is sent to the workers.
    pub model_specification: String,
    /// The model that it specifies.
    pub model: Arc<dyn Model>,
    /// Makes one gradient of those of an iteration.
    pub aggregate: Aggregate,
    /// Turns gradients into steps.
    pub optimizer: Optimizer,
    /// The learning rate of each iteration.
    pub learning_rate: LearningRate,
    /// Samples per task.
    pub task_batch: u32,
    /// The data that gradients are computed on.
    pub training_data: TrainingData,
    /// The data that the final parameters are evaluated on.
    pub test_data: Arc<dyn Dataset>,
    /// The device for optimizer steps and the evaluation.
    pub device: OpenDevice,
    /// Iterations between two evaluations on the way; `None` for only that of the final parameters.
    pub eval_every: Option<u64>,
    /// Where the run begins.
    pub start: Start,
    /// When and where the run is saved.
    pub checkpoints: CheckpointConfig,
    /// What the run's models carry besides their tensors.
    pub model_metadata: Metadata,
    /// The run's settings, as in `config.toml`, for its checkpoints.
    pub settings: String,
    /// What an earlier run learned about the workers, by name.
    pub warm_start: BTreeMap<String, WorkerStatistics>,
    /// A worker that is not heard from for this long is lost; one that had no work is given 10 s at least.
    pub heartbeat_timeout: Duration,
    /// What transfers may cost.
    pub transfers: TransferLimits,
    /// The existing folder for `events.jsonl` and `metrics.csv`.
    pub run_folder: PathBuf,
    /// Who hears of the run's events.
    pub listeners: Listeners,
    /// What whoever connects must prove.
    pub security: Arc<Security>,
    /// How spans of an iteration become children of one another, if anything keeps them.
    pub span_links: SpanLinks,
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
    /// Three quarters of the memory at most, which only a hostile cluster comes near: the rest is for the optimizer and the page
    /// cache.
    fn default() -> Self {
        Self { memory_bytes: ata_wire::memory_bytes() / 4, timeout: CHUNK_TIMEOUT }
    }
}

/// Gradients that may arrive at the same time, whatever the memory. A worker that is alone gets half of the room: one of its
/// gradients is checked while the next one arrives. They take as much memory as [`LEAST_VERSIONS`] of the parameters.
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

/// Where a run begins.
#[derive(Debug)]
pub enum Start {
    /// With random parameters.
    Random,
    /// With these parameters, in flat order.
    Parameters(Vec<f32>),
    /// Where a run stopped. Its folder holds its journal, or none.
    Checkpoint(Box<Checkpoint>),
}

/// When and where a run is saved.
pub struct CheckpointConfig {
    /// When.
    pub cadence: Cadence,
    /// Which ones are kept.
    pub retention: Retention,
    /// Where.
    pub store: Box<dyn Store>,
}

impl CheckpointConfig {
    /// No checkpoints.
    pub fn never() -> Self {
        let retention = Retention { newest: 1, every: None };
        Self { cadence: Cadence::Never, retention, store: Box::new(FolderStore::new("")) }
    }
}

/// The data that gradients are computed on.
#[derive(Debug)]
pub enum TrainingData {
    /// Generated from a seed.
    Generated {
        /// The seed.
        seed: u64,
    },
    /// A file, which is sent to the workers that lack it.
    File(DataFile),
}

impl TrainingData {
    /// A file, to be sent.
    pub(crate) fn file(&self) -> Option<Arc<TrainingFile>> {
        match self {
            Self::Generated { .. } => None,
            Self::File(file) => Some(Arc::new(TrainingFile::new(file.clone()))),
        }
    }

    /// Tells data of different content apart.
    pub fn identity(&self) -> String {
        match self {
            Self::Generated { seed } => format!("synthetic, seed {seed}"),
            Self::File(file) => format!("sha256 {}", ata_learn::hex(&file.sha256)),
        }
    }
}

impl CoordinatorConfig {
    /// How long workers may be silent.
    pub(crate) fn patience(&self) -> Patience {
        let heartbeat = self.heartbeat_timeout;
        let idle = heartbeat.max(IDLE_HEARTBEAT_INTERVAL * HEARTBEATS_MISSED);
        Patience { heartbeat, idle, download: self.transfers.timeout }
    }

    /// What workers are told about the run.
    pub(crate) fn run_spec(&self) -> RunSpec {
        RunSpec {
            model: self.model_specification.clone(),
            parameters: self.model.parameter_count() as u64,
            seed: self.engine.seed,
            budget: self.engine.budget,
            task_batch: self.task_batch,
            data: match &self.training_data {
                TrainingData::Generated { seed } => DataSpec::Generated { seed: *seed },
                TrainingData::File(file) => DataSpec::File { sha256: file.sha256, bytes: file.bytes },
            },
        }
    }
}
