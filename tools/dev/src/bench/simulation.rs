//! Benchmarks a simulated iteration against drawing the same number of task times.

use std::hint::black_box;

use ata::Failure;
use ata_policies::build_policy;
use ata_scheduler::{Engine, EngineConfig, PolicyContext, StepOutcome};
use ata_simulator::{LawTimes, Simulation, Step, TaskTimes, TimeLaws};
use ata_types::WorkerId;

use crate::bench::{Figure, pair};

pub(crate) fn measure() -> Result<Vec<Figure>, Failure> {
    // The runs are so long that the share of their warm-up is that of typical simulations.
    Ok(vec![
        figure("simulated iteration, n = 51, B = 23", 51, 23, 20_000)?,
        figure("simulated iteration, n = 10^5, B = 10^4", 100_000, 10_000, 200)?,
    ])
}

fn figure(name: &str, workers: u32, budget: u64, iterations: u64) -> Result<Figure, Failure> {
    let laws: TimeLaws = "shifted_exp(29*i, 29*i)".parse()?;
    let times = || LawTimes::new(&laws, workers, 1);
    let engine = || -> Result<Engine, Failure> {
        let config =
            EngineConfig { budget, iterations, min_workers: workers as usize, seed: 1, ..EngineConfig::default() };
        Ok(Engine::new(config, build_policy("ata-empirical", &PolicyContext::default())?))
    };
    let mut runs = Vec::new();
    for _ in 0..3 {
        runs.push((engine()?, Simulation::new(workers, times()?)));
    }
    let (mut draws, tasks) = (times()?, iterations * budget);
    let (run, draw) = pair(
        runs.len(),
        || {
            if let Some((mut engine, mut simulation)) = runs.pop() {
                simulation.run(&mut engine, &mut |_: &Step<'_>| StepOutcome::default()).expect("workers stay");
                black_box(engine.ledger());
            }
        },
        || {
            for task in 0..tasks {
                black_box(draws.draw(WorkerId::from_slot((task % u64::from(workers)) as usize)));
            }
        },
    );
    let each = |total: std::time::Duration| total / iterations as u32;
    Ok(Figure::new(name, each(run), "drawing its task times", each(draw)))
}
