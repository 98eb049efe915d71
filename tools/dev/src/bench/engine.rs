//! Benchmarks results, steps and joins in the engine against the same events in a run of a hundredth of the size. The
//! work per event should not depend on the number of workers or tasks.

use std::hint::black_box;
use std::time::Duration;

use ata::Failure;
use ata_policies::build_policy;
use ata_scheduler::{Engine, EngineConfig, Event, PolicyContext, WorkerStatistics};
use ata_types::WorkerId;

use crate::bench::{Figure, TimedRun, pair};

/// The numbers of workers, of tasks per iteration, and of iterations.
type Size = (u32, u64, u64);

/// Comparisons of simulated runs of two sizes, timed per applied task: name, policy, overcommitment, and both sizes.
const CASES: [(&str, &str, f64, Size, Size); 4] = [
    ("result of a race, B = 10^5", "gta", 0.0, (100, 100_000, 2), (100, 1000, 200)),
    ("asynchronous step, n = 10^5", "asgd", 0.0, (100_000, 1, 200_000), (1000, 1, 200_000)),
    ("single-task lease, 10^5 held by a worker", "uta", 0.1, (1, 100_000, 2), (1, 1000, 200)),
    ("result with change detection, B = 10^5", "ata-auto", 0.0, (10, 100_000, 10), (10, 1000, 1000)),
];

pub(crate) fn measure() -> Result<Vec<Figure>, Failure> {
    let mut figures = Vec::new();
    for (name, policy, overcommit, large, small) in CASES {
        let prepared = |(workers, budget, iterations): Size| {
            let config = EngineConfig { budget, iterations, overcommit, ..EngineConfig::default() };
            let policy = build_policy(policy, &PolicyContext::default())?;
            TimedRun::new(policy, "uniform(1, 3)", workers, config)
        };
        let (mut large_runs, mut small_runs) = (Vec::new(), Vec::new());
        for _ in 0..3 {
            large_runs.push(prepared(large)?);
            small_runs.push(prepared(small)?);
        }
        let run = |runs: &mut Vec<TimedRun>| runs.pop().into_iter().for_each(TimedRun::run);
        let (large_time, small_time) = pair(3, || run(&mut large_runs), || run(&mut small_runs));
        let each = |total: Duration, (_, budget, iterations): Size| total / (budget * iterations) as u32;
        let reference = format!("n = {}, B = {}", small.0, small.1);
        figures.push(Figure::new(name, each(large_time, large), reference, each(small_time, small)));
    }
    let (large, small) = pair(3, || join(100_000), || join(1000));
    figures.push(Figure::new("join, 10^5 workers present", large / 100_000, "10^3 present", small / 1000));
    Ok(figures)
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
