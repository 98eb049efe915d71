//! Every limit of the protocol, and why it is that number.

use std::time::Duration;

/// Bytes per chunk: it is checked and copied while it is in a core's cache, and the other side is busy with the next one
/// meanwhile. Four times as much is a tenth slower, and lets a hostile peer make us reserve more.
pub const CHUNK_BYTES: usize = 1 << 18;

/// Bytes per gRPC message: room for a chunk, and for the times of the largest lease. A peer that announces a message makes
/// us reserve that much.
pub const MESSAGE_BYTES: usize = 1 << 20;

/// Parameters of a model: 1 GiB of f32, what the coordinator can hold a few of on an ordinary head node.
pub const MAX_PARAMETERS: u64 = 1 << 28;

/// B, tasks per iteration: beyond that a task would be less than a millisecond of the largest cluster's work.
pub const MAX_BUDGET: u64 = 1 << 24;

/// Samples per task: 2^20 images are 12 GiB of f32, more than a device holds.
pub const MAX_TASK_BATCH: u32 = 1 << 20;

/// Tasks per lease, at least as many as the scheduler gives. One time per task is reported, 512 KiB of them.
pub const MAX_LEASE_TASKS: u64 = 1 << 16;

/// Leases per message: 350 kB of them at most, and the tasks of a large iteration in a few messages.
pub const MAX_BATCH: usize = 8192;

/// Bytes of a data file: CIFAR-100's training split has 154 MB, and a label or two more should not be refused.
pub const MAX_DATA_BYTES: u64 = 1 << 32;

/// Characters of a worker's name: a host name has at most 63.
pub const MAX_NAME_CHARS: usize = 64;

/// Bytes of a text for people in a message.
pub const MAX_TEXT_BYTES: usize = 1024;

/// Workers in one run: the papers stop at 459, and each costs a connection and a few kilobytes.
pub const MAX_WORKERS: usize = 4096;

/// Connections per worker: one for control, one for bulk transfers.
pub const CONNECTIONS_PER_WORKER: usize = 2;

/// Open connections. Half of them is room for workers that are reconnecting.
pub const MAX_CONNECTIONS: usize = 2 * CONNECTIONS_PER_WORKER * MAX_WORKERS;

/// HTTP/2 streams per connection. A worker uses the control stream on one, and on the other one or two downloads and at most
/// [`MAX_UPLOADS`] uploads.
pub const MAX_STREAMS: u32 = 16;

/// Gradients a worker may be sending at the same time: enough to hide the latency of one behind the next.
pub const MAX_UPLOADS: usize = 4;

/// Control messages waiting for one worker before it counts as too slow to serve. Leases come in batches, so that even an
/// iteration of the largest budget is no more than [`MAX_BUDGET`]/[`MAX_BATCH`] of them twice over.
pub const MAX_QUEUED_MESSAGES: usize = 4096;

/// HTTP/2 frames as large as a chunk: with the default of 16 KiB a transfer takes half as long again.
pub const FRAME_BYTES: u32 = 1 << 18;

/// HTTP/2 flow control per stream: a few chunks in flight, so that sending does not wait for each acknowledgement.
pub const STREAM_WINDOW_BYTES: u32 = 4 << 20;

/// HTTP/2 flow control per connection: two streams' worth.
pub const CONNECTION_WINDOW_BYTES: u32 = 8 << 20;

/// Time a new connection has to send the HTTP/2 preface: a round trip is well below a second anywhere.
pub const PREFACE_TIMEOUT: Duration = Duration::from_secs(5);

/// Silence after which the other side is asked for a sign of life…
pub const KEEPALIVE_INTERVAL: Duration = Duration::from_secs(5);

/// …and the time a worker has to give one. Together a dead worker's connection is closed in 10 s.
pub const KEEPALIVE_TIMEOUT: Duration = Duration::from_secs(5);

/// The time a coordinator has: a machine that is paused for a quarter of a minute keeps its workers.
pub const COORDINATOR_KEEPALIVE_TIMEOUT: Duration = Duration::from_secs(25);

/// Time between two chunks of one transfer after which it is given up: a chunk takes that long at 9 kB/s.
pub const CHUNK_TIMEOUT: Duration = Duration::from_secs(30);

/// Time a connection attempt may take before it counts as failed.
pub const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);
