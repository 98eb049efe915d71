//! The scenario that a seed determines.

use ata_policies::POLICIES;
use ata_scheduler::{EngineConfig, Policy, PolicyKind, Verify};
use ata_simulator::{Change, Direction, Faults, LawTimes, Moment, Partition, Simulation, VirtualNetwork};
use ata_types::WorkerId;
use rand::rngs::ChaCha8Rng;
use rand::{RngExt, SeedableRng};

use crate::faults::unruly::Unruly;
use crate::{informed, times};

/// Policies with parameters that matter here, and one that takes arbitrary actions. Every policy of the registry is run as well.
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

/// The policies that take exactly B tasks per step.
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

/// The longest time of a task, relative to the mean.
const SLOWEST: f64 = 5.0;

#[derive(Debug)]
pub(crate) struct Scenario {
    pub(crate) seed: u64,
    pub(crate) policy: &'static str,
    pub(crate) engine: EngineConfig,
    workers: u32,
    law: String,
    pub(crate) faults: Faults,
    /// The times at which workers start, crash, hang and come back.
    pub(crate) changes: Vec<(Moment, Change)>,
    /// The times at which the coordinator is to crash a few events later, ascending.
    pub(crate) crashes: Vec<f64>,
    pub(crate) save_every: u64,
}

impl Scenario {
    pub(crate) fn new(seed: u64) -> Self {
        let rng = &mut ChaCha8Rng::seed_from_u64(seed);
        let policies = POLICIES.entries().len() + VARIANTS.len();
        // The policies take turns, so that each gets its share of the seeds.
        let at = (seed % policies as u64) as usize;
        let policy =
            POLICIES.entries().get(at).map_or_else(|| VARIANTS[at - POLICIES.entries().len()], |entry| entry.name);
        // Some of the variants need three.
        let workers = rng.random_range(if at < POLICIES.entries().len() { 1 } else { 3 }..=6);
        let one_of = |rng: &mut ChaCha8Rng, values: [f64; 4]| values[rng.random_range(0..4)];
        let (budget, task_s) = (rng.random_range(1..=16), rng.random_range(0.02..0.3));
        let mut engine = EngineConfig {
            budget,
            iterations: rng.random_range(3..=12),
            min_workers: rng.random_range(1..=workers as usize),
            // This is twice the time that the slowest worker may take for all tasks, since it may have to finish others first.
            lease_timeout_s: Some(2.0 * SLOWEST * task_s * budget as f64 + rng.random_range(1.0..5.0)),
            rest_s: one_of(rng, [0.0, 0.1, 1.0, 5.0]),
            seed,
            overcommit: one_of(rng, [0.0, 0.0, 0.0, 0.4]),
            ..EngineConfig::default()
        };
        engine.outage_s = one_of(rng, [0.0, 0.0, 1.0, 20.0]);
        // The results of a worker that lies are settled by two others.
        let can_verify = workers >= 3 && engine.overcommit == 0.0 && is_barrier(policy);
        if can_verify && rng.random_bool(0.4) {
            let share = [0.3, 1.0][rng.random_range(0..2)];
            engine.verify = Some(Verify { share, secret: !seed });
            engine.expel_after = [None, Some(2)][rng.random_range(0..2)];
        }
        let can_be_local = engine.overcommit == 0.0 && is_barrier(policy) && engine.verify.is_none();
        engine.takes_local_steps = can_be_local && rng.random_bool(0.4);
        let faults = Faults {
            loss: one_of(rng, [0.0, 0.0, 0.005, 0.03]),
            duplication: one_of(rng, [0.0, 0.01, 0.1, 0.5]),
            straggling: one_of(rng, [0.0, 0.01, 0.05, 0.2]),
            failure: one_of(rng, [0.0, 0.0, 0.01, 0.1]),
            end_s: rng.random_range(5.0..40.0),
            misreport: 0.05,
            replacement: 0.2,
            partitions: Vec::new(),
        };
        let save_every = rng.random_range(1..=3);
        let law = law(rng, workers, task_s);
        let (changes, crashes) = (Vec::new(), Vec::new());
        let mut scenario = Self { seed, policy, engine, workers, law, faults, changes, crashes, save_every };
        scenario.schedule(rng);
        scenario
    }

