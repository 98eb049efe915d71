//! Tests that a run, whatever happens to it, continues as if it had not been interrupted if it is saved between two iterations and restored
//! into a new engine.

use ata_policies::POLICIES;
use ata_scheduler::{Effect, Engine, EngineConfig, Event, PolicyKind, SavedEngine, StepOutcome, WorkerStatistics};
use ata_simulator::{Change, Moment, Observer, Simulation, Step};
use ata_types::{CollectionId, Lease, TaskOutcome, WorkerId};
use proptest::prelude::*;

use crate::{informed, times};

const WORKERS: u32 = 6;
const ITERATIONS: u64 = 14;

/// The interruption of an engine after an iteration.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Break {
    /// The engine is not interrupted.
    None,
    /// All workers are lost and join again at once, so that their leases end as they would with the process.
    Reconnect,
    /// The same happens with an engine that was restored from the saved state of the other one.
    Restore,
}

/// Records the engine's effects after an iteration.
struct Log<'a> {
    policy: &'a str,
    config: EngineConfig,
    after: u64,
    what: Break,
    committed: u64,
    effects: Vec<(f64, Effect)>,
}

impl Observer for Log<'_> {
    /// Gradients agree only every third time, for the policy that looks at them.
    fn step(&mut self, step: &Step<'_>) -> StepOutcome {
        let product = if step.iteration.is_multiple_of(3) { 1.0 } else { -1.0 };
        StepOutcome {
            loss: Some(1.0 / step.iteration as f64),
            gradient_product: Some(product),
            ..StepOutcome::default()
        }
    }

    fn committed(&mut self, _now: f64, clock: f64, engine: &mut Engine, effects: &mut Vec<Effect>) -> Option<f64> {
        self.committed += 1;
        if self.committed != self.after {
            return None;
        }
        self.effects.clear();
        if self.what == Break::None {
            return None;
        }
        let saved = engine.save();
        let present: Vec<WorkerId> = engine.present().collect();
        for &worker in &present {
            engine.handle(clock, Event::WorkerLost { worker }, effects);
        }
        if self.what == Break::Restore {
            let saved: SavedEngine = serde_json::from_str(&serde_json::to_string(&saved).unwrap()).unwrap();
            *engine = Engine::restore(self.config.clone(), informed(self.policy, WORKERS), saved).unwrap();
        }
        for &worker in &present {
            let (machine, prior) = (worker.into(), prior(worker));
            engine.handle(clock, Event::WorkerJoined { worker, machine, prior, fuses: false }, effects);
        }
        None
    }

    fn effect(&mut self, now: f64, effect: &Effect) {
        // Leases that end with the interruption itself are reported by one engine only, and so is the work wasted on them.
        let mut effect = effect.clone();
        match &mut effect {
            Effect::Committed { cost, .. } => cost.tasks_wasted = 0,
            Effect::Assign { lease, .. } | Effect::End { lease, .. } => unnumber(lease),
            Effect::Collect { collections, .. } => collections.iter_mut().for_each(|asked| asked.id = CollectionId(0)),
            Effect::Step { collections, collected, .. } => {
                collections.clear();
                for (_, lease) in collected {
                    unnumber(lease);
                }
            }
            _ => {}
        }
        self.effects.push((now, effect));
    }
}

/// Each engine numbers its collections from 1 on.
fn unnumber(lease: &mut Lease) {
    lease.own = lease.own.map(|_| CollectionId(0));
}

/// Half of the workers were known before, one of them wrongly.
fn prior(worker: WorkerId) -> WorkerStatistics {
    let mut prior = WorkerStatistics::default();
    if worker.number().is_multiple_of(2) {
        for task in 0..20 {
            prior.observe(f64::from(worker.number() * if worker.number() == 4 { 90 } else { 3 }) + f64::from(task % 3));
        }
    }
    prior
}

#[derive(Clone, Debug)]
struct Scenario {
    policy: &'static str,
    seed: u64,
    overcommit: f64,
    changes: Vec<(Moment, Change)>,
}

fn scenario() -> impl Strategy<Value = Scenario> {
    // One worker stays healthy, or all runs would be aborted.
    let worker = (1..WORKERS).prop_map(|slot| WorkerId::from_slot(slot as usize));
    let when = prop_oneof![(2..ITERATIONS).prop_map(Moment::Iteration), (0.0..300.0).prop_map(Moment::Time)];
    let change = prop_oneof![
        worker.clone().prop_map(Change::Leave),
        worker.clone().prop_map(Change::Join),
        worker.clone().prop_map(Change::Fail),
        worker.clone().prop_map(Change::Hang),
        (worker.clone(), 0.1..10.0).prop_map(|(worker, factor)| Change::SlowDown(worker, factor)),
        (worker.clone(), worker).prop_map(|(a, b)| Change::Swap(a, b)),
    ];
    let policy = prop::sample::select(POLICIES.entries().iter().map(|entry| entry.name).collect::<Vec<_>>());
    let overcommit = prop_oneof![Just(0.0), Just(0.4)];
    (policy, 0u64..1000, overcommit, prop::collection::vec((when, change), 0..8))
        .prop_map(|(policy, seed, overcommit, changes)| Scenario { policy, seed, overcommit, changes })
}

