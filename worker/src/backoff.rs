//! Waits between attempts.

use std::time::{Duration, Instant};

use rand::{RngExt, SeedableRng};

/// Waits that double up to a limit, each drawn from the upper half of its range, so that workers that lost the same
/// coordinator do not all come back at the same instant.
pub(crate) struct Backoff {
    first: Duration,
    longest: Duration,
    wait: Duration,
    rng: rand::rngs::ChaCha8Rng,
}

impl Backoff {
    /// Waits for a coordinator. One that comes back has its workers again within about a second.
    pub(crate) fn to_connect() -> Self {
        Self::new(Duration::from_millis(100), Duration::from_secs(1))
    }

    /// Waits for the training data. An attempt may cost the coordinator as much as a complete transfer.
    pub(crate) fn to_fetch() -> Self {
        Self::new(Duration::from_secs(1), Duration::from_mins(1))
    }

    fn new(first: Duration, longest: Duration) -> Self {
        // Without randomness from the system, the process id still spreads the waits.
        let rng = rand::rngs::ChaCha8Rng::try_from_rng(&mut rand::rngs::SysRng)
            .unwrap_or_else(|_| rand::rngs::ChaCha8Rng::seed_from_u64(u64::from(std::process::id())));
        Self { first, longest, wait: first, rng }
    }

    /// The next wait.
    pub(crate) fn next(&mut self) -> Duration {
        let wait = self.rng.random_range(self.wait / 2..self.wait);
        self.wait = (self.wait * 2).min(self.longest);
        wait
    }

    /// Starts over after a success.
    pub(crate) fn reset(&mut self) {
        self.wait = self.first;
    }
}

/// Attempts to fetch what a coordinator lacks, for a limited time.
pub(crate) struct Attempts {
    backoff: Backoff,
    /// When the first attempt failed.
    since: Option<Instant>,
}

impl Attempts {
    pub(crate) fn new(backoff: Backoff) -> Self {
        Self { backoff, since: None }
    }

    /// How long to wait after an attempt that failed; `None` after `timeout`.
    pub(crate) fn next(&mut self, timeout: Duration) -> Option<Duration> {
        let tried = self.since.get_or_insert_with(Instant::now).elapsed();
        let left = timeout.checked_sub(tried).filter(|left| !left.is_zero())?;
        Some(self.backoff.next().min(left))
    }

    /// Starts over after a success.
    pub(crate) fn reset(&mut self) {
        self.since = None;
        self.backoff.reset();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn waits_grow_to_a_limit() {
        for (mut backoff, expected_ms) in [
            (Backoff::to_connect(), &[100, 200, 400, 800, 1000, 1000][..]),
            (Backoff::to_fetch(), &[1000, 2000, 4000, 8000, 16_000, 32_000, 60_000, 60_000]),
        ] {
            for &longest in expected_ms {
                let wait = backoff.next();
                assert!(wait * 2 >= Duration::from_millis(longest) && wait <= Duration::from_millis(longest));
            }
            backoff.reset();
            assert!(backoff.next() <= Duration::from_millis(expected_ms[0]));
        }
    }
}
