//! Tests of `ata-auto` against the oracle that knows the means.

use ata_experiments::{Experiment, RunResult};
use ata_policies::build_policy;

fn run(law: &str, workers: u32, iterations: u64, seeds: u64, more: &str) -> Vec<RunResult> {
    let text = format!(
        "policies = ['fta', 'ata-auto']\nlaws = ['{law}']\nworkers = [{workers}]\niterations = {iterations}\nseeds = {seeds}\n{more}"
    );
    ata_experiments::run(&Experiment::parse(&text, "test").unwrap(), build_policy, None, &|_| {}).unwrap()
}

type Measure = fn(&RunResult) -> f64;

fn mean(runs: &[RunResult], of: Measure) -> f64 {
    runs.iter().map(of).sum::<f64>() / runs.len() as f64
}

/// Checks the mean over seeds and the worst seed of runtime and total worker time against the oracle's means.
fn check(law: &str, workers: u32, iterations: u64, seeds: u64, most: f64, worst: f64) {
    let runs = run(law, workers, iterations, seeds, "");
    let (oracle, auto) = runs.split_at(seeds as usize);
    let measures: [(&str, Measure); 2] =
        [("runtime", |run| run.mean_iteration_time), ("worker time", |run| run.mean_total_worker_time)];
    for (name, of) in measures {
        let best = mean(oracle, of);
        let ratio = mean(auto, of) / best;
        let largest = auto.iter().map(of).fold(0.0, f64::max) / best;
        let said = format!("{law}, n = {workers}, K = {iterations}, {name}: {ratio:.3}, worst {largest:.3}");
        assert!(ratio <= most && largest <= worst, "{said}");
    }
}

const LINEAR: &str = "shifted_exp(29*i, 29*i)";

#[test]
fn linear_speeds() {
    check(LINEAR, 51, 100, 20, 1.6, 2.0);
    check(LINEAR, 51, 1000, 200, 1.12, 1.5);
    check(LINEAR, 17, 1000, 20, 1.12, 1.5);
    check(LINEAR, 153, 1000, 10, 1.12, 1.5);
    check(LINEAR, 459, 1000, 6, 1.12, 1.5);
}

#[test]
fn other_laws() {
    for law in [
        "shifted_exp(29*sqrt(i), 29*sqrt(i))",
        "exp(58*i)",
        "uniform(29*i, 87*i)",
        "half_normal(29*i, 36*i)",
        "const(58*i)",
        "exp(58*i); uniform(29*i, 87*i); half_normal(29*i, 36*i); lognormal(29*i, ln(29*i) - 0.125, 0.5); gamma(0, 2, 29*i)",
    ] {
        check(law, 51, 1000, 20, 1.12, 1.5);
        check(law, 17, 1000, 20, 1.12, 1.5);
    }
}

/// The coefficients of variation are above 1.
#[test]
fn heavy_tails() {
    for law in ["gamma(0, 0.5, 116*i)", "weibull(0, 0.5, 29*i)", "lognormal(0, ln(30*i), 1.2)"] {
        check(law, 51, 1000, 200, 1.25, 1.5);
    }
    // The coefficient of variation is 2.9, so even the oracle's worst seed is far from its mean.
    check("lognormal(0, ln(20*i), 1.5)", 51, 1000, 20, 1.25, f64::INFINITY);
}

/// After two workers swap speeds at iteration 1000, the window average is within 1.15 × the oracle's again after 200 iterations.
#[test]
fn swapped_speeds() {
    for (a, b) in [(1, 51), (1, 30), (2, 20), (3, 40)] {
        let swap = format!("[[change]]\niteration = 1001\nswap = [{a}, {b}]");
        let runs = run(LINEAR, 51, 1200, 20, &swap);
        // The best allocation costs the same with the workers swapped.
        let oracle = mean(&run(LINEAR, 51, 1200, 5, "")[..5], |run| run.mean_iteration_time);
        let window = |run: &RunResult| {
            let at = |iteration| run.trace.checkpoints.iter().find(|at| at.iteration == iteration).unwrap().runtime;
            (at(1200) - at(1104)) / 96.0
        };
        let ratio = mean(&runs[20..], window) / oracle;
        assert!(ratio < 1.15, "{a} <-> {b}: {ratio:.3}");
    }
}
