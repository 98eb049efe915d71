//! Benchmarks everything in an iteration except gradient computation: a complete coordinator and its workers run a
//! model whose gradients cost nothing.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use ata::Failure;
use ata_coordinator::{
    CheckpointConfig, CoordinatorConfig, EvaluationConfig, OwnEvaluation, PolicyConfig, ProblemConfig, RunConfig,
    SplitData, Start, TrainingSetup, WorkersConfig,
};
use ata_data::{DataError, DataSource, FolderOptions, Split, Tasks};
use ata_learn::{
    Dataset, DeviceChoice, EvaluationBatches, Evaluator, Learner, LearnerError, Measurement, Model, ModelError,
    OpenDevice, TaskGradient, builtin_model,
};
use ata_policies::build_policy;
use ata_scheduler::{EngineConfig, PolicyContext};
use ata_sums::{LearningRate, Metadata, Optimizer, ParameterTable};
use ata_types::{Iteration, WireFormat, WorkerId};
use ata_wire::duration;
use ata_worker::WorkerConfig;
use tokio::net::TcpListener;
use tokio::sync::watch;
use tokio::task::JoinSet;

use crate::bench::protection::Protection;
use crate::bench::{Figure, unwritable};

const ITERATIONS: u64 = 200;

/// The number of parameters of the built-in model.
const PARAMETERS: usize = 158_684;

pub(crate) async fn measure() -> Result<Vec<Figure>, Failure> {
    let mut figures = Vec::new();
    for workers in [4, 64] {
        figures.push(Box::pin(figure(workers, &Protection::none())).await?);
        figures.push(Box::pin(figure(workers, &Protection::tls()?)).await?);
    }
    Ok(figures)
}

/// Measures iterations with one task per worker.
async fn figure(workers: u32, protection: &Protection) -> Result<Figure, Failure> {
    let per_iteration = Box::pin(run(workers, protection)).await?;
    let bytes = 2 * workers as usize * PARAMETERS * 4;
    let copy = tokio::task::block_in_place(|| memory_copy(bytes));
    let name = format!("coordination of an iteration through {}, {workers} workers", protection.name());
    Ok(Figure::new(name, per_iteration, "memory copy of what is transferred", copy))
}

fn memory_copy(bytes: usize) -> Duration {
    let (from, mut to) = (vec![1_u8; bytes], vec![0_u8; bytes]);
    let (copy, _) =
        crate::bench::pair(21, || std::hint::black_box(&mut to).copy_from_slice(std::hint::black_box(&from)), || ());
    copy
}

async fn run(workers: u32, protection: &Protection) -> Result<Duration, Failure> {
    let folder = std::env::temp_dir().join(format!("ata-bench-{}-{workers}", std::process::id()));
    std::fs::create_dir_all(&folder).map_err(unwritable)?;
    let listener = TcpListener::bind("127.0.0.1:0").await.map_err(Failure::internal)?;
    let address = listener.local_addr().map_err(Failure::internal)?;
    let config = coordinator(workers, protection, &folder)?;
    let mut working = JoinSet::new();
    for number in 1..=workers {
        let config = WorkerConfig {
            relocate: None,
            endpoint: protection.endpoint(address)?,
            name: format!("worker-{number}").parse().map_err(Failure::internal)?,
            name_is_fixed: true,
            number: WorkerId::new(number),
            device: DeviceChoice::Cpu.open()?,
            fuse: false,
            models: free_model,
            data: None,
            folder_options: FolderOptions::default(),
            peers: None,
            cache: folder.clone(),
            cache_bytes: 0,
            retry_for: None,
            drain: Duration::ZERO,
            task_times: None,
            instance: number.into(),
        };
        working.spawn(ata_worker::run(config, std::future::pending()));
    }
    let state = watch::Sender::default();
    let report = Box::pin(ata_coordinator::run(config, listener, state, std::future::pending())).await;
    working.shutdown().await;
    std::fs::remove_dir_all(&folder).map_err(unwritable)?;
    Ok(duration(report?.state.runtime_s()) / ITERATIONS as u32)
}

