//! Tests of `ata simulate` and `ata replay` on the command line.

use crate::support::{Sandbox, TINY};
use serde_json::Value;

/// Runs a command that must succeed, and returns what `--json` printed.
fn json(sandbox: &Sandbox, args: &[&str]) -> Vec<Value> {
    let Value::Array(list) = sandbox.summary(args) else { panic!("{args:?}: no list") };
    list
}

#[test]
fn simulate_prints_one_object_per_run() {
    let sandbox = Sandbox::new();
    let args =
        ["simulate", "--policy", "fta,ata:alpha=2265,gta", "--workers", "5,17", "--iterations", "50", "--seeds", "2"];
    let runs = json(&sandbox, &args);
    assert_eq!(runs.len(), 3 * 2 * 2);
    let fields = "policy law workers budget iterations seed mean_iteration_time mean_total_worker_time cumulative_regret \
                  tasks_wasted mean_results final_allocation";
    for field in fields.split(' ') {
        assert!(runs.iter().all(|run| run.get(field).is_some()), "{field}");
    }
    let of = |run: &Value| (run["policy"].clone(), run["workers"].clone(), run["seed"].clone());
    assert_eq!(of(&runs[0]), ("fta".into(), 5.into(), 1.into()));
    assert_eq!(of(&runs[3]), ("ata:alpha=2265".into(), 5.into(), 2.into()));
    assert_eq!(runs[0]["cumulative_regret"], 0.0, "the oracle regrets nothing");
    assert!(runs[4]["cumulative_regret"].is_null(), "a race has no allocation to regret");
    let allocation = runs[0]["final_allocation"].as_array().unwrap();
    assert_eq!(allocation.iter().map(|tasks| tasks.as_u64().unwrap()).sum::<u64>(), 23);
    assert_eq!(json(&sandbox, &args), runs, "the same seeds, the same runs");
}

/// The CNN in virtual time has exactly the parameters of a real run with the same seed, budget and tasks.
#[test]
fn what_is_learned_in_simulation_is_what_a_real_run_learns() {
    let sandbox = Sandbox::new();
    std::fs::write(
        sandbox.path("cnn.toml"),
        "title = 'A small CNN'\nabout = 'As in the real run'\npolicies = ['uta', 'ata-auto']\nworkers = [2]\nbudget = 4\niterations = 5\n\
         [learning]\nproblem = 'cnn'\ndata = 'synthetic'\nmodel = 'cnn:widths=4/4/8/16'\ntask_batch = 2\nlr = 1e-3\n",
    )
    .unwrap();
    let runs = json(&sandbox, &["simulate", "--experiment", "cnn.toml", "--out", "figures"]);
    let real = ["up", "--workers", "2", "--budget", "4", "--iterations", "5", "--task-time", "none"];
    let real = sandbox.summary(&[&real[..], &TINY].concat());
    for run in &runs {
        assert_eq!(run["final_objective"], real["final_loss"]);
    }
    for file in ["report.html", "loss-runtime.svg", "loss-runtime.csv", "iteration-time.svg"] {
        assert!(sandbox.path("figures").join(file).metadata().unwrap().len() > 100, "{file}");
    }
}

#[test]
fn experiments_are_listed_shown_and_edited() {
    let sandbox = Sandbox::new();
    let text = |args: &[&str]| sandbox.text(args);
    let list = text(&["simulate", "--list"]);
    assert!(list.contains("ata-cifar100") && list.contains("cmab-regression") && list.contains("\ncomparison "));
    assert!(text(&["simulate", "--show", "drift"]).contains("fta:means=current"), "the policies are part of the file");
    let printed = text(&["simulate", "--show", "speed-change"]);
    std::fs::write(sandbox.path("mine.toml"), printed.replace("iterations = 2000", "iterations = 20")).unwrap();
    let table = text(&["simulate", "--experiment", "mine.toml", "--seeds", "1"]);
    assert!(table.contains("20 iterations, 1 seed") && table.contains("ata-auto:track=off"), "{table}");
    assert!(text(&["policies"]).contains("ringmaster"));
}

/// Writes the times of 60 minibatches of ten workers in each of four jobs; worker i's times are about 10·i.
fn jobs(sandbox: &Sandbox) {
    std::fs::create_dir(sandbox.path("jobs")).unwrap();
    for job in 1..=4 {
        let time = |line: u32, worker: u32| (10 * worker + (line * job) % 7).to_string();
        let row = |line| (1..=10).map(|worker| time(line, worker)).collect::<Vec<_>>().join(" ");
        let rows = (1..=60).map(row).collect::<Vec<_>>().join("\n");
        std::fs::write(sandbox.path(&format!("jobs/job{job}.txt")), format!("# job {job}\n{rows}\n")).unwrap();
    }
}

