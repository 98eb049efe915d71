//! Every limit of the messages and transfers, with the reason for its value.

use std::time::Duration;

use ata_net::limits::{ANSWER_TIMEOUT, KEEPALIVE_TIMEOUT};
pub use ata_types::MAX_SHARDS;
use ata_types::{CHUNK_VALUES, MAX_LEASE_TASKS, MAX_SHIFTED_BLOCKS};

/// The size of a chunk of a file, in bytes. The few bytes of framing cost nothing, and generated code, which reserves memory for a whole
/// chunk, stays well below the 4 MiB that every gRPC implementation allows.
pub const FILE_CHUNK_BYTES: usize = 1 << 20;

/// The maximum size of a chunk of a vector, in bytes: four for each value, and two for the header of each block of 256 values, which the
/// widest encoding needs.
pub const MAX_CHUNK_BYTES: usize = 4 * CHUNK_VALUES + 2 * CHUNK_VALUES / 256;

/// The maximum size of a gRPC message, in bytes. The largest is the header of a gradient with the times and losses of the largest lease and
/// the units of [`MAX_TENSORS`], which takes 1.6 MB. Generated code reserves this much memory if a peer announces it.
pub const MESSAGE_BYTES: usize = 2 << 20;

/// The maximum size of a worker's message on its control stream, and of a request other than a gradient, in bytes: a Progress of
/// [`MAX_BATCH`] leases and [`MAX_BATCH_ENTRIES`] times takes 1.4 MB. Generated code reserves as much memory as a peer announces.
pub const REQUEST_BYTES: usize = 3 << 19;

/// The maximum number of a model's parameters: 4 GiB of f32, of which a large head node can hold the few copies that an optimizer needs.
pub const MAX_PARAMETERS: u64 = 1 << 30;

/// The number of chunks of a vector of [`MAX_PARAMETERS`] values.
pub const MAX_CHUNKS: u64 = MAX_PARAMETERS / CHUNK_VALUES as u64;

/// The maximum number of a model's tensors, each of which has a unit. Models of a thousand layers have a few thousand tensors.
pub const MAX_TENSORS: usize = 1 << 16;

/// The maximum size of the shifts of an iteration's units, in bytes, at four bits per block: 512 KiB, a fourth of
/// [`MESSAGE_BYTES`], fit into a message with the exponents of [`MAX_TENSORS`]. Larger vectors have larger blocks.
pub const MAX_SHIFT_BYTES: usize = MAX_SHIFTED_BLOCKS / 2;

/// The maximum budget B, in tasks per iteration: beyond this, a task would be less than a millisecond of the largest cluster's work.
pub const MAX_BUDGET: u64 = 1 << 24;

/// The maximum number of samples per task, and in a batch of an evaluation: 2^20 images are 12 GiB of f32, more than a device holds.
pub const MAX_TASK_BATCH: u32 = 1 << 20;

/// The maximum number of leases per message, which take at most 350 kB. The tasks of a large iteration still fit in a few messages.
pub const MAX_BATCH: usize = 8192;

/// The maximum number of times or task ranges in all items of a message: that of the largest lease, which cannot be split.
pub const MAX_BATCH_ENTRIES: usize = MAX_LEASE_TASKS as usize;

/// The maximum number of task ranges in one vector, which fill a message. With two varints per range, they take 0.5 MB
/// for tasks below [`MAX_BUDGET`], and 1.4 MB at most. The tasks of a larger collection are split into several vectors.
pub const MAX_RANGES: usize = MAX_BATCH_ENTRIES;

/// The maximum size of a data file, in bytes: the training images of ImageNet, packed at 224 × 224 pixels, have 193 GB. Files are sent and
/// kept in chunks, so their size costs no memory, only time and disk.
pub const MAX_DATA_BYTES: u64 = 1 << 40;

/// The maximum number of batches in one Evaluate message: more than a worker holds at a time.
pub const MAX_EVALUATED_BATCHES: usize = 16;

/// The maximum number of classes in a measurement. Their two counts take five bytes at most, so all of them fit in [`REQUEST_BYTES`].
pub const MAX_CLASSES: usize = 1 << 17;

/// The maximum length of a worker's name, in characters: a host name has at most 63.
pub const MAX_NAME_CHARS: usize = 64;

/// The maximum size of a human-readable text in a message, in bytes.
pub const MAX_TEXT_BYTES: usize = 1024;

/// The upload rate, in bytes per second, below which a worker gives way to workers that wait for room. It is lower than
/// the rate of the slowest supported link, which carries 100 kB/s, all of its gradients together.
pub const LEAST_UPLOAD_BYTES_PER_S: u64 = 64 << 10;

