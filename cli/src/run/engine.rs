//! The configuration of a run's engine.

use ata_scheduler::{EngineConfig, Verify};

use crate::settings::Settings;

/// The first rest of a worker after a failure, in seconds: longer than a network glitch, short compared with a run.
/// Each further failure in a row doubles it.
const REST_S: f64 = 1.0;
/// The number of failures in a row after which a worker is expelled. Its rests double from [`REST_S`] on, so the first and the last failure
/// are at least two minutes apart, which is longer than a driver needs to recover or a full disk to be noticed.
const EXPEL_AFTER: u32 = 8;
/// The time, in seconds, after which a run is given up if tasks fail on all workers without any result: twice the outage that it is
/// promised to survive. With half of this, an outage of a minute could end it; with twice, training that has diverged, whose gradients are
/// all NaN, would continue for four minutes.
const OUTAGE_S: f64 = 120.0;

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

/// Returns spot checks of this share of leases. Their secret must not be the run's seed, which workers know.
fn verify(share: f64) -> Option<Verify> {
    (share > 0.0).then(|| Verify { share, secret: rand::random() })
}
