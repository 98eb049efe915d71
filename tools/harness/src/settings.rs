//! What a cluster runs, and how its workers behave.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::path::PathBuf;
use std::time::Duration;

use ata_coordinator::TransferLimits;
use ata_learn::ModelResolver;
use ata_types::{ExchangeChoice, WireFormat};

use crate::toy::toy;

/// What a cluster runs.
#[derive(Clone, Debug)]
pub struct Settings {
    /// The policy, as `--policy` takes it.
    pub policy: &'static str,
    /// The model, as `--model` takes it; see [`toy`].
    pub model: &'static str,
    /// The coordinator's models.
    pub models: ModelResolver,
    /// The file with the training and test data; generated if there is none.
    pub data: Option<PathBuf>,
    /// Samples per task.
    pub task_batch: u32,
    /// Whether bad samples are left out.
    pub skip_bad_samples: bool,
    /// B.
    pub budget: u64,
    /// Iterations.
    pub iterations: u64,
    /// Workers to wait for.
    pub min_workers: usize,
    /// Seconds after which a worker that never answered counts as hung.
    pub lease_timeout_s: f64,
    /// Seconds of the first rest of a worker that failed.
    pub rest_s: f64,
    /// Failures in a row that expel a worker.
    pub expel_after: u32,
    /// Seconds for which nothing may succeed before a run is given up.
    pub outage_s: f64,
    /// Share of leases that two workers compute.
    pub verify: f64,
    /// How vectors are sent.
    pub format: WireFormat,
    /// Where the coordinator listens.
    pub listen: IpAddr,
    /// How workers exchange vectors.
    pub exchange: ExchangeChoice,
    /// Hosts at which workers may tell others to reach them.
    pub peer_hosts: &'static [&'static str],
    /// Share of tasks allocated beyond the budget.
    pub overcommit: f64,
    /// Time after which a silent worker is lost.
    pub heartbeat_timeout: Duration,
    /// What transfers may cost.
    pub transfers: TransferLimits,
    /// Iterations between two checkpoints; none are written if it is not given.
    pub checkpoint_every: Option<u64>,
    /// Seconds between two checkpoints, in place of iterations.
    pub checkpoint_every_s: Option<f64>,
    /// Whether the coordinator evaluates parameters itself.
    pub evaluates: bool,
    /// Whether workers do.
    pub workers_evaluate: bool,
    /// Iterations between two evaluations.
    pub evaluate_every: Option<u64>,
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
            iterations: 20,
            min_workers: 1,
            lease_timeout_s: 30.0,
            rest_s: 0.1,
            expel_after: 8,
            // As the program has it.
            outage_s: 120.0,
            verify: 0.0,
            format: WireFormat::F32Exact,
            listen: Ipv4Addr::LOCALHOST.into(),
            exchange: ExchangeChoice::default(),
            peer_hosts: &[],
            overcommit: 0.0,
            // Far longer than a busy machine delays a thread.
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

/// How a worker behaves.
#[derive(Clone, Debug)]
pub struct WorkerSettings {
    /// Its fixed name.
    pub name: String,
    /// The address to connect to, if not the coordinator's own.
    pub through: Option<SocketAddr>,
    /// The models that compute its gradients.
    pub models: ModelResolver,
    /// How long each task takes.
    pub task_time: Duration,
    /// Whether it computes a lease as one batch.
    pub fuses: bool,
    /// Its own copy of the training data.
    pub data: Option<PathBuf>,
    /// Bytes of shards that its cache may hold.
    pub cache_bytes: u64,
    /// How long it tries to reach a coordinator.
    pub retry_for: Duration,
    /// Where it listens for others.
    pub peer_listen: SocketAddr,
    /// The host at which others are told to reach it, if it is not the one that the coordinator sees.
    pub peer_host: Option<&'static str>,
}

impl WorkerSettings {
    /// An honest worker.
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
        }
    }
}
