//! Every limit of the messages and transfers, with the reason for its value.

use std::time::Duration;

use ata_net::limits::{ANSWER_TIMEOUT, KEEPALIVE_TIMEOUT};
pub use ata_types::MAX_SHARDS;
use ata_types::{CHUNK_VALUES, MAX_LEASE_TASKS, MAX_SHIFTED_BLOCKS};

/// Bytes per chunk of a file. Its few bytes of framing cost nothing, and generated code, which reserves memory for a whole chunk, stays
/// well below the 4 MiB that every gRPC implementation allows.
pub const FILE_CHUNK_BYTES: usize = 1 << 20;

/// Bytes of a chunk of a vector: four for each value, and two for the header of each block of 256 values, of which the widest encoding
/// needs one.
pub const MAX_CHUNK_BYTES: usize = 4 * CHUNK_VALUES + 2 * CHUNK_VALUES / 256;

/// Bytes per gRPC message. The largest is the header of a gradient with the times and losses of the largest lease and the units of
/// [`MAX_TENSORS`], which takes 1.6 MB. A peer that announces a message to generated code makes it reserve up to this much memory.
pub const MESSAGE_BYTES: usize = 2 << 20;

/// Bytes per message of a worker on its control stream, and per request but a gradient: a Progress of [`MAX_BATCH`] leases and
/// [`MAX_BATCH_ENTRIES`] times takes 1.4 MB. Generated code reserves as much memory as a peer announces.
pub const REQUEST_BYTES: usize = 3 << 19;

/// Parameters of a model: 4 GiB of f32, of which a large head node can hold the few copies that an optimizer needs.
pub const MAX_PARAMETERS: u64 = 1 << 30;

/// Chunks of a vector of [`MAX_PARAMETERS`] values.
pub const MAX_CHUNKS: u64 = MAX_PARAMETERS / CHUNK_VALUES as u64;

/// Tensors of a model, each of which has a unit. Models of a thousand layers have a few thousand tensors.
pub const MAX_TENSORS: usize = 1 << 16;

/// Bytes of the shifts of an iteration's units, four bits per block: 512 KiB, which are a fourth of [`MESSAGE_BYTES`] and fit into a
/// message with the exponents of [`MAX_TENSORS`]. Larger vectors have larger blocks.
pub const MAX_SHIFT_BYTES: usize = MAX_SHIFTED_BLOCKS / 2;

/// B, tasks per iteration: beyond this, a task would be less than a millisecond of the largest cluster's work.
pub const MAX_BUDGET: u64 = 1 << 24;

/// Samples per task: 2^20 images are 12 GiB of f32, more than a device holds.
pub const MAX_TASK_BATCH: u32 = 1 << 20;

/// Leases per message, which take at most 350 kB. The tasks of a large iteration still fit in a few messages.
pub const MAX_BATCH: usize = 8192;

/// Times or ranges of tasks in all items of a message together: as many as the times of the largest lease, which cannot be split.
pub const MAX_BATCH_ENTRIES: usize = MAX_LEASE_TASKS as usize;

/// Ranges of tasks that one vector is the sum of, which fill a message. Two varints each, they take 0.5 MB for tasks below
/// [`MAX_BUDGET`], and 1.4 MB at most. The tasks of a larger collection are several vectors.
pub const MAX_RANGES: usize = MAX_BATCH_ENTRIES;

/// Bytes of a data file: the training images of ImageNet, packed at 224 × 224 pixels, have 193 GB. Files are sent and kept in chunks, so
/// that their size costs no memory, only time and disk.
pub const MAX_DATA_BYTES: u64 = 1 << 40;

/// Batches in one message that asks for their measurement: more than a worker holds at a time.
pub const MAX_EVALUATED_BATCHES: usize = 16;

/// Classes of a measurement. Their two counts take five bytes at most, which together fit in [`REQUEST_BYTES`].
pub const MAX_CLASSES: usize = 1 << 17;

