//! Every limit of a connection, with the reason for its value.

use std::time::Duration;

/// The maximum number of workers in a run. The papers stop at 459, and 10,000 workers without work cost only memory.
pub const MAX_WORKERS: usize = 16_384;

/// The number of connections per worker: one for control, one for bulk transfers.
pub const CONNECTIONS_PER_WORKER: usize = 2;

/// The maximum number of open connections: twice what the workers need, to leave room for workers that reconnect.
pub const MAX_CONNECTIONS: usize = 2 * CONNECTIONS_PER_WORKER * MAX_WORKERS;

/// The maximum number of HTTP/2 streams per connection. A worker needs one on its control connection, and on the other
/// one at most two for downloads and [`MAX_UPLOADS`] for uploads.
pub const MAX_STREAMS: u32 = 16;

/// The maximum number of gradients that a worker sends at the same time: enough to hide the latency of one behind the next.
pub const MAX_UPLOADS: usize = 4;

/// The maximum size of an HTTP/2 frame, in bytes: that of a chunk of a file. Each frame is copied into a buffer of its
/// own; frames of a quarter of this size cost 10% more.
pub const FRAME_BYTES: u32 = 1 << 20;

/// The HTTP/2 flow-control windows of connections, in bytes, from the largest: the amount of data that may be on its way before the
/// receiver acknowledges any. At the coordinator a stream gets one part in [`MAX_UPLOADS`] of it, so that waiting gradients do not fill the
/// window of an active one. Acknowledgements take a while on a machine with busy cores: with a quarter of the largest window, a model of 16
/// MB takes a third longer. The smallest is the default of HTTP/2.
pub const CONNECTION_WINDOWS: [u32; 5] = [32 << 20, 8 << 20, 2 << 20, 512 << 10, 64 << 10];

/// A connection gets the largest window of at most one part in this many of the memory that is left for windows.
pub const WINDOW_SHARE: usize = 16;

/// The maximum number of connections of browsers, health checks and scripts to the dashboard: a few for each browser,
/// and few enough that their files and buffers are negligible next to those of the workers.
pub const MAX_VISITORS: usize = 256;

/// The maximum number of connections of a port that nothing keeps open; if there are more, one is closed. A worker's
/// connection is such a stranger for a few round trips. With its buffers and calls, one takes 100 kB.
pub const MAX_STRANGERS: usize = 512;

/// The time limit of a handshake, and the time for which a worker's connection may stay open without a session: TLS and
/// Hello take three round trips, and one takes little more than a second even over satellite links.
pub const STRANGER_TIMEOUT: Duration = Duration::from_secs(12);

/// The time without data after which a keepalive ping is sent.
pub const KEEPALIVE_INTERVAL: Duration = Duration::from_secs(5);

/// The time within which the other side must answer a keepalive ping. Ping and answer wait behind the data in the
/// buffers of both systems, and 4 MB of them take 40 s at 100 kB/s. Heartbeats detect a dead worker much earlier; a
/// coordinator whose machine is paused keeps its workers for this long.
pub const KEEPALIVE_TIMEOUT: Duration = Duration::from_mins(1);

/// The time after which a call must have begun to be answered, however slowly its request arrives: every request except
/// a gradient fits in one packet. It is longer than a control stream waits for its Hello.
pub const ANSWER_TIMEOUT: Duration = Duration::from_secs(10);

/// The time that each step of a connection attempt may take: TCP, TLS, and the first answer, which need one round trip each.
pub const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);
