//! Tests workers that fail or hang, in virtual time.

use ata_policies::build_policy;
use ata_scheduler::{Effect, Engine, EngineConfig, PolicyContext, StepOutcome};
use ata_simulator::{Change, Moment, Observer, Simulation, Step};
use ata_types::WorkerId;

use crate::times;

const ITERATIONS: u64 = 400;

/// Records when each iteration began by the clock, evictions and waits included, and what else happened.
#[derive(Default)]
struct Clock {
    starts: Vec<f64>,
    evictions: usize,
    rests: usize,
    tasks: u64,
}

impl Observer for Clock {
    fn step(&mut self, _step: &Step<'_>) -> StepOutcome {
        StepOutcome::default()
    }

    fn effect(&mut self, now: f64, effect: &Effect) {
        match effect {
            Effect::Start { .. } => self.starts.push(now),
            Effect::Evict { .. } => self.evictions += 1,
            Effect::Rest { .. } => self.rests += 1,
            Effect::Committed { cost, .. } => self.tasks += cost.tasks_applied,
            _ => {}
        }
    }
}

/// Runs `workers` workers of equal speed, of which those beyond the third are broken from the start.
fn run(policy: &str, workers: u32, broken: fn(WorkerId) -> Change) -> Clock {
    let config = EngineConfig {
        budget: 12,
        iterations: ITERATIONS,
        min_workers: workers as usize,
        lease_timeout_s: Some(60.0),
        rest_s: 1.0,
        seed: 3,
        ..EngineConfig::default()
    };
    let context =
        PolicyContext { means: Some(vec![1.0; workers as usize]), workers: Some(workers), ..PolicyContext::default() };
    let mut engine = Engine::new(config, build_policy(policy, &context).unwrap());
    let mut simulation = Simulation::new(workers, times("uniform(0.8, 1.2)", workers, 1));
    simulation.changes =
        (3..workers as usize).map(|slot| (Moment::Iteration(1), broken(WorkerId::from_slot(slot)))).collect();
    let mut clock = Clock::default();
    let end = simulation.run(&mut engine, &mut clock).unwrap_or_else(|error| panic!("{policy}: {error}"));
    clock.starts.push(end);
    assert_eq!(clock.starts.len() as u64, ITERATIONS + 1, "{policy}");
    clock
}

/// Two broken workers of five do not end a run, and cost it less than a tenth after twenty iterations.
#[test]
fn two_broken_workers_of_five() {
    for (kind, broken) in [("fail", Change::Fail as fn(WorkerId) -> Change), ("hang", Change::Hang)] {
        for policy in ["ata-auto", "ata-empirical", "ata", "uta", "fta", "gta", "k-sync:k=3", "cmab-kl:r=3"] {
            let with = run(policy, 5, broken);
            let without = run(policy, 3, broken);
            let pace = |clock: &Clock| clock.starts.last().unwrap() - clock.starts[20];
            let ratio = pace(&with) / pace(&without);
            assert!(ratio <= 1.1, "{policy}, two workers {kind}: {ratio:.3}");
            // Races and probes are not waited for: a worker that hangs there is merely cancelled.
            let is_noticed = kind == "fail" || !["ata-auto", "gta", "k-sync:k=3"].contains(&policy);
            assert_eq!((with.rests > 0, without.rests), (is_noticed, 0), "{policy}, two workers {kind}");
            assert_eq!(with.tasks, without.tasks, "{policy}, two workers {kind}");
        }
    }
}

/// The simulator evicts workers that hang; workers that are merely slow come back when they finish.
#[test]
fn evictions_are_simulated() {
    let hung = run("uta", 5, Change::Hang);
    assert!(hung.evictions >= 2);
    let slow = |worker| Change::SlowDown(worker, 100.0);
    let evicted = run("uta", 4, slow);
    assert!(evicted.evictions > 0, "a hundred times its usual time is too long");
}