/// Returns the engine's effects after iteration `after` of a run that is interrupted there, and how the run ends.
fn run(scenario: &Scenario, after: u64, what: Break) -> (Vec<(f64, Effect)>, Result<f64, String>) {
    let config = EngineConfig {
        budget: 9,
        iterations: ITERATIONS,
        lease_timeout_s: Some(400.0),
        rest_s: 5.0,
        seed: scenario.seed,
        overcommit: scenario.overcommit,
        ..EngineConfig::default()
    };
    let mut simulation = Simulation::new(WORKERS, times("shifted_exp(3*i, 2*i)", WORKERS, scenario.seed));
    simulation.changes.clone_from(&scenario.changes);
    simulation.priors = (0..WORKERS as usize).map(|slot| prior(WorkerId::from_slot(slot))).collect();
    let at_first = simulation.present_at_first();
    let mut engine =
        Engine::new(EngineConfig { min_workers: at_first, ..config.clone() }, informed(scenario.policy, WORKERS));
    let mut log = Log { policy: scenario.policy, config, after, what, committed: 0, effects: Vec::new() };
    // A run may be aborted, or lose all its workers: it must end the same way.
    let end = simulation.run(&mut engine, &mut log).map_err(|error| error.to_string());
    // Leases that were lost end with the break.
    log.effects.retain(|(_, effect)| !matches!(effect, Effect::End { outcome: TaskOutcome::Lost, .. }));
    (log.effects, end)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(300))]
    #[test]
    fn a_restored_engine_goes_on_as_the_other_would_have(scenario in scenario()) {
        let asynchronous = POLICIES.entries().iter().any(|entry| entry.name == scenario.policy && entry.kind == PolicyKind::Asynchronous);
        for after in 1..ITERATIONS {
            // Only asynchronous leases outlive an iteration, and they end with the process.
            let undisturbed = if asynchronous { Break::Reconnect } else { Break::None };
            let (expected, expected_end) = run(&scenario, after, undisturbed);
            let (found, end) = run(&scenario, after, Break::Restore);
            for (at, (expected, found)) in expected.iter().zip(&found).enumerate() {
                prop_assert_eq!(expected, found, "after iteration {}, effect {}", after, at);
            }
            prop_assert_eq!((expected.len(), expected_end), (found.len(), end));
        }
    }
}

/// The number of workers that come and leave.
const MANY: u32 = 200;
const FEW: u32 = 2;

/// Forgets most workers in the middle of a run, and records the size of the saved state before and after.
#[derive(Default)]
struct Forgetting(Vec<usize>);

impl Observer for Forgetting {
    fn step(&mut self, _step: &Step<'_>) -> StepOutcome {
        StepOutcome { loss: Some(1.0), gradient_product: Some(-1.0), ..StepOutcome::default() }
    }

    fn committed(&mut self, _now: f64, clock: f64, engine: &mut Engine, effects: &mut Vec<Effect>) -> Option<f64> {
        // By then each worker was observed, under asynchronous policies as well.
        if engine.ledger().iterations != u64::from(2 * MANY) {
            return None;
        }
        let size = |engine: &Engine| serde_json::to_string(&engine.save()).unwrap().len();
        self.0.push(size(engine));
        for worker in (FEW..MANY).map(|slot| WorkerId::from_slot(slot as usize)) {
            engine.handle(clock, Event::WorkerLost { worker }, effects);
            engine.handle(clock, Event::WorkerForgotten { worker }, effects);
        }
        self.0.push(size(engine));
        None
    }
}

#[test]
fn nothing_is_saved_of_workers_that_are_forgotten() {
    for entry in POLICIES.entries() {
        let config =
            EngineConfig { budget: u64::from(MANY), iterations: u64::from(3 * MANY), ..EngineConfig::default() };
        let mut simulation = Simulation::new(MANY, times("shifted_exp(3, 2)", MANY, 1));
        let known = WorkerStatistics { observed: 3, total_s: 15.0, squares_s2: 80.0, ..WorkerStatistics::default() };
        simulation.priors = vec![known; MANY as usize];
        let mut forgetting = Forgetting::default();
        let min_workers = MANY as usize;
        let mut engine = Engine::new(EngineConfig { min_workers, ..config }, informed(entry.name, MANY));
        // With this few workers left, some policies cannot continue.
        drop(simulation.run(&mut engine, &mut forgetting));
        let [before, after] = forgetting.0[..] else { panic!("{}: {:?}", entry.name, forgetting.0) };
        assert!(after * 20 < before, "{}: {before} bytes, and then {after}", entry.name);
    }
}
