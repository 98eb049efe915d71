//! How long to wait before the next attempt to connect.

use std::time::Duration;

use rand::{RngExt, SeedableRng};

/// The first wait.
const FIRST: Duration = Duration::from_millis(100);
/// The longest wait: a coordinator that comes back has its workers again within about a second.
const LONGEST: Duration = Duration::from_secs(1);

/// Waits that double up to a limit, each drawn from the upper half of its range, so that workers that lost the same
/// coordinator do not all come back at the same instant.
pub(crate) struct Backoff {
    wait: Duration,
    rng: rand::rngs::ChaCha8Rng,
}

impl Backoff {
    pub(crate) fn new() -> Self {
        // Without randomness from the system, the process id still spreads the waits.
        let rng = rand::rngs::ChaCha8Rng::try_from_rng(&mut rand::rngs::SysRng)
            .unwrap_or_else(|_| rand::rngs::ChaCha8Rng::seed_from_u64(u64::from(std::process::id())));
        Self { wait: FIRST, rng }
    }

    /// The next wait.
    pub(crate) fn next(&mut self) -> Duration {
        let wait = self.rng.random_range(self.wait / 2..self.wait);
        self.wait = (self.wait * 2).min(LONGEST);
        wait
    }

    /// Starts over after a success.
    pub(crate) fn reset(&mut self) {
        self.wait = FIRST;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn waits_grow_to_a_limit() {
        let mut backoff = Backoff::new();
        for longest in [100, 200, 400, 800, 1000, 1000] {
            let wait = backoff.next();
            assert!(wait * 2 >= Duration::from_millis(longest) && wait <= Duration::from_millis(longest));
        }
        backoff.reset();
        assert!(backoff.next() <= FIRST);
    }
}
