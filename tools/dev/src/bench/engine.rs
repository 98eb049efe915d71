//! Benchmarks results, steps and joins in the engine against the same events in a run of a hundredth of the size. The
//! work per event should not depend on the number of workers or tasks.

use std::hint::black_box;
use std::time::Duration;

use ata::Failure;
use ata_policies::build_policy;
use ata_scheduler::{Engine, EngineConfig, Event, PolicyContext, StepOutcome, WorkerStatistics};
use ata_simulator::{LawTimes, Simulation, Step, TimeLaws};
use ata_types::WorkerId;

use crate::bench::{Figure, pair};

/// The size of a run.
#[derive(Clone, Copy)]
struct Size {
    workers: u32,
    budget: u64,
    iterations: u64,
}

/// A comparison of simulated runs of two sizes, timed per applied task.
struct Case {
    name: &'static str,
    policy: &'static str,
    overcommit: f64,
    large: Size,
    small: Size,
}

const fn size(workers: u32, budget: u64, iterations: u64) -> Size {
    Size { workers, budget, iterations }
}

const CASES: [Case; 4] = [
    Case {
        name: "result of a race, B = 10^5",
        policy: "gta",
        overcommit: 0.0,
        large: size(100, 100_000, 2),
        small: size(100, 1000, 200),
    },
    Case {
        name: "asynchronous step, n = 10^5",
        policy: "asgd",
        overcommit: 0.0,
        large: size(100_000, 1, 200_000),
        small: size(1000, 1, 200_000),
    },
    Case {
        name: "single-task lease, 10^5 held by a worker",
        policy: "uta",
        overcommit: 0.1,
        large: size(1, 100_000, 2),
        small: size(1, 1000, 200),
    },
    Case {
        name: "result with change detection, B = 10^5",
        policy: "ata-auto",
        overcommit: 0.0,
        large: size(10, 100_000, 10),
        small: size(10, 1000, 1000),
    },
];

pub(crate) fn measure() -> Result<Vec<Figure>, Failure> {
    let mut figures = CASES.iter().map(simulated).collect::<Result<Vec<_>, _>>()?;
    let (large, small) = pair(3, || join(100_000), || join(1000));
    figures.push(Figure::new("join, 10^5 workers present", large / 100_000, "10^3 present", small / 1000));
    Ok(figures)
}

fn simulated(case: &Case) -> Result<Figure, Failure> {
    let mut large_cases = Vec::new();
    let mut small_cases = Vec::new();
    for _ in 0..3 {
        large_cases.push(prepared(case, case.large)?);
        small_cases.push(prepared(case, case.small)?);
    }
    let run = |runs: &mut Vec<(Engine, Simulation<LawTimes>)>| {
        if let Some((mut engine, mut simulation)) = runs.pop() {
            simulation.run(&mut engine, &mut |_: &Step<'_>| StepOutcome::default()).expect("workers stay");
            black_box(engine.ledger());
        }
    };
    let (large, small) = pair(3, || run(&mut large_cases), || run(&mut small_cases));
    let each = |total: Duration, size: Size| total / (size.budget * size.iterations) as u32;
    let reference = format!("n = {}, B = {}", case.small.workers, case.small.budget);
    Ok(Figure::new(case.name, each(large, case.large), reference, each(small, case.small)))
}

fn prepared(case: &Case, size: Size) -> Result<(Engine, Simulation<LawTimes>), Failure> {
    let Size { workers, budget, iterations } = size;
    let config = EngineConfig {
        budget,
        iterations,
        min_workers: workers as usize,
        seed: 1,
        overcommit: case.overcommit,
        ..EngineConfig::default()
    };
    let laws: TimeLaws = "uniform(1, 3)".parse()?;
    let engine = Engine::new(config, build_policy(case.policy, &PolicyContext::default())?);
    Ok((engine, Simulation::new(workers, LawTimes::new(&laws, workers, 1)?)))
}

/// Makes `workers` workers join an engine that waits for one more.
fn join(workers: usize) {
    let config = EngineConfig { min_workers: workers + 1, ..EngineConfig::default() };
    let policy = build_policy("uta", &PolicyContext::default()).expect("a built-in policy");
    let mut engine = Engine::new(config, policy);
    let mut effects = Vec::new();
    engine.handle(0.0, Event::Proceed, &mut effects);
    for worker in (0..workers).map(WorkerId::from_slot) {
        effects.clear();
        let (machine, prior) = (worker.into(), WorkerStatistics::default());
        engine.handle(0.0, Event::WorkerJoined { worker, machine, prior, fuses: false }, &mut effects);
    }
    black_box(&engine);
}
