//! Every limit of a connection, with the reason for its value.

use std::time::Duration;

/// Workers in one run. The papers stop at 459, and 10,000 workers without work cost only memory.
pub const MAX_WORKERS: usize = 16_384;

/// Connections per worker: one for control, one for bulk transfers.
pub const CONNECTIONS_PER_WORKER: usize = 2;

/// Open connections: twice what the workers need, to leave room for those that reconnect.
pub const MAX_CONNECTIONS: usize = 2 * CONNECTIONS_PER_WORKER * MAX_WORKERS;

/// HTTP/2 streams per connection. A worker needs one on its control connection, and on the other one or two for
/// downloads and at most [`MAX_UPLOADS`] for uploads.
pub const MAX_STREAMS: u32 = 16;

/// Gradients a worker may send at the same time: enough to hide the latency of one behind the next.
pub const MAX_UPLOADS: usize = 4;

/// Bytes per HTTP/2 frame, as large as a chunk of a file. Each frame is copied into a buffer of its own, and frames of a fourth of this size
/// cost a tenth more.
pub const FRAME_BYTES: u32 = 1 << 20;

/// HTTP/2 flow-control windows of connections, from the largest: what may be on its way before the receiver says that it read
/// something. A stream gets one part in [`MAX_UPLOADS`] of it at the coordinator, so that gradients that wait do not fill the
/// window of one that does not. On a machine whose cores compute, saying so takes a while: with a fourth of the largest, a model
/// of 16 MB takes a third longer. The smallest is the default of HTTP/2.
pub const CONNECTION_WINDOWS: [u32; 5] = [32 << 20, 8 << 20, 2 << 20, 512 << 10, 64 << 10];

/// A connection gets the largest window that is at most one part in so many of the memory left for windows.
pub const WINDOW_SHARE: usize = 16;

/// Connections of browsers, health checks and scripts to the dashboard: a few for each browser, and few enough that their files and
/// buffers are negligible next to those of the workers.
pub const MAX_VISITORS: usize = 256;

/// Connections of a port that nothing keeps open; if there are more, one is closed. A worker's connection is such a stranger for a
/// few round trips. With its buffers and calls, one takes 100 kB.
pub const MAX_STRANGERS: usize = 512;

/// Time for a handshake, and time that a worker's connection may be open while it belongs to no session, before its first or
/// after its last one: TLS and Hello take three round trips, and even by satellite links one takes little more than a second.
pub const STRANGER_TIMEOUT: Duration = Duration::from_secs(12);

/// Silence after which the other side is sent a keepalive ping…
pub const KEEPALIVE_INTERVAL: Duration = Duration::from_secs(5);

/// …and the time it has to answer. Ping and answer wait behind the data in the buffers of the systems at both ends, and 4 MB
/// of them take 40 s at 100 kB/s. A dead worker is found by its heartbeats, long before; a coordinator whose machine is paused
/// keeps its workers for as long.
pub const KEEPALIVE_TIMEOUT: Duration = Duration::from_mins(1);

/// Time after which a call must have begun to be answered, however slowly its request arrives: every request but a gradient
/// fits in one packet. It is more than a control stream waits for its Hello.
pub const ANSWER_TIMEOUT: Duration = Duration::from_secs(10);

/// Time a connection attempt may take before it counts as failed.
pub const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);
