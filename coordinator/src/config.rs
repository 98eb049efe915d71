//! Everything a run needs, already checked.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use ata_learn::{Dataset, Model, OpenDevice, RecordFile};
use ata_scheduler::{EngineConfig, Policy, WorkerStatistics};
use ata_wire::{DataSpec, RunSpec};

/// A run's settings.
pub struct CoordinatorConfig {
    /// Names the run.
    pub run_id: String,
    /// Budget, iterations, seed and the like.
    pub engine: EngineConfig,
    /// Chooses the allocations.
    pub policy: Box<dyn Policy>,
    /// The same, as `--policy` takes it.
    pub policy_specification: String,
    /// The model as its specification names it to the workers.
    pub model_specification: String,
    /// The same model.
    pub model: Arc<dyn Model>,
    /// Adam's step size.
    pub learning_rate: f64,
    /// Samples per task.
    pub task_batch: u32,
    /// What gradients are computed on.
    pub training_data: TrainingData,
    /// What the end result is evaluated on.
    pub test_data: Dataset,
    /// Where optimizer steps and the evaluation are computed.
    pub device: OpenDevice,
    /// What an earlier run learned of the workers, by name.
    pub warm_start: BTreeMap<String, WorkerStatistics>,
    /// A worker not heard of for this long is lost.
    pub heartbeat_timeout: Duration,
    /// Where `events.jsonl` and `metrics.csv` go; the folder exists.
    pub run_folder: PathBuf,
}

/// What gradients are computed on.
#[derive(Debug)]
pub enum TrainingData {
    /// Made on the spot from a seed.
    Synthetic {
        /// The seed.
        seed: u64,
    },
    /// The training split of CIFAR-100.
    Cifar100(RecordFile),
}

impl CoordinatorConfig {
    /// What workers are told of the run.
    pub(crate) fn run_spec(&self) -> RunSpec {
        RunSpec {
            model: self.model_specification.clone(),
            parameters: self.model.parameter_count() as u64,
            seed: self.engine.seed,
            budget: self.engine.budget,
            task_batch: self.task_batch,
            data: match &self.training_data {
                TrainingData::Synthetic { seed } => DataSpec::Synthetic { seed: *seed },
                TrainingData::Cifar100(file) => DataSpec::Cifar100 {
                    train_sha256: file.sha256(),
                    train_bytes: u64::from(file.len()) * ata_learn::RECORD_BYTES as u64,
                },
            },
        }
    }
}