    /// Draws when workers and the coordinator fail, and when workers are cut off.
    fn schedule(&mut self, rng: &mut ChaCha8Rng) {
        let ids: Vec<WorkerId> = (0..self.workers as usize).map(WorkerId::from_slot).collect();
        let mut up_at_s: Vec<f64> = ids.iter().map(|_| rng.random_range(0.0..2.0)).collect();
        let mut changes: Vec<(f64, Change)> =
            up_at_s.iter().zip(&ids).map(|(at_s, id)| (*at_s, Change::Join(*id))).collect();
        let every_s = rng.random_range(0.5..6.0);
        let mut now_s = 0.0;
        while now_s < self.faults.end_s {
            match rng.random_range(0..3) {
                0 => {
                    let slot = rng.random_range(0..ids.len());
                    if up_at_s[slot] <= now_s {
                        let mut crash_s = now_s;
                        if rng.random_bool(0.3) {
                            changes.push((now_s, Change::Hang(ids[slot])));
                            crash_s += rng.random_range(0.1..10.0);
                        }
                        up_at_s[slot] = crash_s + rng.random_range(0.05..5.0);
                        changes.push((crash_s, Change::Leave(ids[slot])));
                        changes.push((up_at_s[slot], Change::Join(ids[slot])));
                    }
                }
                1 => self.crashes.push(now_s),
                _ => self.partition(rng, now_s, &ids),
            }
            now_s += rng.random_range(0.0..2.0 * every_s);
        }
        self.changes = changes.into_iter().map(|(at_s, change)| (Moment::Time(at_s), change)).collect();
    }

    fn partition(&mut self, rng: &mut ChaCha8Rng, from_s: f64, ids: &[WorkerId]) {
        let both = [Direction::ToWorker, Direction::ToCoordinator];
        let directions = [&both[..], &both[..1], &both[1..]][rng.random_range(0..3)];
        let to_s = from_s + rng.random_range(0.1..6.0);
        for worker in ids.iter().copied().filter(|_| rng.random_bool(0.5)) {
            let partition = |direction: &Direction| Partition { worker, direction: *direction, from_s, to_s };
            self.faults.partitions.extend(directions.iter().map(partition));
        }
    }

    pub(crate) fn simulation(&self) -> Simulation<LawTimes> {
        let times = times(&self.law, self.workers, self.seed);
        let network = Some(VirtualNetwork::new(self.faults.clone(), self.seed));
        Simulation { changes: self.changes.clone(), network, ..Simulation::new(self.workers, times) }
    }

    pub(crate) fn policy(&self) -> Box<dyn Policy> {
        if self.policy == "unruly" {
            return Box::new(Unruly::default());
        }
        informed(self.policy, self.workers)
    }

    pub(crate) fn takes_all(&self) -> bool {
        takes_all(self.policy)
    }

    /// Returns whether the tasks of a step are 0..B, whichever workers are fast.
    pub(crate) fn is_reproducible(&self) -> bool {
        is_barrier(self.policy) && self.engine.overcommit == 0.0
    }
}

fn takes_all(policy: &str) -> bool {
    TAKE_ALL.contains(&policy.split(':').next().expect("a name"))
}

/// Returns whether a policy waits for B tasks that it chose.
fn is_barrier(policy: &str) -> bool {
    takes_all(policy) && POLICIES.kind(policy) == PolicyKind::Barrier
}

/// Returns a law in which some workers are ten times as fast as others, and some compute a lease as one batch.
fn law(rng: &mut ChaCha8Rng, workers: u32, task_s: f64) -> String {
    let of_worker = |_| {
        let mean_s = task_s * SLOWEST / 1.5 * rng.random_range(0.1..1.0);
        if rng.random_bool(0.2) {
            format!("affine(0, {mean_s})")
        } else {
            format!("uniform({}, {})", 0.5 * mean_s, 1.5 * mean_s)
        }
    };
    (0..workers).map(of_worker).collect::<Vec<_>>().join("; ")
}
