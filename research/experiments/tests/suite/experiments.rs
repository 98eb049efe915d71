//! Tests of whole experiments: their results, and that these are reproducible.

use std::sync::atomic::{AtomicU64, Ordering};

use ata_experiments::suite::{CONTENDERS, REFERENCE, SUITES, Suite};
use ata_experiments::{BUILTIN_EXPERIMENTS, Experiment, RunResult};
use ata_policies::build_policy;

fn experiment(text: &str) -> Experiment {
    Experiment::parse(text, "test").unwrap()
}

fn run(experiment: &Experiment) -> Vec<RunResult> {
    let learning = experiment.learning().unwrap();
    ata_experiments::run(experiment, build_policy, learning.as_ref(), &|_| {}).unwrap()
}

/// Runs policies under a law, with further settings.
fn runs(policies: &str, law: &str, (workers, budget, iterations): (u32, u64, u64), more: &str) -> Vec<RunResult> {
    let sizes = format!("workers = [{workers}]\nbudget = {budget}\niterations = {iterations}");
    run(&experiment(&format!("policies = [{policies}]\nlaws = ['{law}']\n{sizes}\n{more}")))
}

fn times(runs: &[RunResult]) -> Vec<f64> {
    runs.iter().map(|run| run.mean_iteration_time).collect()
}

/// Every built-in experiment is run, shortened, with every policy that it names. Experiments with a CNN are run without learning.
#[test]
fn built_in_experiments_run_and_are_drawn() {
    for (name, text) in BUILTIN_EXPERIMENTS {
        let mut experiment = Experiment::parse(text, name).unwrap();
        assert!(!experiment.title.is_empty() && !experiment.about.is_empty(), "{name} says what it is");
        experiment.check().unwrap_or_else(|error| panic!("{name}: {error}"));
        (experiment.iterations, experiment.seeds) = (40, 2);
        experiment.workers.truncate(1);
        experiment.laws.truncate(1);
        experiment.overcommit.truncate(2);
        let results = run(&experiment);
        assert!(results.iter().all(|run| run.iterations == 40 && run.mean_iteration_time > 0.0), "{name}");
        let figures = ata_experiments::figures(&experiment, &results);
        let named: Vec<&str> = figures.iter().map(|figure| figure.name.as_str()).collect();
        assert!(named.contains(&"iteration-time") && named.contains(&"worker-time"), "{name}: {named:?}");
        assert_eq!(named.contains(&"frontier"), ["overcommit", "frontier"].contains(name));
        assert_eq!(named.contains(&"window-time"), !experiment.change.is_empty());
        for figure in &figures {
            figure.svg().unwrap_or_else(|error| panic!("{name}, {}: {error}", figure.name));
        }
    }
}

/// Four workers share a link on which each gradient takes 0.36 s. Alone, the fastest worker takes 460 ms and sends one gradient.
#[test]
fn a_narrow_link_is_worth_fewer_workers() {
    let links = "[links]\nlink = '200Mbit'\nmodel_bytes = '8.9MB'\nexchange = 'star'\n";
    let laws = "workers = [4]\niterations = 200\nlaws = ['const(20); const(40); const(80); const(160)']\npolicies = ['fta', 'ata-auto']\n";
    let with = format!("{laws}{links}");
    let compact = with.replace("[links]", "[links]\nwire = 'compact'");
    // In shards, the exchange of four workers takes 1.75 times as long as one gradient, and the last chunks an eighth of it more.
    let sharded = |text: &str| text.replace("exchange = 'star'\n", "");
    for (text, policy, expected) in [
        (laws, "fta", 259.0..261.0),
        (&with, "fta", 4.0 * 356.0..f64::INFINITY),
        (&with, "ata-auto", 816.0..900.0),
        (&compact, "ata-auto", 530.0..550.0),
        (&sharded(&with), "fta", 922.0..932.0),
        (&sharded(&compact), "ata-auto", 490.0..505.0),
    ] {
        let results = run(&experiment(text));
        let time = results.iter().find(|run| run.policy == policy).unwrap().mean_iteration_time;
        assert!(expected.contains(&time), "{text}, {policy}: {time}");
    }
}

