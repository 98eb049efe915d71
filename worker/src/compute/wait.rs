//! Waits that end early.

use std::time::{Duration, Instant};

use super::CancelFlag;

/// Waits for `duration`, or until the lease is cancelled. Returns the time waited.
pub(super) fn wait(duration: Duration, cancelled: &CancelFlag) -> Duration {
    let started = Instant::now();
    while !cancelled.is_set() {
        let left = duration.saturating_sub(started.elapsed());
        if left.is_zero() {
            break;
        }
        std::thread::park_timeout(left);
    }
    started.elapsed()
}