/// The share of the mean upload rate of all workers that are sending, below which a worker gives way. If the coordinator's link is full,
/// all of them are slow, and closing one connection helps none. The rates of connections that share a link differ by less.
pub const LEAST_UPLOAD_SHARE: f64 = 0.25;

/// The time over which the upload guard measures these rates: longer than TCP takes to recover from losses on a poor link, and longer
/// than a short pause of the coordinator.
pub const UPLOAD_GUARD_WINDOW: Duration = Duration::from_secs(20);

/// The maximum number of control messages that wait for one worker before it counts as too slow to serve. Leases are sent in batches, so
/// even an iteration of the largest budget takes at most 2 · [`MAX_BUDGET`]/[`MAX_BATCH`] of them.
pub const MAX_QUEUED_MESSAGES: usize = 4096;

/// The time a chunk may take before its transfer is abandoned. A link of 100 kB/s needs 11 s for a chunk of a file, and 6 s for one of each
/// of [`MAX_UPLOADS`](ata_net::limits::MAX_UPLOADS) gradients that share it; the rest allows for a receiver that pauses. Keepalive finds
/// dead peers sooner.
pub const CHUNK_TIMEOUT: Duration = KEEPALIVE_TIMEOUT;

/// The time in which a new upload must send its header, if no other data are on the way on its connection: more than any round trip.
/// Until the header arrives, the sender is unknown.
pub const HEADER_TIMEOUT: Duration = Duration::from_secs(5);

/// The maximum number of data files sent at the same time, to all workers together: enough for any network. Each has 3 MiB of chunks in
/// memory. The others wait.
pub const MAX_DATA_TRANSFERS: usize = 16;

/// The maximum number of bytes of a probe in each direction: on a link of 1 Gbit/s they take 0.13 s, which is long enough to measure.
pub const MAX_PROBE_BYTES: u64 = 16 << 20;

/// The padding in a request of a probe, in bytes: a few packets, which take little memory while they are read.
pub const PROBE_REQUEST_PADDING: usize = 4000;

/// The size, in bytes, that a smaller request of a probe counts as, so that empty requests reach the limit, too.
pub const LEAST_PROBE_REQUEST: usize = 1024;

/// The padding in a message of a probe's answer, in bytes. This much may wait for a peer that does not read.
pub const PROBE_ANSWER_PADDING: usize = 64 << 10;

/// The maximum number of simultaneous probes, of all peers together. They take no more of the coordinator's link than two more workers.
pub const MAX_PROBES: usize = 2;

/// The time a probe's answer may take. Its requests have [`ANSWER_TIMEOUT`].
pub const PROBE_TIMEOUT: Duration = ANSWER_TIMEOUT;

/// The time between two heartbeats of a worker without work, or that of a worker with work if it is longer. 10,000 idle workers send 4,000
/// messages a second.
pub const IDLE_HEARTBEAT_INTERVAL: Duration = Duration::from_millis(2500);

/// The number of missed heartbeats after which a worker is lost.
pub const HEARTBEATS_MISSED: u32 = 4;

/// The longest time that anything may take or wait. It is 30 years, which stands for "forever" and which `Instant` can add.
pub const MAX_TIME: Duration = Duration::from_secs(1_000_000_000);

/// The maximum time, in milliseconds, in which a chunk from another member of an exchange must arrive: the time for which a worker may read
/// nothing of what the coordinator sends.
pub const MAX_CHUNK_TIMEOUT_MS: u32 = 60_000;

/// Converts seconds to a duration: zero if the number is negative or NaN, and at most [`MAX_TIME`]. `Duration` itself panics at such
/// numbers, and `Instant` panics when a duration that is too long is added to it.
pub fn duration(seconds: f64) -> Duration {
    Duration::try_from_secs_f64(seconds.max(0.0)).map_or(MAX_TIME, |duration| duration.min(MAX_TIME))
}

#[cfg(test)]
mod tests {
    use std::time::Instant;

    use super::*;

    #[test]
    fn any_number_is_a_time() {
        for (seconds, expected) in [
            (0.25, Duration::from_millis(250)),
            (f64::NAN, Duration::ZERO),
            (-1.0, Duration::ZERO),
            (f64::NEG_INFINITY, Duration::ZERO),
            (1e20, MAX_TIME),
            (f64::MAX, MAX_TIME),
            (f64::INFINITY, MAX_TIME),
        ] {
            assert_eq!(duration(seconds), expected, "{seconds}");
            assert!(Instant::now() + duration(seconds) + Duration::from_millis(1) > Instant::now());
        }
    }
}
