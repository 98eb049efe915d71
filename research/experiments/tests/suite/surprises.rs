//! Tests of `ata-auto` with events that time laws do not describe: hiccups, stalls, hangs, changes and new workers.

use ata_experiments::{Experiment, RunResult, run};
use ata_policies::build_policy;

const SEEDS: u64 = 10;

/// A law of nearly constant times.
const STEADY: &str = "gamma(0, 100, 0.033)";

struct Case {
    law: &'static str,
    workers: u32,
    budget: u64,
    changes: String,
}

fn change(text: &str) -> String {
    format!("[[change]]\n{text}\n")
}

impl Case {
    /// Returns the runs of a policy up to an iteration, one per seed.
    fn runs(&self, policy: &str, iterations: u64) -> Vec<RunResult> {
        let Self { law, workers, budget, changes } = self;
        let text = format!(
            "policies = ['{policy}']\nlaws = ['{law}']\nworkers = [{workers}]\nbudget = {budget}\niterations = {iterations}\nseeds = {SEEDS}\n{changes}"
        );
        let runs = run(&Experiment::parse(&text, "test").unwrap(), build_policy, None, &|_| {}).unwrap();
        assert_eq!(runs.len() as u64, SEEDS);
        runs
    }

    /// Returns the mean runtime of the iterations after `from` up to `to`, for each seed.
    fn runtimes(&self, policy: &str, from: u64, to: u64) -> Vec<f64> {
        let total = |run: &RunResult| run.mean_iteration_time * run.iterations as f64;
        let (before, after) = (self.runs(policy, from), self.runs(policy, to));
        let between = |(before, after): (&RunResult, &RunResult)| (total(after) - total(before)) / (to - from) as f64;
        before.iter().zip(&after).map(between).collect()
    }

    fn mean(&self, policy: &str, from: u64, to: u64) -> f64 {
        self.runtimes(policy, from, to).iter().sum::<f64>() / SEEDS as f64
    }

    /// Returns the largest ratio to a reference over seeds.
    fn worst(&self, reference: f64, from: u64, to: u64) -> f64 {
        self.runtimes("ata-auto", from, to).into_iter().map(|runtime| runtime / reference).fold(0.0, f64::max)
    }

    /// Returns the largest ratio to the oracle's mean over seeds.
    fn worst_to_oracle(&self, from: u64, to: u64) -> f64 {
        self.worst(self.mean("fta:means=current", from, to), from, to)
    }

    /// Returns the largest ratio to the mean over seeds of the same policy with only the given changes.
    fn worst_to(&self, changes: &str, from: u64, to: u64) -> f64 {
        let Self { law, workers, budget, .. } = *self;
        let reference = Self { law, workers, budget, changes: changes.into() };
        self.worst(reference.mean("ata-auto", from, to), from, to)
    }
}

/// One worker of eight is ten times slower in one iteration. Without this worker, an iteration would take an eighth longer.
#[test]
fn one_hiccup_costs_one_iteration() {
    for (workers, budget) in [(8, 8), (8, 24), (8, 64), (60, 240)] {
        let changes = change("iteration = 300\nworkers = 3\nfactor = 10\nfor = 1");
        let worst = Case { law: STEADY, workers, budget, changes }.worst_to("", 301, 321);
        assert!(worst < 1.03, "n = {workers}, B = {budget}: {worst:.3}");
    }
}

/// Two slow iterations in a row look like a permanent change, but the worker is soon tried again.
#[test]
fn a_hiccup_of_two_iterations_is_soon_forgotten() {
    for (workers, budget) in [(8, 24), (60, 120)] {
        let changes = change("iteration = 300\nworkers = 3\nfactor = 10\nfor = 2");
        let case = Case { law: STEADY, workers, budget, changes };
        let employed = |until: u64| case.runs("ata-auto", until).iter().map(|run| run.employments).sum::<u64>();
        assert_eq!(
            employed(340) - employed(310),
            30 * u64::from(workers) * SEEDS,
            "n = {workers}: all have tasks again"
        );
    }
}

/// The oracle gives the worker two of 64 tasks. Without it, the others would take ten tasks per iteration instead of nine.
#[test]
fn a_worker_slowed_for_good_is_used_for_what_it_can_do() {
    let changes = change("iteration = 300\nworkers = 3\nfactor = 4");
    let worst = Case { law: STEADY, workers: 8, budget: 64, changes }.worst_to_oracle(350, 400);
    assert!(worst < 1.03, "{worst:.3}");
}

/// All workers stall in one iteration, and later the fastest and the slowest swap their speeds.
#[test]
fn a_stall_of_all_is_forgotten() {
    for factor in [30, 1000, 100_000] {
        let stall = change(&format!("iteration = 200\nworkers = \"1..n\"\nfactor = {factor}\nfor = 1"));
        let law = "gamma(0, 100, 0.58*i)";
        let after = Case { law, workers: 17, budget: 23, changes: stall.clone() }.worst_to("", 201, 399);
        assert!(after < 1.05, "×{factor}: {after:.3}");
        let swap = change("iteration = 400\nswap = [1, 17]");
        let changes = stall + &swap;
        let later = Case { law, workers: 17, budget: 23, changes }.worst_to(&swap, 450, 1400);
        assert!(later < 1.05, "×{factor}, after a change: {later:.3}");
    }
}

/// The faster of two workers hangs while tasks are held back, and the other one takes them over. Alone, it would need 63 for an iteration.
#[test]
fn a_hang_ends_no_run() {
    let changes = change("iteration = 100\nhang = 1");
    let case = Case { law: "exp(6*i-5)", workers: 2, budget: 9, changes };
    let runtime = case.mean("ata-auto", 99, 100);
    assert!(runtime < 3.0 * 63.0, "{runtime}");
}

/// A worker that joins during iteration 100 is as fast as the others. Each iteration without it takes 12 tasks per worker instead of 10.
#[test]
fn a_newcomer_is_used_at_once() {
    let changes = change("iteration = 1\nleave = 6") + &change("iteration = 100\njoin = 6");
    let case = Case { law: STEADY, workers: 6, budget: 60, changes };
    let employed = |iterations: u64| case.runs("ata-auto", iterations).iter().map(|run| run.employments).sum::<u64>();
    assert_eq!(employed(101) - employed(100), 6 * SEEDS, "it gets a task in the first iteration");
    let worst = case.worst_to_oracle(102, 112);
    assert!(worst < 1.06, "{worst:.3}");
}
