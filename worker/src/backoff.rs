//! Waits between repeated attempts.

use std::time::{Duration, Instant};

use rand::{RngExt, SeedableRng};

/// Waits that double up to a limit. Each is drawn from the upper half of its range, so that workers do not all return at the same instant.
pub(crate) struct Backoff {
    first: Duration,
    longest: Duration,
    wait: Duration,
    /// The time of the first failure that [`Self::next_within`] knows of.
    failed: Option<Instant>,
    rng: rand::rngs::ChaCha8Rng,
}

impl Backoff {
    /// Returns the waits between attempts to connect. A restarted coordinator has its workers back within about a second.
    pub(crate) fn to_connect() -> Self {
        Self::new(Duration::from_millis(100), Duration::from_secs(1))
    }

    /// Returns the waits between attempts to fetch data. An attempt may cost the coordinator as much as a complete transfer.
    pub(crate) fn to_fetch() -> Self {
        Self::new(Duration::from_secs(1), Duration::from_mins(1))
    }

    fn new(first: Duration, longest: Duration) -> Self {
        // If the system has no random numbers, the process id still spreads the waits.
        let rng = rand::rngs::ChaCha8Rng::try_from_rng(&mut rand::rngs::SysRng)
            .unwrap_or_else(|_| rand::rngs::ChaCha8Rng::seed_from_u64(u64::from(std::process::id())));
        Self { first, longest, wait: first, failed: None, rng }
    }

    pub(crate) fn next(&mut self) -> Duration {
        let wait = self.rng.random_range(self.wait / 2..self.wait);
        self.wait = (self.wait * 2).min(self.longest);
        wait
    }

    /// Returns the wait after a failed attempt, or `None` once `timeout` has passed since the first one.
    pub(crate) fn next_within(&mut self, timeout: Duration) -> Option<Duration> {
        let tried = self.failed.get_or_insert_with(Instant::now).elapsed();
        let left = timeout.checked_sub(tried).filter(|left| !left.is_zero())?;
        Some(self.next().min(left))
    }

    pub(crate) fn reset(&mut self) {
        (self.wait, self.failed) = (self.first, None);
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