/// Returns the configuration of a coordinator with one task per worker.
fn coordinator(workers: u32, protection: &Protection, folder: &Path) -> Result<CoordinatorConfig, Failure> {
    let model = free_model("cnn")?;
    Ok(CoordinatorConfig {
        run: RunConfig { id: "bench".into(), folder: folder.to_owned(), ..RunConfig::default() },
        engine: EngineConfig {
            budget: workers.into(),
            iterations: ITERATIONS,
            min_workers: workers as usize,
            seed: 1,
            ..EngineConfig::default()
        },
        policy: PolicyConfig { policy: build_policy("uta", &PolicyContext::default())?, specification: "uta".into() },
        evaluation: EvaluationConfig {
            source: SplitData::Generated { seed: 1 },
            own: Some(OwnEvaluation {
                data: model.open(&DataSource::Generated { seed: 1 }, Split::Test)?,
                device: DeviceChoice::Cpu.open()?,
            }),
            samples: None,
            by_workers: false,
            every: None,
        },
        problem: ProblemConfig {
            model,
            specification: "cnn".into(),
            task_batch: 16,
            skip_bad_samples: false,
            data: SplitData::Generated { seed: 1 },
            samples: None,
        },
        training: TrainingSetup {
            start: Start::Random,
            optimizer: Optimizer::default(),
            format: WireFormat::F32Exact,
            learning_rate: LearningRate::constant(1e-3),
            follows_shares: false,
            inner_steps: None,
        },
        checkpoints: CheckpointConfig::never(),
        workers: WorkersConfig { heartbeat_timeout: Duration::from_secs(30), ..WorkersConfig::default() },
        security: protection.security.clone(),
    })
}

/// The built-in model, with constant gradients and no evaluation.
struct FreeGradients(Arc<dyn Model>);

fn free_model(specification: &str) -> Result<Arc<dyn Model>, ModelError> {
    Ok(Arc::new(FreeGradients(builtin_model(specification)?)))
}

impl Model for FreeGradients {
    fn parameter_count(&self) -> usize {
        PARAMETERS
    }

    fn table(&self) -> ParameterTable {
        self.0.table()
    }

    fn initial_parameters(&self, seed: u64) -> Result<Vec<f32>, DataError> {
        self.0.initial_parameters(seed)
    }

    fn locate(&self, data: &Path, split: Split) -> Result<PathBuf, DataError> {
        self.0.locate(data, split)
    }

    fn open(&self, _source: &DataSource, _split: Split) -> Result<Arc<dyn Dataset>, DataError> {
        Ok(Arc::new(Constant))
    }

    fn class_names(&self) -> Vec<String> {
        self.0.class_names()
    }

    fn metadata(&self) -> Metadata {
        self.0.metadata()
    }
}

struct Constant;

impl Dataset for Constant {
    fn count(&self) -> u64 {
        1
    }

    fn learner(self: Arc<Self>, _device: &OpenDevice, _tasks: Tasks) -> Box<dyn Learner> {
        Box::new(Self)
    }

    fn evaluator(self: Arc<Self>, _device: &OpenDevice) -> Box<dyn Evaluator> {
        Box::new(Self)
    }
}

impl Learner for Constant {
    fn load(&mut self, _parameters: &[f32]) {}

    fn gradient(&mut self, _iteration: Iteration, _index: u64) -> Result<TaskGradient, LearnerError> {
        Ok(TaskGradient { gradient: vec![1e-3; PARAMETERS], loss: 1.0 })
    }
}

impl Evaluator for Constant {
    fn load(&mut self, _parameters: &[f32]) {}

    fn batches(&self) -> EvaluationBatches {
        EvaluationBatches { samples: 1, batch_samples: 1 }
    }

    fn measure(&mut self, _batch: u64) -> Result<Measurement, DataError> {
        Ok(Measurement::of_loss(1.0))
    }
}
