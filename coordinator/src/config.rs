//! Everything a run needs, already validated.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use ata_learn::{Dataset, Model, OpenDevice, RecordFile};
use ata_scheduler::{EngineConfig, Policy, WorkerStatistics};
use ata_wire::{DataSpec, RunSpec};

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
    /// Adam's step size.
    pub learning_rate: f64,
    /// Samples per task.
    pub task_batch: u32,
    /// The data that gradients are computed on.
    pub training_data: TrainingData,
    /// The data that the final parameters are evaluated on.
    pub test_data: Dataset,
    /// The device for optimizer steps and the evaluation.
    pub device: OpenDevice,
    /// What an earlier run learned about the workers, by name.
    pub warm_start: BTreeMap<String, WorkerStatistics>,
    /// A worker not heard from for this long is lost.
    pub heartbeat_timeout: Duration,
    /// The existing folder for `events.jsonl` and `metrics.csv`.
    pub run_folder: PathBuf,
}

/// The data that gradients are computed on.
#[derive(Debug)]
pub enum TrainingData {
    /// Generated from a seed.
    Synthetic {
        /// The seed.
        seed: u64,
    },
    /// The training split of CIFAR-100.
    Cifar100(RecordFile),
}

impl CoordinatorConfig {
    /// What workers are told about the run.
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