/// In the whole comparison, with ten iterations per case, every case has a row, and the reference's ratio to itself is 1.
#[test]
fn the_comparison_has_every_case_for_every_policy() {
    let mut suite = Suite::open("comparison", None).unwrap().unwrap();
    for case in &mut suite.cases {
        (case.experiment.iterations, case.experiment.seeds) = (10, 1);
    }
    let done = AtomicU64::new(0);
    let progress = |iterations| {
        done.fetch_add(iterations, Ordering::Relaxed);
    };
    let result = suite.run(build_policy, &progress).unwrap();
    assert_eq!(done.into_inner(), suite.total_iterations());
    assert_eq!(result.costs.len() % (1 + CONTENDERS.len()), 0);
    assert!(result.costs.iter().all(|costs| costs.runtime_ratio > 0.0 && costs.worker_time_ratio > 0.0));
    for mean in result.means() {
        let is_reference = mean.policy == REFERENCE;
        assert!(!is_reference || (mean.runtime_ratio, mean.worker_time_ratio) == (1.0, 1.0), "{mean:?}");
        assert!(mean.policy != "clairvoyant" || mean.runtime_ratio < 1.1, "{mean:?}");
    }
    assert_eq!(result.tables().len(), 2 + 8 + 1);
    result.figure().svg().unwrap();
    assert!(SUITES.iter().any(|(name, _)| *name == "comparison") && Suite::open("drift", None).is_none());
    let two = suite.compare(["gta", REFERENCE].into_iter());
    assert!(two.cases.iter().all(|case| case.experiment.policies == [REFERENCE, "gta"]));
}

#[test]
fn the_number_of_threads_changes_nothing() {
    let experiment =
        experiment("policies = ['ata-auto', 'gta', 'asgd']\nworkers = [5, 17]\niterations = 60\nseeds = 3");
    let with_threads = |threads| {
        let pool = rayon::ThreadPoolBuilder::new().num_threads(threads).build().unwrap();
        pool.install(|| run(&experiment))
    };
    assert_eq!(with_threads(1), with_threads(4));
}

/// Barrier policies that use all B tasks take the same steps, which are computed once for all policies and seeds.
#[test]
fn gradients_are_computed_once_per_distinct_sequence_of_steps() {
    let quadratic = "\n[learning]\nproblem = 'quadratic'\ndimension = 20\nsigma = 0.01\nstep = 0.5";
    let computed = |policies: &str, seeds: u64| {
        let experiment = experiment(&format!(
            "policies = {policies}\nworkers = [5]\niterations = 50\nbudget = 4\nseeds = {seeds}{quadratic}"
        ));
        let learning = experiment.learning().unwrap().unwrap();
        let results = ata_experiments::run(&experiment, build_policy, Some(&learning), &|_| {}).unwrap();
        (learning.computed(), results)
    };
    let (steps, results) = computed("['fta', 'uta', 'ata', 'ata-auto']", 3);
    assert_eq!((steps, results.len()), (50, 12));
    assert!(results.iter().all(|run| run.final_objective == results[0].final_objective));
    let (steps, results) = computed("['gta', 'asgd', 'ringmaster:R=3']", 1);
    assert!(steps > 100, "each takes different steps");
    let first = |run: &RunResult| run.trace.checkpoints[0].objective.unwrap();
    assert!(results.iter().all(|run| run.final_objective.unwrap() < first(run)), "and all of them learn");
}

#[test]
fn what_an_assignment_costs_is_in_the_runtime_only() {
    let costs = |overhead: &str| {
        let run = &runs("'fta'", "const(i)", (2, 3, 10), overhead)[0];
        (run.mean_iteration_time, run.mean_total_worker_time)
    };
    assert_eq!(costs(""), (2.0, 4.0));
    assert_eq!(costs("overhead = 'const(5)'"), (7.0, 4.0));
}

