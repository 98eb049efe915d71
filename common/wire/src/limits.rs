//! Every limit of the protocol, with the reason for its value.

use std::time::Duration;

/// Bytes per chunk: its few bytes of framing cost nothing, and generated code, which makes room for a whole chunk at a time,
/// stays well below the 4 MiB that every gRPC implementation allows.
pub const CHUNK_BYTES: usize = 1 << 20;

/// Bytes per gRPC message: room for a chunk and its framing, or for the task times of the largest lease. A peer that
/// announces a message to generated code makes us reserve up to this much memory.
pub const MESSAGE_BYTES: usize = CHUNK_BYTES + 1024;

/// Parameters of a model: 1 GiB of f32, of which an ordinary head node can hold a few copies.
pub const MAX_PARAMETERS: u64 = 1 << 28;

/// B, tasks per iteration: beyond this, a task would be less than a millisecond of the largest cluster's work.
pub const MAX_BUDGET: u64 = 1 << 24;

/// Samples per task: 2^20 images are 12 GiB of f32, more than a device holds.
pub const MAX_TASK_BATCH: u32 = 1 << 20;

/// Tasks per lease: at least as many as the scheduler grants. A worker reports one time per task, 512 KiB in all.
pub const MAX_LEASE_TASKS: u64 = 1 << 16;

/// Leases per message: at most 350 kB, and the tasks of a large iteration still fit in a few messages.
pub const MAX_BATCH: usize = 8192;

/// Bytes of a data file: CIFAR-100's training split has 154 MB, and 26 times that is still fetched within minutes by each
/// worker that has no copy.
pub const MAX_DATA_BYTES: u64 = 1 << 32;

/// Characters of a worker's name: a host name has at most 63.
pub const MAX_NAME_CHARS: usize = 64;

/// Bytes of a human-readable text in a message.
pub const MAX_TEXT_BYTES: usize = 1024;

/// Workers in one run: the papers stop at 459, and each costs two connections and a few kilobytes.
pub const MAX_WORKERS: usize = 4096;

/// Connections per worker: one for control, one for bulk transfers.
pub const CONNECTIONS_PER_WORKER: usize = 2;

/// Open connections: twice what the workers need, to leave room for those that reconnect.
pub const MAX_CONNECTIONS: usize = 2 * CONNECTIONS_PER_WORKER * MAX_WORKERS;

/// HTTP/2 streams per connection. A worker needs one on its control connection, and on the other one or two for
/// downloads and at most [`MAX_UPLOADS`] for uploads.
pub const MAX_STREAMS: u32 = 16;

/// Gradients a worker may send at the same time: enough to hide the latency of one behind the next.
pub const MAX_UPLOADS: usize = 4;

/// Control messages that may wait for one worker before it counts as too slow to serve. Leases are sent in batches, so
/// even an iteration of the largest budget takes at most 2 · [`MAX_BUDGET`]/[`MAX_BATCH`] of them.
pub const MAX_QUEUED_MESSAGES: usize = 4096;

/// Bytes per HTTP/2 frame, as large as a chunk: each frame is put into memory of its own before it is handed on, and a fourth
/// of this costs a tenth more.
pub const FRAME_BYTES: u32 = 1 << 20;

/// HTTP/2 flow-control windows of connections, from the largest: what may be on its way before the receiver says that it read
/// something; a stream gets half of it. On a machine whose cores compute, saying so takes a while: with a fourth of the
/// largest, a model of 16 MB takes a third longer. The smallest is the default of HTTP/2.
pub const CONNECTION_WINDOWS: [u32; 5] = [32 << 20, 8 << 20, 2 << 20, 512 << 10, 64 << 10];

/// A connection gets the largest window that is at most one part in so many of the memory left for windows.
pub const WINDOW_SHARE: usize = 16;

/// Memory for windows, apart from the smallest of each connection: 50 workers get the largest, and hundreds one that is
/// large enough for a local network.
pub const WINDOW_MEMORY_BYTES: u64 = 4 << 30;

/// Time that a connection may be open without belonging to a session: TLS and Hello take three round trips, and even by
/// satellite links one takes little more than a second.
pub const STRANGER_TIMEOUT: Duration = Duration::from_secs(12);

/// Silence after which the other side is sent a keepalive ping…
pub const KEEPALIVE_INTERVAL: Duration = Duration::from_secs(5);

/// …and the time a worker has to answer it. Together they close a dead worker's connection after 10 s.
pub const KEEPALIVE_TIMEOUT: Duration = Duration::from_secs(5);

/// The time a coordinator has to answer it: one whose machine is paused for 15 s keeps its workers.
pub const COORDINATOR_KEEPALIVE_TIMEOUT: Duration = Duration::from_secs(25);

/// Time a chunk may take before its transfer is abandoned: it takes this long at 9 kB/s. Keepalive finds dead peers sooner.
pub const CHUNK_TIMEOUT: Duration = Duration::from_mins(2);

/// Time a connection attempt may take before it counts as failed.
pub const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);
