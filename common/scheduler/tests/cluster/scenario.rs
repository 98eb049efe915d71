//! What a seed stands for.

use std::sync::Arc;

use ata_scheduler::policy::POLICIES;
use ata_scheduler::{EngineConfig, Policy, PolicyContext, PolicyKind, Truth, build_policy, policy_kind};
use rand::rngs::ChaCha8Rng;
use rand::{RngExt, SeedableRng};

use crate::unruly::Unruly;

/// Policies with parameters that matter here, and one that orders anything, besides every one of the registry as it is.
const VARIANTS: [&str; 8] = [
    "k-sync:k=3",
    "ringmaster:R=1",
    "ringmaster:R=2,stops=on",
    "cmab-kl:r=2",
    "ata:preset=published-runs",
    "proportional:window=2",
    "gradient-coding:stragglers=2",
    "unruly",
];

/// Those that take exactly B tasks a step.
const TAKE_ALL: [&str; 14] = [
    "ata",
    "ata-empirical",
    "ata-auto",
    "uta",
    "fta",
    "clairvoyant",
    "ema",
    "proportional",
    "controller",
    "affine",
    "pull",
    "gradient-coding",
    "unruly",
    "gta",
];

/// How much longer than the mean a task may take.
pub(crate) const SLOWEST: f64 = 5.0;

/// How likely each fault of the network is, per message.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Rates {
    pub(crate) loss: f64,
    pub(crate) duplicate: f64,
    /// That a message takes seconds, not milliseconds. If this is 0, messages arrive in order.
    pub(crate) straggle: f64,
}

impl Rates {
    pub(crate) const NONE: Self = Self { loss: 0.0, duplicate: 0.0, straggle: 0.0 };
}

#[derive(Debug)]
pub(crate) struct Scenario {
    pub(crate) seed: u64,
    pub(crate) policy: &'static str,
    pub(crate) engine: EngineConfig,
    pub(crate) workers: u32,
    pub(crate) rates: Rates,
    /// How likely a lease fails.
    pub(crate) fail: f64,
    /// Mean seconds between two crashes or cuts.
    pub(crate) fault_every_s: f64,
    /// When the faults stop.
    pub(crate) faults_end_s: f64,
    /// The engine is saved every so many iterations.
    pub(crate) save_every: u64,
    /// Mean seconds of a task.
    pub(crate) task_s: f64,
}

impl Scenario {
    pub(crate) fn new(seed: u64) -> Self {
        let rng = &mut ChaCha8Rng::seed_from_u64(seed);
        let policies = POLICIES.len() + VARIANTS.len();
        // In turn, so that each gets its share of the seeds.
        let at = (seed % policies as u64) as usize;
        let policy = POLICIES.get(at).map_or_else(|| VARIANTS[at - POLICIES.len()], |entry| entry.name);
        // Some of the variants need three.
        let workers = rng.random_range(if at < POLICIES.len() { 1 } else { 3 }..=6);
        let one_of = |rng: &mut ChaCha8Rng, values: [f64; 4]| values[rng.random_range(0..4)];
        let (budget, task_s) = (rng.random_range(1..=16), rng.random_range(0.02..0.3));
        let mut engine = EngineConfig {
            budget,
            iterations: rng.random_range(3..=12),
            min_workers: rng.random_range(1..=workers as usize),
            // Twice what the slowest worker may take for all tasks, as it may have to finish others first.
            lease_timeout_s: Some(2.0 * SLOWEST * task_s * budget as f64 + rng.random_range(1.0..5.0)),
            rest_s: one_of(rng, [0.0, 0.1, 1.0, 5.0]),
            seed,
            overcommit: one_of(rng, [0.0, 0.0, 0.0, 0.4]),
            ..EngineConfig::default()
        };
        let rates = Rates {
            loss: one_of(rng, [0.0, 0.0, 0.005, 0.03]),
            duplicate: one_of(rng, [0.0, 0.01, 0.1, 0.5]),
            straggle: one_of(rng, [0.0, 0.01, 0.05, 0.2]),
        };
        let fail = one_of(rng, [0.0, 0.0, 0.01, 0.1]);
        let (fault_every_s, faults_end_s) = (rng.random_range(0.5..6.0), rng.random_range(5.0..40.0));
        let save_every = rng.random_range(1..=3);
        engine.outage_s = one_of(rng, [0.0, 0.0, 1.0, 20.0]);
        Self { seed, policy, engine, workers, rates, fail, fault_every_s, faults_end_s, save_every, task_s }
    }

    pub(crate) fn policy(&self) -> Box<dyn Policy> {
        if self.policy == "unruly" {
            return Box::new(Unruly::default());
        }
        let means: Vec<f64> = (1..=self.workers).map(f64::from).collect();
        let truth = Some(Arc::new(means.clone()) as Arc<dyn Truth>);
        let context = PolicyContext { means: Some(means), workers: Some(self.workers), truth };
        build_policy(self.policy, &context).expect("a policy of the registry")
    }

    /// Whether a step takes exactly B tasks.
    pub(crate) fn takes_all(&self) -> bool {
        TAKE_ALL.contains(&self.policy.split(':').next().expect("a name"))
    }

    /// Whether the tasks of a step are 0..B, whoever is fast.
    pub(crate) fn is_reproducible(&self) -> bool {
        self.takes_all() && policy_kind(self.policy) == PolicyKind::Barrier && self.engine.overcommit == 0.0
    }
}