/// The constant times are 1 and 3. The fast worker is slow from iteration 6 on, and the regret uses the current means.
#[test]
fn speeds_change_at_their_iterations() {
    let swap = "[[change]]\niteration = 6\nswap = [1, 2]";
    let run = &runs("'fta'", "const(2*i-1)", (2, 4, 10), swap)[0];
    // The allocation (3, 1) takes 3 before the change and 3·3 = 9 after it.
    assert!((run.mean_iteration_time - f64::midpoint(3.0, 9.0)).abs() < 1e-9);
    assert!((run.cumulative_regret.unwrap() - 5.0 * 6.0).abs() < 1e-9);
}

/// An oracle decides by the current means: (3, 1) takes 3 before the swap, and (1, 3) takes 3 after it.
#[test]
fn oracles_see_changes_of_speed_in_the_iteration_in_which_they_happen() {
    let swap = "[[change]]\niteration = 6\nswap = [1, 2]\n[[change]]\niteration = 8\nslow_down = 1\nfactor = 3.0";
    for run in runs("'fta:means=current', 'clairvoyant'", "const(2*i-1)", (2, 4, 10), swap) {
        // From iteration 8 on, tasks take 9 and 1.
        assert!((run.mean_iteration_time - (7.0 * 3.0 + 3.0 * 4.0) / 10.0).abs() < 1e-9, "{}", run.policy);
        assert_eq!(run.cumulative_regret, Some(0.0), "{}", run.policy);
    }
}

/// With known times, each iteration ends as soon as possible, overhead included. The effect on later iterations is
/// small here, though not always positive.
#[test]
fn the_clairvoyant_is_faster_than_all_who_wait_for_as_much() {
    for overhead in ["", "overhead = 'const(40)'", "overhead = 'exp(40)'"] {
        let results = run(&experiment(&format!(
            "policies = ['clairvoyant', 'fta:means=current', 'fta', 'ata-empirical', 'uta']\nlaws = ['exp(58*i)', 'affine(50*i, i, 0.3)']\n\
             workers = [12]\niterations = 200\n{overhead}\n[[change]]\niteration = 90\nswap = [1, 12]"
        )));
        for of_law in results.chunks(5) {
            let least = of_law[0].mean_iteration_time;
            assert!(of_law[1..].iter().all(|run| run.mean_iteration_time >= least), "{overhead}, {}", of_law[0].law);
        }
    }
}

#[test]
fn the_better_oracle_is_the_reference() {
    for (policies, oracle) in [
        ("'uta', 'fta', 'fta:means=current'", Some("fta:means=current")),
        ("'uta', 'fta'", Some("fta")),
        ("'uta'", None),
    ] {
        let results = run(&experiment(&format!("policies = [{policies}]\nworkers = [3]\niterations = 2")));
        let groups = ata_experiments::groups(&results);
        assert_eq!(groups[0].oracle().map(|row| row.name.as_str()), oracle, "{policies}");
    }
}

/// Returns a trace of two workers whose speeds cross over: B = 4 tasks, with times 1 and 3, then 3 and 1.
fn crossing() -> (tempfile::NamedTempFile, String) {
    let file = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(file.path(), "1 3\n".repeat(6) + &"3 1\n".repeat(6)).unwrap();
    let path = file.path().display().to_string();
    (file, path)
}

/// By iterations, the oracle's allocation (the columns' means are 2 and 2, so 2 tasks each) takes the slower worker's 2·3 throughout, and
/// the clairvoyant takes 3. By tasks, a worker's position in the trace is the number of tasks that it has computed.
#[test]
fn a_trace_is_played_by_iterations_or_by_tasks() {
    let (_file, path) = crossing();
    let of = |order: &str| times(&runs("'fta', 'clairvoyant'", &format!("trace({path}, {order})"), (2, 4, 12), ""));
    assert_eq!(of("wall"), [6.0, 3.0]);
    let own = of("own");
    assert_eq!(own[0], 6.0, "two tasks each: worker 2's first half, then worker 1's second half, and again");
    assert!(own[1] < 6.0 && own[1] != 3.0, "{own:?}");
}

