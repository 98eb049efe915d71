//! The largest numbers that a record may hold.

/// The largest worker number in a journal: more than any run has.
pub(crate) const MAX_WORKER: u32 = 1 << 20;

/// The most tasks of an iteration, as many as a run may have. Comparing policies recomputes iterations of this size.
pub(crate) const MAX_BUDGET: u64 = 1 << 24;

/// The largest value of the other counts. Wasted tasks may exceed the budget, and sums over any journal must not overflow.
pub(crate) const MAX_COUNT: u64 = 1 << 32;

/// The longest time in seconds: thirty million years. Sums and squares of such times are still finite.
pub(crate) const MAX_TIME_S: f64 = 1e15;
