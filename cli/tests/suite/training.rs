//! Tests of `ata up` and of clusters that are started by hand, as whole processes. The parameters do not depend on the
//! policy, the workers and their failures.

use std::collections::BTreeSet;

use crate::support::{Process, Sandbox, TINY};
use serde_json::Value;

/// The settings of the run in these tests.
const RUN: [&str; 8] = ["--iterations", "12", "--budget", "10", "--lr", "1e-2", "--seed", "3"];

fn sha256(summary: &Value) -> String {
    let sha256 = summary["parameters_sha256"].as_str().unwrap();
    assert_eq!(sha256.len(), 64);
    sha256.into()
}

/// Runs `ata up` with these flags, and returns its summary.
fn up(sandbox: &Sandbox, flags: &[&str]) -> Value {
    sandbox.summary(&[&["up"], flags, &RUN, &TINY].concat())
}

/// Starts a coordinator with its run in `run`, and returns its address.
fn coordinator(sandbox: &Sandbox, flags: &[&str]) -> (Process, String) {
    sandbox.coordinator(&[&["--json"], flags, &RUN].concat())
}

#[test]
fn parameters_do_not_depend_on_policy_or_workers() {
    let sandbox = Sandbox::new();
    let data = sandbox.data();
    let train = |policy: &str, workers: &str, task_time: &str| {
        up(&sandbox, &["--data", &data, "--policy", policy, "--workers", workers, "--task-time", task_time])
    };
    let reference = train("ata-empirical", "3", "none");
    assert_eq!(reference["iterations"], 12);
    assert_eq!(reference["tasks_applied"], 120);
    assert_eq!(reference["tasks_wasted"], 0);
    for (policy, workers, task_time) in [
        ("ata-empirical", "1", "none"),
        ("ata", "7", "none"),
        ("uta", "3", "exp(3)"),
        // Races and probes compute more tasks than the step takes, but the step takes the same ones.
        ("ata-auto", "3", "exp(3*i)"),
        ("fta:means=1/2/4", "3", "scale(1); scale(2)"),
    ] {
        let summary = train(policy, workers, task_time);
        assert_eq!(sha256(&summary), sha256(&reference), "{policy}, {workers} workers");
        assert_eq!(summary["tasks_applied"], 120);
    }
    // Greedy allocation takes the first finished tasks and wastes the others.
    let greedy = train("gta", "3", "const(1); const(10)");
    assert_eq!((&greedy["tasks_applied"], greedy["iterations"].as_u64()), (&120.into(), Some(12)));
    assert!(greedy["tasks_wasted"].as_u64() > Some(0));
    // Another seed gives other parameters, so the comparison is meaningful.
    let run = ["up", "--data", &data, "--workers", "2", "--task-time", "none"];
    let other_seed = sandbox.summary(&[&run, &RUN[..6], &["--seed", "4"], &TINY[..]].concat());
    assert_ne!(sha256(&other_seed), sha256(&reference));
}

/// A run whose rounds have a chosen number of steps has as many tasks as asked for, is evaluated as often, and goes on after a stop.
#[test]
fn the_number_of_local_steps_may_be_chosen() {
    let sandbox = Sandbox::new();
    let train = |iterations: &str| {
        let workers = ["up", "--workers", "3", "--task-time", "none", "--out", "run", "--resume", "auto"];
        let steps = ["--budget", "12", "--local-steps", "auto:48", "--eval-every", "3", "--iterations", iterations];
        sandbox.summary(&[&workers[..], &steps, &TINY].concat())
    };
    assert_eq!((&train("9")["tasks_applied"], &train("12")["tasks_applied"]), (&108.into(), &144.into()));
    let evaluations = sandbox.events().iter().filter(|event| event["event"] == "evaluation").count();
    assert!((1..=4).contains(&evaluations), "{evaluations}: at most one for 36 tasks");
}

/// Nothing is gained by it on one machine.
#[test]
fn vectors_are_exchanged_in_shards_if_that_is_asked_for() {
    let sandbox = Sandbox::new();
    // The model needs at least one chunk per worker, and the tiny model has only one.
    let cluster = ["up", "--workers", "3", "--task-time", "none", "--task-batch", "2", "--device", "cpu"];
    let summary = sandbox.summary(&[&cluster, &RUN[..], &["--exchange", "shards"]].concat());
    assert!(summary["sharded_steps"].as_u64() > Some(0), "{summary}");
}

#[test]
fn a_device_computes_its_share_as_one_batch() {
    let sandbox = Sandbox::new();
    let emulated = ["--workers", "3", "--task-time", "affine(20, 0.5); const(4); const(4)"];
    up(&sandbox, &[&["--out", "run", "--policy", "uta"], &emulated[..]].concat());
    let of_device = sandbox.events().into_iter().filter(|event| event["event"] == "task" && event["worker"] == 1);
    let leases: BTreeSet<u64> = of_device.map(|event| event["lease"].as_u64().unwrap()).collect();
    assert_eq!(leases.len(), 12, "one in each iteration");
}

