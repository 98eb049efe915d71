//! The run's clock, which stops while the process is stopped.

use std::time::{Duration, Instant};

/// Returns the longest time between two readings of the clock, given the heartbeat timeout of workers.
pub(crate) fn tick(heartbeat_timeout: Duration) -> Duration {
    // The upper bound is reached at the default timeout, so that a longer timeout does not delay the check for overdue leases.
    (heartbeat_timeout / 8).min(Duration::from_millis(250))
}

/// A gap of this many ticks between two readings, which is at most half a heartbeat timeout, means that the process was stopped, its
/// machine paused, or its driver task delayed. No worker could be heard meanwhile, so the gap counts against none of them.
const PAUSE_TICKS: u32 = 4;

/// Measures the seconds since the run began, not counting pauses. All deadlines use this time, so a pause postpones them.
#[derive(Debug)]
pub(crate) struct Clock {
    began: Instant,
    last_reading: Instant,
    paused: Duration,
    tick: Duration,
    /// The time that the clock showed when it was created, in seconds.
    offset_s: f64,
}

impl Clock {
    pub(crate) fn new(now: Instant, offset_s: f64, tick: Duration) -> Self {
        Self { began: now, last_reading: now, paused: Duration::ZERO, tick, offset_s }
    }

    /// Returns the time in seconds. Must be called at least once per tick.
    pub(crate) fn read(&mut self, now: Instant) -> f64 {
        let gap = now.saturating_duration_since(self.last_reading);
        if gap >= self.tick * PAUSE_TICKS {
            self.paused += gap.saturating_sub(self.tick);
            tracing::warn!("this process stood still for {:.1} s; deadlines are moved by as much", gap.as_secs_f64());
        }
        self.last_reading = now;
        self.offset_s + now.saturating_duration_since(self.began).saturating_sub(self.paused).as_secs_f64()
    }
}

#[cfg(test)]
mod tests {
    use ata_wire::duration;

    use super::*;

    #[test]
    fn pauses_do_not_count() {
        let start = Instant::now();
        let mut clock = Clock::new(start, 7.0, tick(Duration::from_secs(2)));
        for (at_s, expected) in [(0.0, 7.0), (0.25, 7.25), (0.5, 7.5), (1.25, 8.25), (11.25, 8.5), (11.5, 8.75)] {
            let shown = clock.read(start + duration(at_s));
            assert!((shown - expected).abs() < 1e-9, "{at_s}: {shown}");
        }
    }

    /// A pause of half the timeout is noticed, however short the timeout is.
    #[test]
    fn a_pause_is_noticed_before_a_worker_is_lost() {
        for timeout_ms in [100, 500, 2000, 60_000] {
            let timeout = Duration::from_millis(timeout_ms);
            let start = Instant::now();
            let time_s = Clock::new(start, 0.0, tick(timeout)).read(start + timeout / 2);
            assert!(time_s <= timeout.as_secs_f64() / 8.0, "{timeout:?}: {time_s}");
        }
    }
}
