//! Random streams, one for each iteration and purpose. No generator outlives its iteration, so none has to be saved.

use rand::{RngExt, SeedableRng};

use crate::policy::SchedulerRng;
use ata_types::Iteration;

/// The purpose of a stream. Separate streams ensure that a fault does not change what a policy draws.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Purpose {
    /// The decision of a policy ([`crate::Policy::decide`]).
    Policy,
    /// Ties between workers, when orphaned tasks are reassigned.
    Recovery,
}

pub(crate) fn stream(seed: u64, iteration: Iteration, purpose: Purpose) -> SchedulerRng {
    let mut rng = SchedulerRng::seed_from_u64(seed);
    rng.set_stream(2 * iteration.number() + purpose as u64);
    rng
}

/// Returns a number in [0, 1) for a task of an iteration, which cannot be computed without the secret.
pub(super) fn draw(secret: u64, iteration: Iteration, task: u64) -> f64 {
    let mut rng = SchedulerRng::seed_from_u64(secret);
    rng.set_stream(iteration.number());
    // A number takes two words of 32 bits.
    rng.set_word_pos(2 * u128::from(task));
    rng.random()
}
