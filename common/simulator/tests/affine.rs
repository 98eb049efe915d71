//! A device whose batches cost o + a·s, beside ordinary workers: `ata-auto` learns the best split.

use ata_scheduler::{Effect, Engine, EngineConfig, PolicyContext, StepOutcome, build_policy};
use ata_simulator::{LawTimes, Observer, Simulation, Step, TimeLaws};

/// The device: 20 ms for a batch, and half a millisecond for each of its tasks.
const FIXED: f64 = 20.0;
const PER_TASK: f64 = 0.5;

/// Milliseconds per task of the others.
const CPU: f64 = 4.0;

/// Iterations in which the costs are learned: the largest batch doubles from one to the next.
const LEARNING: usize = 20;
const ITERATIONS: u64 = 220;

/// The time of each iteration.
#[derive(Default)]
struct Times(Vec<f64>);

impl Observer for Times {
    fn step(&mut self, _step: &Step<'_>) -> StepOutcome {
        StepOutcome::default()
    }

    fn effect(&mut self, _now: f64, effect: &Effect) {
        if let Effect::Committed { cost } = effect {
            assert_eq!(cost.tasks_applied, cost.tasks_applied.max(1));
            self.0.push(cost.runtime_s);
        }
    }
}

/// The mean time of an iteration once the costs are learned.
fn learned(policy: &str, law: &str, workers: u32, budget: u64, seed: u64) -> f64 {
    let config = EngineConfig {
        budget,
        iterations: ITERATIONS,
        min_workers: workers as usize,
        seed,
        ..EngineConfig::default()
    };
    let context = PolicyContext { means: None, workers: Some(workers) };
    let mut engine = Engine::new(config, build_policy(policy, &context).unwrap());
    let laws: TimeLaws = law.parse().unwrap();
    let mut times = Times::default();
    let times_of = LawTimes::new(&laws, workers, seed).unwrap();
    Simulation::new(workers, times_of).run(&mut engine, &mut times).unwrap();
    if std::env::var("SHOW").is_ok() {
        println!("{:?}", &times.0[..40].iter().map(|x| x.round()).collect::<Vec<_>>());
        println!("{:?}", engine.statistics()[0].line());
    }
    let late = &times.0[LEARNING..];
    late.iter().sum::<f64>() / late.len() as f64
}

/// The least time in which the device and `cpus` others can compute `budget` tasks, by trying every split: the device
/// takes any number, and the others equal shares of the rest.
fn best(cpus: u32, budget: u64) -> f64 {
    let time = |batch: u64| {
        let device = if batch == 0 { 0.0 } else { FIXED + batch as f64 * PER_TASK };
        device.max((budget - batch).div_ceil(cpus.into()) as f64 * CPU)
    };
    (0..=budget).map(time).fold(f64::INFINITY, f64::min)
}

/// The law of a cluster whose first worker is the device.
fn law(device: &str, cpus: u32, others: &str) -> String {
    std::iter::once(device).chain((0..cpus).map(|_| others)).collect::<Vec<_>>().join("; ")
}

#[test]
fn the_split_is_near_the_best() {
    for cpus in 1..=4 {
        for budget in [5, 16, 23, 46, 64, 128, 512, 3000] {
            let best = best(cpus, budget);
            let found = learned("ata-auto", &law("affine(20, 0.5)", cpus, "const(4)"), cpus + 1, budget, 1);
            println!("{cpus} {budget} {best} {:.3}", found / best);
        }
    }
}

#[test]
fn noise() {
    for cpus in 1..=4 {
        for budget in [5, 16, 23, 46, 64, 128, 512, 3000] {
            let best = best(cpus, budget);
            let f = |d: &str, o: &str| {
                let found: Vec<f64> = (0..20).map(|seed| learned("ata-auto", &law(d, cpus, o), cpus + 1, budget, seed)).collect();
                (found.iter().sum::<f64>() / 20.0 / best, found.iter().copied().fold(0.0, f64::max) / best)
            };
            println!("{cpus} {budget} {best} {:.3?} {:.3?}", f("affine(20, 0.5, 0.2)", "const(4)"), f("affine(20, 0.5, 0.2)", "gamma(0, 25, 0.16)"));
        }
    }
}
