//! Random streams, one for each iteration and purpose: no generator outlives its iteration, so none has to be saved.

use rand::SeedableRng;

use crate::policy::SchedulerRng;

/// What is drawn from a stream. Kept apart so that a fault does not change what a policy draws.
#[derive(Clone, Copy, Debug)]
pub(super) enum Purpose {
    /// [`crate::Policy::decide`].
    Policy,
    /// Ties between workers when orphaned tasks are reassigned.
    Recovery,
}

/// The stream of an iteration under a seed.
pub(super) fn stream(seed: u64, iteration: u64, purpose: Purpose) -> SchedulerRng {
    let mut rng = SchedulerRng::seed_from_u64(seed);
    rng.set_stream(2 * iteration + purpose as u64);
    rng
}
