//! Spreads work on large vectors over the cores.

use std::num::NonZero;
use std::sync::{Mutex, PoisonError};
use std::thread;

/// The maximum number of threads. More threads would only wait for memory.
const MAX_THREADS: usize = 8;

/// The number of values from which several threads are faster than one, since threads must be started first.
pub(crate) const PARALLEL_FROM: usize = 1 << 18;

/// The number of values that a thread takes at a time: 64 KiB per vector, so that a range of several vectors fits in a core's cache.
pub(crate) const RANGE: usize = 1 << 14;

/// Calls `work` on every piece, on this thread and on others that end with the call.
///
/// A pool would save the microseconds that a thread takes to start. But its idle threads spin for a while before they
/// sleep, and on a machine with busy cores that costs the other threads more.
pub(crate) fn spread<T: Send>(pieces: Vec<T>, work: impl Fn(T) + Sync) {
    let threads = thread::available_parallelism().map_or(1, NonZero::get).min(MAX_THREADS).min(pieces.len());
    // With a queue, a thread that gets half a core does half as much.
    let queue = Mutex::new(pieces.into_iter());
    let next = || queue.lock().unwrap_or_else(PoisonError::into_inner).next();
    let run = || {
        while let Some(piece) = next() {
            work(piece);
        }
    };
    thread::scope(|scope| {
        for _ in 1..threads {
            scope.spawn(run);
        }
        run();
    });
}
