//! What policies cost: the published figures, and where policies without exploration are as good as a bandit.

use ata_policies::build_policy;
use ata_scheduler::{Engine, EngineConfig, PolicyContext, StepOutcome};
use ata_simulator::{Change, Moment, Simulation, Step, TimeLaws};
use ata_types::WorkerId;

use crate::times;

/// The workers of the ATA paper (arXiv 2502.00775, section 6), where B = 23.
const PAPER: &str = "shifted_exp(29*i, 29*i)";
const SEEDS: u64 = 5;

/// Returns the mean runtime and the mean total worker time of an iteration, over seeds from 1 on.
fn run(
    policy: &str,
    (law, workers, budget): (&str, u32, u64),
    (iterations, seeds): (u64, u64),
    changes: &[(Moment, Change)],
) -> (f64, f64) {
    let laws: TimeLaws = law.parse().unwrap();
    let context =
        PolicyContext { means: laws.means(workers).unwrap(), workers: Some(workers), ..PolicyContext::default() };
    let run = |seed| {
        let config =
            EngineConfig { budget, iterations, min_workers: workers as usize, seed, ..EngineConfig::default() };
        let mut engine = Engine::new(config, build_policy(policy, &context).unwrap());
        let times = times(law, workers, seed);
        let mut simulation = Simulation { changes: changes.to_vec(), ..Simulation::new(workers, times) };
        simulation.run(&mut engine, &mut |_: &Step<'_>| StepOutcome::default()).unwrap();
        (engine.ledger().mean_iteration_s(), engine.ledger().mean_total_worker_time_s())
    };
    let sum = (1..=seeds).map(run).fold((0.0, 0.0), |sum, run| (sum.0 + run.0, sum.1 + run.1));
    (sum.0 / seeds as f64, sum.1 / seeds as f64)
}

fn assert_near(got: (f64, f64), expected: (f64, f64), tolerance: f64, what: &str) {
    for (got, expected) in [(got.0, expected.0), (got.1, expected.1)] {
        assert!((got / expected - 1.0).abs() < tolerance, "{what}: {got:.3} for {expected}");
    }
}

/// The tight constants of ATA and ATA-Empirical are 2265 and 0.766.
#[test]
fn published_figures() {
    for (policy, workers, sizes, runtime, worker_time, tolerance) in [
        ("fta", 17, (20_000, 1), 780.0, 4002.0, 0.01),
        ("gta", 17, (20_000, 1), 494.0, 8405.0, 0.01),
        ("uta", 17, (20_000, 1), 2148.0, 12010.0, 0.01),
        ("fta", 51, (20_000, 1), 780.0, 4002.0, 0.01),
        ("gta", 51, (20_000, 1), 493.0, 25157.0, 0.01),
        ("uta", 51, (20_000, 1), 4769.0, 34680.0, 0.01),
        ("ata:alpha=2265", 51, (100, 60), 4803.0, 34831.0, 0.02),
        ("ata:alpha=2265", 51, (1000, 20), 3046.0, 17124.0, 0.02),
        ("ata-empirical:eta=0.766", 51, (100, 60), 4822.0, 34950.0, 0.02),
        ("ata-empirical:eta=0.766", 51, (1000, 20), 2656.0, 12328.0, 0.02),
    ] {
        let got = run(policy, (PAPER, workers, 23), sizes, &[]);
        assert_near(got, (runtime, worker_time), tolerance, &format!("{policy}, n = {workers}"));
    }
}

/// If times do not change, means and RAS are as good as the oracle; rounded proportional shares wait for slow workers that have one
/// task. With unequal workers, a queue waits for a slow one that took a task, and waits longer the more of them there are.
#[test]
fn steady_and_unequal_workers() {
    for (policy, workers, runtime, worker_time, tolerance) in [
        ("ema", 51, 1.02, 0.86, 0.06),
        ("affine", 51, 1.00, 0.91, 0.06),
        ("controller", 51, 1.16, 0.95, 0.06),
        ("proportional", 51, 1.82, 2.03, 0.06),
        ("proportional:window=10", 51, 1.82, 2.04, 0.06),
        ("pull", 17, 1.95, 2.39, 0.03),
        ("pull", 51, 6.03, 8.61, 0.03),
    ] {
        let [oracle, got] = ["fta", policy].map(|policy| run(policy, (PAPER, workers, 23), (1000, SEEDS), &[]));
        let ratios = (got.0 / oracle.0, got.1 / oracle.1);
        assert_near(ratios, (runtime, worker_time), tolerance, &format!("{policy}, n = {workers}"));
    }
}

/// Returns the costs of six workers that take 1 per task, of which the last `stragglers` hardly work.
fn with_stragglers(policy: &str, stragglers: usize) -> (f64, f64) {
    let slow = |slot| (Moment::Iteration(1), Change::SlowDown(WorkerId::from_slot(slot), 1e6));
    run(policy, ("const(1)", 6, 12), (20, 1), &(6 - stragglers..6).map(slow).collect::<Vec<_>>())
}

/// Tandon et al. (ICML 2017): with each task computed s + 1 times, any s stragglers cost no time, and the work is (s + 1)-fold.
#[test]
fn coded_gradients_need_no_straggler() {
    for s in [1, 2, 5] {
        let policy = format!("gradient-coding:stragglers={s}");
        let tasks = 12.0 / (6 / (s + 1)) as f64;
        for stragglers in 0..=s {
            assert_eq!(with_stragglers(&policy, stragglers), (tasks, 6.0 * tasks), "s = {s}, {stragglers} slow");
        }
        assert!(with_stragglers(&policy, 6).0 > 1e6);
    }
    assert!(with_stragglers("uta", 1).0 > 1e6);
}
