//! The costs of policies without exploration compared with the oracle: where they are as good as a bandit, and where not.

use ata_policies::build_policy;
use ata_scheduler::{Engine, EngineConfig, PolicyContext, StepOutcome};
use ata_simulator::{Change, LawTimes, Moment, Simulation, TimeLaws};
use ata_types::WorkerId;

const WORKERS: u32 = 51;
const SEEDS: u64 = 5;

/// Returns an iteration's mean runtime and mean total worker time under a policy.
fn costs(policy: &str, workers: u32, changes: &[(Moment, Change)]) -> (f64, f64) {
    let laws: TimeLaws = "shifted_exp(29*i, 29*i)".parse().unwrap();
    let context =
        PolicyContext { means: laws.means(workers).unwrap(), workers: Some(workers), ..PolicyContext::default() };
    let run = |seed| {
        let min_workers = workers as usize;
        let config = EngineConfig { budget: 23, iterations: 1000, min_workers, seed, ..EngineConfig::default() };
        let mut engine = Engine::new(config, build_policy(policy, &context).unwrap());
        let times = LawTimes::new(&laws, workers, seed).unwrap();
        let mut simulation = Simulation { changes: changes.to_vec(), ..Simulation::new(workers, times) };
        simulation.run(&mut engine, &mut |_: &ata_simulator::Step<'_>| StepOutcome::default()).unwrap();
        let ledger = engine.ledger();
        (ledger.mean_iteration_s() / SEEDS as f64, ledger.mean_total_worker_time_s() / SEEDS as f64)
    };
    (1..=SEEDS).map(run).fold((0.0, 0.0), |sum, run| (sum.0 + run.0, sum.1 + run.1))
}

/// The times 29i + Exp(29i), B = 23 (ATA paper, arXiv 2502.00775, section 6) do not change: means and RAS are as
/// good as the oracle; rounded proportional shares wait for slow workers that have one task.
#[test]
fn steady_and_unequal_workers() {
    let oracle = costs("fta", WORKERS, &[]);
    for (policy, runtime, worker_time) in [
        ("ema", 1.02, 0.86),
        ("affine", 1.00, 0.91),
        ("controller", 1.16, 0.95),
        ("proportional", 1.82, 2.03),
        ("proportional:window=10", 1.82, 2.04),
    ] {
        let got = costs(policy, WORKERS, &[]);
        for (got, expected) in [(got.0 / oracle.0, runtime), (got.1 / oracle.1, worker_time)] {
            assert!((got / expected - 1.0).abs() < 0.06, "{policy}: {got:.3} for {expected}");
        }
    }
}

/// Returns the mean runtime and worker time of 20 iterations of workers that take 1 per task, of which the last `stragglers` hardly work.
fn with_stragglers(policy: &str, workers: u32, stragglers: u32) -> (f64, f64) {
    let changes = (workers - stragglers..workers).map(|slot| {
        let worker = WorkerId::from_slot(slot as usize);
        (Moment::Iteration(1), Change::SlowDown(worker, 1e6))
    });
    let min_workers = workers as usize;
    let config = EngineConfig { budget: 12, iterations: 20, min_workers, seed: 1, ..EngineConfig::default() };
    let mut engine = Engine::new(config, build_policy(policy, &PolicyContext::default()).unwrap());
    let times = LawTimes::new(&"const(1)".parse().unwrap(), workers, 1).unwrap();
    let mut simulation = Simulation { changes: changes.collect(), ..Simulation::new(workers, times) };
    simulation.run(&mut engine, &mut |_: &ata_simulator::Step<'_>| StepOutcome::default()).unwrap();
    (engine.ledger().mean_iteration_s(), engine.ledger().mean_total_worker_time_s())
}

/// Tandon et al. (ICML 2017): with each task computed s + 1 times, any s stragglers cost no time, and the work is (s + 1)-fold.
#[test]
fn coded_gradients_need_no_straggler() {
    for s in [1, 2, 5] {
        let policy = format!("gradient-coding:stragglers={s}");
        let tasks = 12.0 / f64::from(6 / (s + 1));
        for stragglers in 0..=s {
            assert_eq!(with_stragglers(&policy, 6, stragglers), (tasks, 6.0 * tasks), "s = {s}, {stragglers} slow");
        }
        assert!(with_stragglers(&policy, 6, 6).0 > 1e6);
    }
    assert!(with_stragglers("uta", 6, 1).0 > 1e6);
}

/// With unequal workers, a queue waits for a slow one that took a task, and waits longer the more of them there are.
#[test]
fn a_queue_waits_for_the_slowest() {
    for (workers, runtime, worker_time) in [(17, 1.95, 2.39), (51, 6.03, 8.61)] {
        let (oracle, got) = (costs("fta", workers, &[]), costs("pull", workers, &[]));
        for (got, expected) in [(got.0 / oracle.0, runtime), (got.1 / oracle.1, worker_time)] {
            assert!((got / expected - 1.0).abs() < 0.03, "n = {workers}: {got:.3} for {expected}");
        }
    }
}

/// The slowest worker, which has no tasks, becomes the fastest: none of these policies finds out.
#[test]
fn an_idle_worker_that_becomes_fast_is_not_found() {
    let swap = Change::Swap(WorkerId::from_slot(0), WorkerId::from_slot(WORKERS as usize - 1));
    let changes = [(Moment::Iteration(300), swap)];
    let best = costs("ata-auto", WORKERS, &changes);
    for policy in ["ema", "affine", "controller", "proportional"] {
        let got = costs(policy, WORKERS, &changes);
        assert!(got.0 > 1.1 * best.0, "{policy}: {:.2} of ata-auto's runtime", got.0 / best.0);
    }
}
