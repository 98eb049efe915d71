//! Tests the published figures: times X_i = 29i + Exp(29i), B = 23 (ATA paper, arXiv 2502.00775, section 6).

use ata_policies::build_policy;
use ata_scheduler::{Engine, EngineConfig, Ledger, PolicyContext, StepOutcome};
use ata_simulator::{LawTimes, Simulation, TimeLaws};

/// Runs one policy and returns its costs.
fn run(policy: &str, workers: u32, iterations: u64, seed: u64) -> Ledger {
    let laws: TimeLaws = "shifted_exp(29*i, 29*i)".parse().unwrap();
    let context =
        PolicyContext { means: laws.means(workers).unwrap(), workers: Some(workers), ..PolicyContext::default() };
    let config =
        EngineConfig { budget: 23, iterations, min_workers: workers as usize, seed, ..EngineConfig::default() };
    let mut engine = Engine::new(config, build_policy(policy, &context).unwrap());
    let times = LawTimes::new(&laws, workers, seed).unwrap();
    Simulation::new(workers, times)
        .run(&mut engine, &mut |_: &ata_simulator::Step<'_>| StepOutcome::default())
        .unwrap();
    engine.ledger().clone()
}

/// Checks the means over seeds 1..=`seeds` of runtime and total worker time per iteration against published ones.
fn check(policy: &str, workers: u32, iterations: u64, seeds: u64, expected: (f64, f64), tolerance: f64) {
    let runs: Vec<Ledger> = (1..=seeds).map(|seed| run(policy, workers, iterations, seed)).collect();
    let mean = |of: fn(&Ledger) -> f64| runs.iter().map(of).sum::<f64>() / seeds as f64;
    let got = (mean(Ledger::mean_iteration_s), mean(Ledger::mean_total_worker_time_s));
    for (got, expected) in [(got.0, expected.0), (got.1, expected.1)] {
        let error = got / expected - 1.0;
        assert!(error.abs() < tolerance, "{policy}, n = {workers}: {got:.0} for {expected} ({:+.1} %)", error * 100.0);
    }
}

#[test]
fn oracle_greedy_and_uniform() {
    for (policy, workers, runtime, total) in [
        ("fta", 17, 780.0, 4002.0),
        ("gta", 17, 494.0, 8405.0),
        ("uta", 17, 2148.0, 12010.0),
        ("fta", 51, 780.0, 4002.0),
        ("gta", 51, 493.0, 25157.0),
        ("uta", 51, 4769.0, 34680.0),
    ] {
        check(policy, workers, 20_000, 1, (runtime, total), 0.01);
    }
}

#[test]
fn ata_with_the_tight_constants() {
    check("ata:alpha=2265", 51, 100, 60, (4803.0, 34831.0), 0.02);
    check("ata:alpha=2265", 51, 1000, 20, (3046.0, 17124.0), 0.02);
    check("ata-empirical:eta=0.766", 51, 100, 60, (4822.0, 34950.0), 0.02);
    check("ata-empirical:eta=0.766", 51, 1000, 20, (2656.0, 12328.0), 0.02);
}

#[test]
fn the_same_seed_gives_the_same_run() {
    let (a, b) = (run("ata-empirical", 17, 200, 4), run("ata-empirical", 17, 200, 4));
    assert_eq!(a.iteration_time_s.to_bits(), b.iteration_time_s.to_bits());
    assert_eq!(a.workers, b.workers);
    assert_ne!(a.iteration_time_s, run("ata-empirical", 17, 200, 5).iteration_time_s);
}
