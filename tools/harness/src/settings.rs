//! The settings of a cluster, and of its workers.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::path::PathBuf;
use std::time::Duration;

use ata_coordinator::TransferLimits;
use ata_learn::ModelResolver;
use ata_scheduler::TaskChoice;
use ata_sums::{InnerSteps, LearningRate, Optimizer};
use ata_types::{ExchangeChoice, WireFormat};
use tokio_util::sync::CancellationToken;

use crate::toy::toy;

/// The settings of a cluster.
#[derive(Clone, Debug)]
pub struct Settings {
    /// The policy, as `--policy` takes it.
    pub policy: &'static str,
    /// The model, as `--model` takes it; see [`toy`].
    pub model: &'static str,
    /// The coordinator's models.
    pub models: ModelResolver,
    /// The file with the training and test data; `None` to generate them.
    pub data: Option<PathBuf>,
    /// The number of samples per task.
    pub task_batch: u32,
    /// Whether to leave out bad samples.
    pub skip_bad_samples: bool,
    /// The budget B: tasks per iteration.
    pub budget: u64,
    /// How the number of tasks of an iteration is chosen, if it is.
    pub choice: Option<TaskChoice>,
    /// The number of iterations.
    pub iterations: u64,
    /// How workers take inner steps, if they do. Their parameters are then averaged.
    pub inner_steps: Option<InnerSteps>,
    /// The number of workers to wait for.
    pub min_workers: usize,
    /// The time in seconds after which a worker that never reported counts as hung.
    pub lease_timeout_s: f64,
    /// The duration in seconds of the first rest of a worker that failed.
    pub rest_s: f64,
    /// The number of consecutive failures after which a worker is expelled.
    pub expel_after: u32,
    /// The time in seconds without any success after which a run is given up.
    pub outage_s: f64,
    /// The share of leases that two workers compute.
    pub verify: f64,
    /// The wire format of vectors.
    pub format: WireFormat,
    /// The address on which the coordinator listens.
    pub listen: IpAddr,
    /// How workers exchange vectors.
    pub exchange: ExchangeChoice,
    /// The hosts that workers may announce to their peers.
    pub peer_hosts: &'static [&'static str],
    /// The share of tasks that are allocated beyond the budget.
    pub overcommit: f64,
    /// The time after which a silent worker is lost.
    pub heartbeat_timeout: Duration,
    /// The memory and time that transfers may take.
    pub transfers: TransferLimits,
    /// The number of iterations between two checkpoints; `None` to write none.
    pub checkpoint_every: Option<u64>,
    /// The time in seconds between two checkpoints, instead of iterations.
    pub checkpoint_every_s: Option<f64>,
    /// Whether the coordinator evaluates parameters itself.
    pub evaluates: bool,
    /// Whether workers evaluate parameters.
    pub workers_evaluate: bool,
    /// The number of iterations between two evaluations.
    pub evaluate_every: Option<u64>,
}

impl Settings {
    /// Returns the optimizer of the coordinator, and its learning rate.
    pub fn optimizer(&self) -> (Optimizer, LearningRate) {
        match &self.inner_steps {
            Some(_) => (Optimizer::outer(0.0), LearningRate::constant(1.0)),
            None => (Optimizer::default(), LearningRate::constant(0.1)),
        }
    }
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            policy: "uta",
            model: "toy:64",
            models: toy,
            data: None,
            task_batch: 1,
            skip_bad_samples: false,
            budget: 12,
            choice: None,
            iterations: 20,
            inner_steps: None,
            min_workers: 1,
            lease_timeout_s: 30.0,
            rest_s: 0.1,
            expel_after: 8,
            // This is the default of the program.
            outage_s: 120.0,
            verify: 0.0,
            format: WireFormat::F32Exact,
            listen: Ipv4Addr::LOCALHOST.into(),
            exchange: ExchangeChoice::default(),
            peer_hosts: &[],
            overcommit: 0.0,
            // This is far longer than a busy machine delays a thread.
            heartbeat_timeout: Duration::from_secs(10),
            transfers: TransferLimits::default(),
            checkpoint_every: None,
            checkpoint_every_s: None,
            evaluates: true,
            workers_evaluate: true,
            evaluate_every: None,
        }
    }
}

/// The settings of a worker.
#[derive(Clone, Debug)]
pub struct WorkerSettings {
    /// The fixed name of the worker.
    pub name: String,
    /// The address to connect to, if not the coordinator's own.
    pub through: Option<SocketAddr>,
    /// The models that compute its gradients.
    pub models: ModelResolver,
    /// The time of each task.
    pub task_time: Duration,
    /// Whether the worker computes a lease as one batch.
    pub fuses: bool,
    /// The worker's own copy of the training data.
    pub data: Option<PathBuf>,
    /// The size in bytes of the shards that the cache may hold.
    pub cache_bytes: u64,
    /// The time for which the worker tries to reach a coordinator.
    pub retry_for: Duration,
    /// The address on which the worker listens for other workers.
    pub peer_listen: SocketAddr,
    /// The host that is announced to other workers, if it is not the one that the coordinator sees.
    pub peer_host: Option<&'static str>,
    /// Cancelled when the worker shall leave.
    pub leave: CancellationToken,
}

impl WorkerSettings {
    /// Returns the settings of an honest worker.
    pub fn new(name: impl Into<String>) -> Self {
        let (task_time, retry_for) = (Duration::ZERO, Duration::from_secs(2));
        let name = name.into();
        let peer_listen = (Ipv4Addr::LOCALHOST, 0).into();
        Self {
            name,
            through: None,
            models: toy,
            task_time,
            fuses: false,
            data: None,
            cache_bytes: u64::MAX,
            retry_for,
            peer_listen,
            peer_host: None,
            leave: CancellationToken::new(),
        }
    }
}
