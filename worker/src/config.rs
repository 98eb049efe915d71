//! A worker's settings.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use ata_data::FolderOptions;
use ata_learn::{ModelResolver, OpenDevice};
use ata_net::Endpoint;
use ata_types::{Iteration, WorkerId};
use ata_wire::WorkerName;

use crate::WorkerError;

/// The emulated slowness of one worker.
pub struct TaskTime {
    /// Whether the emulated device computes a lease as one batch; see [`WorkerConfig::fuse`].
    pub fuses: bool,
    /// Maps an iteration, a number of tasks, and the time that their computation as one batch took, to the emulated time.
    pub of_batch: Box<dyn FnMut(Iteration, u64, Duration) -> Duration + Send>,
}

/// Makes the emulated slowness of a worker from its number and the run's seed. An error says why there is none for this number.
pub type EmulatedTimes = Arc<dyn Fn(WorkerId, u64) -> Result<TaskTime, String> + Send + Sync>;

/// Looks up the coordinator's address, or returns `None` if it cannot.
pub type Relocate = Arc<dyn Fn() -> Option<Endpoint> + Send + Sync>;

/// The address at which a worker is reached by others, to exchange vectors in shards.
#[derive(Clone, Debug)]
pub struct PeerConfig {
    /// The address to listen on. Port 0 selects a free port.
    pub listen: SocketAddr,
    /// The host that is announced to other workers. By default, this is the address that the coordinator sees.
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
    /// The worker number to request.
    pub number: Option<WorkerId>,
    /// The device to compute on.
    pub device: OpenDevice,
    /// Whether to compute a lease as one batch, which is faster on a GPU but not bit-identical.
    pub fuse: bool,
    /// Finds the model that the coordinator names.
    pub models: ModelResolver,
    /// The path of the training data, as `--data` takes it for the model, if the coordinator need not send the data.
    pub data: Option<PathBuf>,
    /// The options if that is a folder of images that are not packed.
    pub folder_options: FolderOptions,
    /// The folder for data from the coordinator.
    pub cache: PathBuf,
    /// The size in bytes of the shards that the folder may hold, for all workers that use it. Shards that are needed next are kept in any
    /// case.
    pub cache_bytes: u64,
    /// The address at which other workers reach this one, if they may.
    pub peers: Option<PeerConfig>,
    /// The time after the last contact for which the worker tries to reach a coordinator. If it is not set, this is [`FIRST_CONTACT`] until
    /// a coordinator has accepted the worker, and unlimited from then on.
    pub retry_for: Option<Duration>,
    /// The time that the worker has to deliver what it has begun when it is asked to stop.
    pub drain: Duration,
    /// The emulated slowness.
    pub task_times: Option<EmulatedTimes>,
    /// A random number that distinguishes this process from others with the same name.
    pub instance: u64,
}

/// The default time for which the worker tries to reach a coordinator that has never accepted it: enough to start both at the same time,
/// and short enough that a wrong address is noticed.
pub const FIRST_CONTACT: Duration = Duration::from_secs(30);

/// The number of names that are tried on one machine, which is more than the number of workers that can share it.
const MAX_NAMES: u32 = 1000;

impl WorkerConfig {
    /// Changes to the next name: `host-2` after `host`, then `host-3` and so on.
    pub(crate) fn next_name(&mut self) -> Result<(), WorkerError> {
        let text = self.name.to_string();
        let numbered = text.rsplit_once('-').and_then(|(stem, number)| Some((stem, number.parse::<u32>().ok()?)));
        let (stem, number) = numbered.unwrap_or((&text, 1));
        let next = (number < MAX_NAMES).then(|| format!("{stem}-{}", number + 1).parse().ok()).flatten();
        self.name = next.ok_or_else(|| WorkerError::NameTaken(self.name.clone()))?;
        Ok(())
    }
}
