//! The engine in virtual time: under faults, over links, with extreme numbers.

mod affine;
mod costs;
mod equal;
mod extremes;
mod failures;
mod faults;
mod joined;
mod links;
mod lockstep;
mod mutated;
mod saved;

use std::sync::Arc;

use ata_policies::build_policy;
use ata_scheduler::{Effect, Engine, EngineConfig, Policy, PolicyContext, StepOutcome, Truth};
use ata_simulator::{LawTimes, Observer, Simulation, Step, TaskTimes};

/// Returns a policy that knows its workers, whose means are 1, 2, 3, …
fn informed(name: &str, workers: u32) -> Box<dyn Policy> {
    let means: Vec<f64> = (1..=workers).map(f64::from).collect();
    let truth = Some(Arc::new(means.clone()) as Arc<dyn Truth>);
    build_policy(name, &PolicyContext { means: Some(means), workers: Some(workers), truth }).unwrap()
}

#[derive(Default)]
struct Clock(Vec<f64>);

impl Observer for Clock {
    fn step(&mut self, _step: &Step<'_>) -> StepOutcome {
        StepOutcome::default()
    }

    fn effect(&mut self, _now: f64, effect: &Effect) {
        if let Effect::Committed { cost, .. } = effect {
            self.0.push(cost.runtime_s);
        }
    }
}

fn mean(times: &[f64]) -> f64 {
    times.iter().sum::<f64>() / times.len() as f64
}

/// Returns a policy that knows the number of its workers.
fn policy(name: &str, workers: u32) -> Box<dyn Policy> {
    build_policy(name, &PolicyContext { workers: Some(workers), ..PolicyContext::default() }).unwrap()
}

fn times(law: &str, workers: u32, seed: u64) -> LawTimes {
    LawTimes::new(&law.parse().unwrap(), workers, seed).unwrap()
}

fn times_of(
    policy: Box<dyn Policy>,
    mut simulation: Simulation<impl TaskTimes>,
    budget: u64,
    iterations: usize,
) -> Vec<f64> {
    let config = EngineConfig {
        budget,
        iterations: iterations as u64,
        min_workers: simulation.present_at_first(),
        rest_s: 1.0,
        seed: 1,
        takes_local_steps: simulation.links.is_some_and(|links| links.whole),
        ..EngineConfig::default()
    };
    let mut clock = Clock::default();
    simulation.run(&mut Engine::new(config, policy), &mut clock).unwrap();
    clock.0
}

/// Returns the mean time of a policy's first iterations, over seeds from 1 on.
fn mean_of(policy: &str, law: &str, workers: u32, budget: u64, iterations: usize) -> f64 {
    const SEEDS: u64 = 5;
    let of_seed = |seed| {
        let simulation = Simulation::new(workers, times(law, workers, seed));
        mean(&times_of(self::policy(policy, workers), simulation, budget, iterations))
    };
    mean(&(1..=SEEDS).map(of_seed).collect::<Vec<_>>())
}
