//! Benchmarks a simulated iteration against drawing the same number of task times.

use std::hint::black_box;

use ata::Failure;
use ata_policies::build_policy;
use ata_scheduler::{EngineConfig, PolicyContext};
use ata_simulator::{LawTimes, TaskTimes};
use ata_types::WorkerId;

use crate::bench::{Figure, LAW, TimedRun, pair};

pub(crate) fn measure() -> Result<Vec<Figure>, Failure> {
    // The runs are so long that the share of their warm-up is that of typical simulations.
    Ok(vec![
        figure("simulated iteration, n = 51, B = 23", 51, 23, 20_000)?,
        figure("simulated iteration, n = 10^5, B = 10^4", 100_000, 10_000, 200)?,
    ])
}

fn figure(name: &str, workers: u32, budget: u64, iterations: u64) -> Result<Figure, Failure> {
    let mut runs = Vec::new();
    for _ in 0..3 {
        let policy = build_policy("ata-empirical", &PolicyContext::default())?;
        let config = EngineConfig { budget, iterations, ..EngineConfig::default() };
        runs.push(TimedRun::new(policy, LAW, workers, config)?);
    }
    let (mut draws, tasks) = (LawTimes::new(&LAW.parse()?, workers, 1)?, iterations * budget);
    let (run, draw) = pair(
        runs.len(),
        || runs.pop().into_iter().for_each(TimedRun::run),
        || {
            for task in 0..tasks {
                black_box(draws.draw(WorkerId::from_slot((task % u64::from(workers)) as usize)));
            }
        },
    );
    let each = |total: std::time::Duration| total / iterations as u32;
    Ok(Figure::new(name, each(run), "drawing its task times", each(draw)))
}
