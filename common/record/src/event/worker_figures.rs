//! What is measured of workers.

use ata_types::WorkerId;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// The measured speed of a worker's own link.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct WorkerLink {
    /// The worker.
    pub worker: WorkerId,
    /// Seconds that a gradient takes on this link.
    pub up_s: f64,
    /// The least rate at which it carries gradients, in bytes per second.
    pub bytes_per_s: f64,
}

/// What a worker's process used of its machine lately.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct WorkerResources {
    /// The worker.
    pub worker: WorkerId,
    /// The mean number of processor cores in use; absent if the worker does not know.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cpu_cores: Option<f64>,
    /// The resident memory, in bytes; absent if the worker does not know.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub memory_bytes: Option<u64>,
    /// The rate of bytes on its connections to the coordinator, both ways together.
    pub bytes_per_s: f64,
}
