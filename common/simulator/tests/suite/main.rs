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
use ata_simulator::{Change, Moment, Observer, Simulation, Step, TaskTimes};

/// Returns a policy that knows its workers, whose means are 1, 2, 3, …
fn informed(name: &str, workers: u32) -> Box<dyn Policy> {
    let means: Vec<f64> = (1..=workers).map(f64::from).collect();
    let truth = Some(Arc::new(means.clone()) as Arc<dyn Truth>);
    build_policy(name, &PolicyContext { means: Some(means), workers: Some(workers), truth }).unwrap()
}

/// Records the time of each iteration.
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

/// Returns the times of a policy's iterations, with changes.
fn times_of(
    policy: &str,
    times: impl TaskTimes,
    workers: u32,
    budget: u64,
    (iterations, changes): (u64, Vec<(Moment, Change)>),
) -> Vec<f64> {
    let config = EngineConfig { budget, iterations, min_workers: workers as usize, seed: 1, ..EngineConfig::default() };
    let context = PolicyContext { workers: Some(workers), ..PolicyContext::default() };
    let mut engine = Engine::new(config, build_policy(policy, &context).unwrap());
    let mut clock = Clock::default();
    let mut simulation = Simulation { changes, ..Simulation::new(workers, times) };
    simulation.run(&mut engine, &mut clock).unwrap();
    clock.0
}
