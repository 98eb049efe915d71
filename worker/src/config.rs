//! A worker's settings.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use ata_learn::{ModelResolver, OpenDevice};
use ata_net::Endpoint;
use ata_types::{Iteration, WorkerId};
use ata_wire::WorkerName;

use crate::WorkerError;

/// Emulated slowness of one worker.
pub struct TaskTime {
    /// Whether the emulated device computes a lease as one batch; see [`WorkerConfig::fuse`].
    pub fuses: bool,
    /// Maps an iteration, a number of its tasks, and the time that their computation took as one batch, to the emulated time.
    pub of_batch: Box<dyn FnMut(Iteration, u64, Duration) -> Duration + Send>,
}

/// Makes the emulated slowness of a worker from its number and the run's seed; an error says why that number has none.
pub type TaskTimes = Arc<dyn Fn(WorkerId, u64) -> Result<TaskTime, String> + Send + Sync>;

/// Finds the coordinator's address, if it can.
pub type Relocate = Arc<dyn Fn() -> Option<Endpoint> + Send + Sync>;

/// Where other workers reach a worker, to exchange vectors in shards.
#[derive(Clone, Debug)]
pub struct PeerConfig {
    /// The address to listen at. Port 0 is any that is free.
    pub listen: SocketAddr,
    /// The host that they are told; without it they are told the address that the coordinator sees.
    pub host: Option<String>,
}

/// A worker's settings.
pub struct WorkerConfig {
    /// The coordinator's address.
    pub endpoint: Endpoint,
    /// Looks up the coordinator's current address before each attempt to reach it, since the coordinator may have moved.
    pub relocate: Option<Relocate>,
    /// The worker's name across sessions.
    pub name: WorkerName,
    /// Whether the user chose the name. If not, the worker tries another one when it is taken.
    pub name_is_fixed: bool,
    /// The number that it asks for.
    pub number: Option<WorkerId>,
    /// The device that it computes on.
    pub device: OpenDevice,
    /// Whether it computes a lease as one batch, which is faster on a GPU but not bit-identical.
    pub fuse: bool,
    /// Finds the model that the coordinator names.
    pub models: ModelResolver,
    /// The path of the training data, as `--data` takes it for the model, if the coordinator need not send the data.
    pub data: Option<PathBuf>,
    /// The folder for data from the coordinator.
    pub cache: PathBuf,
    /// Bytes of shards that the folder may hold, of all workers that use it; those that are needed next are kept in any case.
    pub cache_bytes: u64,
    /// Where other workers reach this one, if they may.
    pub peers: Option<PeerConfig>,
    /// How long to try to reach a coordinator, since the last contact.
    pub retry_for: Duration,
    /// Emulated slowness.
    pub task_times: Option<TaskTimes>,
    /// Random per process: distinguishes this process from another one of the same name.
    pub instance: u64,
}

/// Names that are tried on one machine, which is more than the workers that can share it.
const MAX_NAMES: u32 = 1000;

impl WorkerConfig {
    /// Changes to the next name: `host-2` after `host`, then `host-3` and so on.
    pub(crate) fn next_name(&mut self) -> Result<(), WorkerError> {
        if self.name_is_fixed {
            return Err(WorkerError::NameTaken(self.name.clone()));
        }
        let text = self.name.to_string();
        let (stem, number) = match text.rsplit_once('-') {
            Some((stem, number)) => match number.parse::<u32>() {
                Ok(number) => (stem, number),
                Err(_) => (text.as_str(), 1),
            },
            None => (text.as_str(), 1),
        };
        if number >= MAX_NAMES {
            return Err(WorkerError::NameTaken(self.name.clone()));
        }
        let next = format!("{stem}-{}", number + 1);
        self.name = next.parse().map_err(|_| WorkerError::NameTaken(self.name.clone()))?;
        Ok(())
    }
}