/// The first seed plays a trace as it is, whatever its value; further seeds play a resample if the trace allows it.
#[test]
fn further_seeds_resample_a_trace_with_blocks() {
    let (_file, path) = crossing();
    let of = |block: &str, seed: u64| {
        let law = format!("trace({path}, own{block})");
        times(&runs("'clairvoyant'", &law, (2, 4, 4), &format!("seed = {seed}\nseeds = 4")))
    };
    let exact = of("", 1);
    assert!(exact.iter().all(|time| *time == exact[0]));
    for seed in [1, 5] {
        let resampled = of(", block=2", seed);
        assert_eq!(resampled[0], exact[0]);
        assert!(resampled[1..].iter().any(|time| *time != exact[0]), "{resampled:?}");
    }
}

#[test]
fn workers_come_and_go() {
    let time = |changes: &str| runs("'uta'", "const(1)", (2, 2, 10), changes)[0].mean_iteration_time;
    assert_eq!(time(""), 1.0);
    // Worker 2 leaves in the middle of iteration 6. Worker 1 computes its task after its own, and so in all later iterations.
    assert!((time("[[change]]\ntime = 5.5\nleave = 2") - (5.0 + 5.0 * 2.0) / 10.0).abs() < 1e-9);
    // Worker 2 joins in iteration 4 and gets tasks from the next one on.
    let late = time("[[change]]\niteration = 4\njoin = 2");
    assert!((late - (3.0 * 2.0 + 2.0 + 6.0) / 10.0).abs() < 1e-9, "{late}");

    let nobody = experiment(
        "policies = ['uta']\nlaws = ['const(1)']\nworkers = [2]\nbudget = 2\niterations = 10\n\
         [[change]]\ntime = 5.5\nleave = 2\n[[change]]\ntime = 7.5\nleave = 1",
    );
    let error = ata_experiments::run(&nobody, build_policy, None, &|_| {}).unwrap_err();
    assert!(error.to_string().contains("at time 7.5, in iteration 7, the run cannot continue"), "{error}");
}

#[test]
fn limits_end_a_run() {
    for (limit, expected) in [("", 100), ("runtime = 7.0", 7), ("total_worker_time = 7.0", 4), ("employments = 9", 5)] {
        let runs = runs("'uta'", "const(1)", (2, 2, 100), &format!("[limits]\n{limit}"));
        assert_eq!(runs[0].iterations, expected, "{limit}");
    }
}

/// A right prior saves the warm-up of ATA-Empirical (ATA-Auto has hardly any). A wrong one is dropped and only causes a delay.
#[test]
fn a_warm_start_helps_and_a_wrong_one_only_delays() {
    for (policy, helps, delays) in [("ata-empirical", 0.5, 1.2), ("ata-auto", 1.05, 2.0)] {
        let text = format!(
            "policies = ['{policy}']\niterations = 100\nseeds = 5\nwarm_start = ['none', 'shifted_exp(29*i, 29*i)', \
             'shifted_exp(29*(n+1-i), 29*(n+1-i))']"
        );
        let results = run(&experiment(&text));
        let mean = |at: usize| results[5 * at..5 * at + 5].iter().map(|run| run.mean_iteration_time).sum::<f64>() / 5.0;
        let (cold, right, wrong) = (mean(0), mean(1), mean(2));
        let said = format!("{policy}: cold {cold}, right {right}, wrong {wrong}");
        assert!(right < helps * cold && wrong < delays * cold, "{said}");
    }
}

#[test]
fn a_policy_that_cannot_be_is_refused_before_anything_runs() {
    for (policy, message) in [
        ("k-sync:k=9", "policy k-sync:k=9, 4 workers: policy parameter k=9: there are only 4 workers"),
        ("adaptive-k-sync", "nothing is learned"),
        ("atta", "unknown policy 'atta'"),
    ] {
        let experiment = experiment(&format!("policies = ['uta', '{policy}']\nworkers = [4]\niterations = 10"));
        let error = ata_experiments::run(&experiment, build_policy, None, &|_| panic!("something runs"))
            .unwrap_err()
            .to_string();
        assert!(error.contains(message), "{policy}: {error}");
    }
}
