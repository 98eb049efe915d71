//! How the engine of a run works.

use ata_scheduler::{EngineConfig, Verify};

use crate::settings::Settings;

/// The first rest of a worker after a failure, in seconds: longer than a network glitch, short compared with a run.
/// Each further failure doubles it.
const REST_S: f64 = 1.0;

/// A worker that fails this many times in a row is expelled. Its rests double from [`REST_S`] on, so that the first and the
/// last failure are two minutes apart at least, longer than a driver needs to recover or a full disk to be noticed.
const EXPEL_AFTER: u32 = 8;

/// A run is given up after tasks have failed everywhere for this long, without a result of any worker: twice the outage that it is
/// promised to survive. With half of this, an outage of a minute could end it; with twice, training that has
/// diverged, whose gradients are all NaN, would go on for four minutes.
const OUTAGE_S: f64 = 120.0;

/// How the engine of a run with these settings works.
pub(super) fn engine_config(settings: &Settings, min_workers: usize) -> EngineConfig {
    EngineConfig {
        budget: settings.budget,
        iterations: settings.iterations,
        min_workers,
        lease_timeout_s: Some(settings.lease_timeout_s),
        rest_s: REST_S,
        expel_after: Some(EXPEL_AFTER),
        outage_s: OUTAGE_S,
        verify: verify(settings.verify),
        seed: settings.seed,
        overcommit: settings.overcommit,
        limits: settings.limits(),
    }
}

/// Spot checks of this share of leases. The run's seed would not do as the secret: workers know it.
fn verify(share: f64) -> Option<Verify> {
    (share > 0.0).then(|| Verify { share, secret: rand::random() })
}