/// Samples of a batch of an evaluation; as many as of a task.
pub const MAX_EVALUATION_BATCH: u32 = MAX_TASK_BATCH;

/// Characters of a worker's name: a host name has at most 63.
pub const MAX_NAME_CHARS: usize = 64;

/// Bytes of a human-readable text in a message.
pub const MAX_TEXT_BYTES: usize = 1024;

/// Bytes per second below which a worker that is sending gradients gives way to those that wait for room: slower than the
/// slowest link that is promised to work, which carries 100 kB/s, all of its gradients together.
pub const LEAST_UPLOAD_BYTES_PER_S: u64 = 64 << 10;

/// A worker gives way only below this share of the mean rate of all workers that are sending. If the link of the coordinator is
/// full, all of them are slow, and the failure of one helps none. The rates of connections that share a link differ by less.
pub const LEAST_UPLOAD_SHARE: f64 = 0.25;

/// Time over which the upload guard measures that rate: longer than TCP takes to recover from losses on a poor link, and longer than
/// a short stop of the coordinator.
pub const UPLOAD_GUARD_WINDOW: Duration = Duration::from_secs(20);

/// Control messages that may wait for one worker before it counts as too slow to serve. Leases are sent in batches, so
/// even an iteration of the largest budget takes at most 2 · [`MAX_BUDGET`]/[`MAX_BATCH`] of them.
pub const MAX_QUEUED_MESSAGES: usize = 4096;

/// Time a chunk may take before its transfer is abandoned. A link of 100 kB/s needs 11 s for a chunk of a file, and 6 s for one of each
/// of [`MAX_UPLOADS`](ata_net::limits::MAX_UPLOADS) gradients that share it; the rest is for a receiver that stops for a while. Keepalive finds dead peers sooner.
pub const CHUNK_TIMEOUT: Duration = KEEPALIVE_TIMEOUT;

/// Time a new upload has to send its header, if no other data are on the way on its connection: more than a round trip
/// anywhere. Until then its sender is unknown.
pub const HEADER_TIMEOUT: Duration = Duration::from_secs(5);

/// Data files sent at the same time, to all workers together: enough for any network, and each has 3 MiB of chunks in
/// memory. The others wait.
pub const MAX_DATA_TRANSFERS: usize = 16;

/// Bytes that a probe may carry in each direction: on a link of 1 Gbit/s they take 0.13 s, which is long enough to measure.
pub const MAX_PROBE_BYTES: u64 = 16 << 20;

/// Bytes of padding in a message of a probe to the coordinator: a few packets, which take little memory while they are read.
pub const PROBE_REQUEST_PADDING: usize = 4000;

/// The least that a message of a probe counts, so that empty ones reach the limit, too.
pub const LEAST_PROBE_REQUEST: usize = 1024;

/// Bytes of padding in a message of a probe's answer: as much may wait for a peer that does not read.
pub const PROBE_ANSWER_PADDING: usize = 64 << 10;

/// Probes at the same time, of all peers together. They take no more of the coordinator's link than two more workers.
pub const MAX_PROBES: usize = 2;

/// Time that a probe's answer may take. Its requests have [`ANSWER_TIMEOUT`].
pub const PROBE_TIMEOUT: Duration = ANSWER_TIMEOUT;

/// Time between the heartbeats of a worker without work, unless those of a worker with work are rarer still. 10,000 such workers
/// send 4,000 messages a second.
pub const IDLE_HEARTBEAT_INTERVAL: Duration = Duration::from_millis(2500);

/// A worker is lost after this many heartbeats that did not come.
pub const HEARTBEATS_MISSED: u32 = 4;

/// The longest time that anything may take or wait. It is 30 years, which stand for "forever" and which `Instant` can add.
pub const MAX_TIME: Duration = Duration::from_secs(1_000_000_000);

/// Longest time, in milliseconds, in which a chunk of another member of an exchange has to come: as long as a worker may take nothing of
/// what the coordinator sends it.
pub const MAX_CHUNK_TIMEOUT_MS: u32 = 60_000;
