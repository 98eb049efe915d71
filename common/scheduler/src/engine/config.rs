//! Settings of an engine.

use super::limits::Limits;

/// Settings of an [`super::Engine`].
#[derive(Clone, Copy, Debug)]
pub struct EngineConfig {
    /// Tasks per iteration, B; at least 1.
    pub budget: u64,
    /// Iterations until [`super::Effect::Finish`].
    pub iterations: u64,
    /// Workers to wait for before the first iteration; at least 1. Later ones start with the workers present.
    pub min_workers: usize,
    /// Seconds within which a worker that was never timed must report its first result, or it is evicted. One that was
    /// timed has ten times its expected time (more if its times are noisy), and at least a tenth of this. `None`: no
    /// limit.
    pub lease_timeout_s: Option<f64>,
    /// The shortest rest of a worker that failed, in seconds; it doubles with each further failure.
    pub rest_s: f64,
    /// A worker that fails this many times in a row, without a result in between, is expelled. `None`: none is.
    pub expel_after: Option<u32>,
    /// Seconds that tasks must go on failing, without a result, before the run is given up: longer than any outage that it
    /// is to survive. A twelfth of it, if the workers say that the tasks are to blame.
    pub outage_s: f64,
    /// Spot checks. They need a policy that waits for all of its tasks.
    pub verify: Option<Verify>,
    /// Seed of everything random in the scheduler.
    pub seed: u64,
    /// Overcommitment, at least 0: the share of tasks that a barrier policy allocates beyond B. The first B results
    /// make the step and the rest is cancelled, which trades wasted work for speed.
    pub overcommit: f64,
    /// Limits that end the run earlier.
    pub limits: Limits,
}

impl Default for EngineConfig {
    /// One iteration of one task, as soon as there is a worker.
    fn default() -> Self {
        Self {
            budget: 1,
            iterations: 1,
            min_workers: 1,
            lease_timeout_s: None,
            rest_s: 0.0,
            expel_after: None,
            outage_s: 0.0,
            verify: None,
            seed: 0,
            overcommit: 0.0,
            limits: Limits::default(),
        }
    }
}

/// Settings of spot checks.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Verify {
    /// Share of leases that are checked, from 0 to 1.
    pub share: f64,
    /// Determines, with the iteration, which leases are checked. Workers must not know it.
    pub secret: u64,
}