#[test]
fn recorded_jobs_are_compared() {
    let sandbox = Sandbox::new();
    jobs(&sandbox);
    let flags = ["--policy", "gta,clairvoyant", "--seeds", "2", "--iterations", "5", "--out", "out"];
    let args = [&["simulate", "--experiment", "pai", "--data", "jobs"][..], &flags].concat();
    assert!(sandbox.text(&args[..args.len() - 2]).contains("Recorded jobs: runtime / worker time over "));
    let costs = json(&sandbox, &args);
    assert_eq!(costs.len(), (3 * 2 * 2 + 2 * 3) * 3);
    assert_eq!((&costs[0]["policy"], &costs[0]["runtime_ratio"]), (&"fta:means=current".into(), &1.0.into()));
    assert_eq!((&costs[0]["case"], &costs[0]["seeds"]), (&"job 1, own, B = 23, n = 10".into(), &2.into()));
    let clairvoyant = costs.iter().filter(|costs| costs["policy"] == "clairvoyant");
    let by_the_clock = clairvoyant.filter(|costs| costs["case"].as_str().unwrap().contains("wall"));
    let ratios: Vec<f64> = by_the_clock.map(|costs| costs["runtime_ratio"].as_f64().unwrap()).collect();
    assert!(ratios.len() == 9 && ratios.iter().all(|ratio| *ratio <= 1.0), "{ratios:?}");
    let markdown = std::fs::read_to_string(sandbox.path("out/comparison.md")).unwrap();
    assert!(markdown.contains("\n## Geometric means") && markdown.contains("CC-BY-4.0"), "{markdown}");
    for file in ["report.html", "comparison.svg", "comparison.csv"] {
        assert!(sandbox.path("out").join(file).metadata().unwrap().len() > 100, "{file}");
    }
}

/// A worker of a real run under `trace(FILE, wall)` takes the time in line k for every task of iteration k.
#[test]
fn real_workers_play_a_trace_by_iterations() {
    let sandbox = Sandbox::new();
    std::fs::write(sandbox.path("times.txt"), "50\n500\n").unwrap();
    let own = ["up", "--workers", "1", "--budget", "2", "--iterations", "3", "--out", "run"];
    sandbox.summary(&[&own[..], &["--task-time", "trace(times.txt, wall)", "--time-unit", "1ms"], &TINY].concat());
    let tasks = sandbox.events().into_iter().filter(|event| event["event"] == "task");
    let is_slow = tasks.map(|task| (task["iteration"].as_u64().unwrap(), task["busy_s"].as_f64().unwrap() >= 0.5));
    let is_slow: Vec<_> = is_slow.collect();
    assert_eq!(is_slow, [(1, false), (1, false), (2, true), (2, true), (3, false), (3, false)]);
}

#[test]
fn a_real_run_is_replayed_and_warms_the_next() {
    let sandbox = Sandbox::new();
    let up = |out: &str, more: &[&str]| {
        let own = ["up", "--workers", "2", "--budget", "4", "--iterations", "8", "--out", out];
        sandbox.summary(&[&own[..], &TINY[..], more].concat())
    };
    let first = up("first", &["--task-time", "const(4*i)", "--policy", "uta"]);
    let costs = json(&sandbox, &["replay", "first", "--seeds", "2", "--out", "replayed"]);
    let cost = |policy: &str| costs.iter().find(|line| line["policy"] == policy).unwrap_or_else(|| panic!("{policy}"));
    assert_eq!(cost("uta")["bootstrapped"], 0.0, "it asks for just what was recorded");
    assert!(cost("gta")["bootstrapped"].as_f64().unwrap() > 0.0, "it asks the fast worker for more");
    assert!(sandbox.path("replayed/report.html").exists() && sandbox.path("first/report.html").exists());

    let second = up("second", &["--warm-start", "first"]);
    assert_eq!(second["iterations"], 8);
    sandbox.fails(&["up", "--warm-start", "nowhere"], 65, "nowhere");
    assert_eq!(first["ended_by"], "iterations");
}

#[test]
fn nonsense_is_refused_with_the_reason() {
    let sandbox = Sandbox::new();
    std::fs::write(sandbox.path("nan.txt"), "1\n2\nNaN\n").unwrap();
    std::fs::write(sandbox.path("bad.jsonl"), "{\"event\":\"step\"}\n").unwrap();
    for (args, code, says) in [
        (&["simulate", "--policy", "adaptive-k-sync"][..], 64, "--problem"),
        (
            &["simulate", "--policy=gta", "--link=1Gbit", "--model-bytes=1MB", "--wire=compact", "--difference-bits=4"],
            64,
            "policies: gta, expected those that wait for all tasks, with links.difference_bits",
        ),
        (&["simulate", "--task-time", "trace(nan.txt)"], 65, "line 3: 'NaN'"),
        (&["simulate", "--task-time", "trace(absent.txt)"], 65, "absent.txt"),
        (&["simulate", "--budget", "-1"], 64, "-1"),
        (&["simulate", "--overcommit", "-0.5"], 64, "overcommit: -0.5"),
        (&["simulate", "--experiment", "absent"], 64, "Built-in experiments: ata-quadratic"),
        (&["simulate", "--experiment", "pai"], 64, "expected --data DIR with job1.txt to job4.txt"),
        (&["simulate", "--experiment", "pai", "--data", "absent"], 65, "job1.txt: cannot be read"),
        (&["simulate", "--experiment", "comparison", "--workers", "5"], 64, "--workers: the cases of a suite have"),
        (&["simulate", "--show", "comparison"], 64, "a suite of experiments has no file"),
        (&["up", "--policy", "fta:means=current"], 64, "only a simulation knows"),
        (&["replay", "bad.jsonl"], 65, "line 1: missing field"),
        (&["replay", "absent.jsonl"], 65, "absent.jsonl"),
    ] {
        sandbox.fails(args, code, says);
    }
}