#[test]
fn a_run_learns_leaves_its_files_and_leans_to_the_fast() {
    let sandbox = Sandbox::new();
    let run = ["up", "--out", "run", "--workers", "3", "--iterations", "60", "--budget", "12", "--lr", "1e-2"];
    // The times are so different that the order does not depend on this machine's noise.
    let slowness = ["--task-time", "const(2); const(20); const(200)"];
    let summary = sandbox.summary(&[&run, &slowness[..], &TINY[..]].concat());
    let (first, last) = (summary["first_loss"].as_f64().unwrap(), summary["final_loss"].as_f64().unwrap());
    assert!(last < first, "{first} → {last}");
    assert!(summary["test_loss"].is_number() && summary["test_accuracy"].is_number());
    let allocation: Vec<f64> =
        summary["allocation_mean"].as_array().unwrap().iter().map(|n| n.as_f64().unwrap()).collect();
    assert!(allocation[0] > allocation[1] && allocation[1] > allocation[2], "{allocation:?}");

    let read = |name: &str| std::fs::read_to_string(sandbox.path("run").join(name)).unwrap();
    let written: Value = serde_json::from_str(&read("summary.json")).unwrap();
    assert_eq!(written, summary);
    assert!(read("config.toml").contains("budget = 12"));
    let events = sandbox.events();
    let count = |event: &str| events.iter().filter(|line| line["event"] == event).count();
    assert_eq!((count("allocation"), count("step")), (60, 60));
    assert_eq!(events.iter().filter(|line| line["outcome"] == "applied").count(), 60 * 12);
    // Lines of evaluations have no step loss.
    let metrics = read("metrics.csv");
    assert_eq!(metrics.lines().skip(1).filter(|line| line.split(',').nth(2) != Some("")).count(), 60);
    assert!(count("evaluation") >= 2 && metrics.lines().count() == 61 + count("evaluation"));

    sandbox.fails(&[&run, &TINY[..]].concat(), 64, "run already holds ");
}

/// The gradient of this run is known among its noise.
#[test]
fn a_run_says_what_its_workers_achieve() {
    let sandbox = Sandbox::new();
    let run = ["up", "--out", "run", "--workers", "2", "--iterations", "30", "--budget", "24", "--lr", "1e-2"];
    let model = ["--model", "cnn:widths=4/4/8/16", "--task-batch", "16", "--eval-every", "0", "--task-time", "none"];
    let summary = sandbox.summary(&[&run[..], &model, &["--gradient-noise"]].concat());
    let (efficiency, contributions) = (&summary["efficiency"], summary["contributions"].as_object().unwrap());
    assert!(efficiency["speed_up"].as_f64() > Some(0.0) && contributions.contains_key("2"), "{summary}");
    let explained = sandbox.text(&["explain", "run"]);
    assert!(explained.contains("a second achieves") && explained.contains("Without it, a second would"), "{explained}");
}

#[test]
fn workers_started_by_hand_fetch_their_data_once() {
    let sandbox = Sandbox::new();
    let data = sandbox.data();
    let train = || {
        let (coordinator, address) = coordinator(&sandbox, &["--min-workers", "2", "--data", &data]);
        let workers = [(); 2].map(|()| sandbox.worker(&address, &[]));
        let logs = workers.map(|worker| worker.ends_with(0).1);
        (coordinator.summary(), logs.concat().matches("fetching the training data").count())
    };
    let (first, fetched) = train();
    std::fs::remove_dir_all(sandbox.path("run")).unwrap();
    assert_eq!((first["workers"].as_u64(), fetched), (Some(2), 1), "the second worker finds it in the cache");
    let (second, fetched) = train();
    assert_eq!(fetched, 0);
    assert_eq!(sha256(&first), sha256(&second));

    let local = up(&sandbox, &["--data", &data, "--workers", "2", "--task-time", "none"]);
    assert_eq!(sha256(&local), sha256(&first));
}

/// A worker with a list of devices has a name per device.
#[test]
fn a_worker_per_device() {
    let sandbox = Sandbox::new();
    let (coordinator, address) = coordinator(&sandbox, &[]);
    let worker =
        sandbox.start(&["worker", "--coordinator", &address, "--name", "rig", "--devices", "cpu", "--fuse", "on"]);
    let (_, log) = worker.ends_with(0);
    assert!(log.contains("no longer the same bits"), "{log}");
    coordinator.ends_with(0);
    assert!(sandbox.journal().contains("\"name\":\"rig-cpu\""));

    let local = up(&sandbox, &["--devices", "cpu", "--workers", "3", "--task-time", "none"]);
    assert_eq!(local["workers"], 1, "one worker per device");
}
