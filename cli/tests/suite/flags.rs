//! Tests of flags that no other test needs: each has its effect.

use std::collections::BTreeMap;

use crate::support::{Sandbox, TINY};
use serde_json::Value;

fn up(sandbox: &Sandbox, flags: &[&str]) -> Value {
    let run = ["up", "--workers", "1", "--task-time", "none", "--iterations", "6", "--eval-every", "0"];
    sandbox.summary(&[&run[..], &TINY, flags].concat())
}

#[test]
fn each_flag_of_the_training_changes_the_steps() {
    let sandbox = Sandbox::new();
    let momentum = ["--optimizer", "sgd", "--momentum", "0.9"];
    let rounds = ["--local-steps", "12", "--overlap", "false", "--wire", "compact"];
    let mut known = BTreeMap::new();
    for flags in [
        &[][..],
        &["--beta1", "0.5"],
        &["--epsilon", "1e-2"],
        &momentum,
        &[&momentum[..], &["--nesterov", "true"]].concat(),
        &["--budget", "noise"],
        &["--budget", "noise", "--scale-lr", "false"],
        &["--augment", "flip"],
        &["--augment", "crop,flip,mixup"],
        &["--label-smoothing", "0.1"],
        &rounds,
        &[&rounds[..], &["--difference-bits", "8"]].concat(),
        &[&rounds[..], &["--outer-momentum", "0.5"]].concat(),
        &[&rounds[..], &["--outer-lr", "1.5"]].concat(),
    ] {
        let summary = up(&sandbox, flags);
        let sha256 = summary["parameters_sha256"].as_str().unwrap().to_owned();
        if let Some(same) = known.insert(sha256, flags.to_vec()) {
            panic!("{flags:?} takes the steps of {same:?}");
        }
    }
}

#[test]
fn checkpoints_of_some_iterations_stay() {
    let sandbox = Sandbox::new();
    up(&sandbox, &["--out", "run", "--checkpoint-every", "1", "--keep", "1", "--keep-every", "2"]);
    for iteration in 1..=6 {
        let is_kept = sandbox.path(&format!("run/checkpoints/step-{iteration:06}")).exists();
        assert_eq!(is_kept, iteration % 2 == 0, "{iteration}");
    }
}

#[test]
fn a_run_ends_when_its_worker_time_is_spent() {
    let sandbox = Sandbox::new();
    let flags = ["--iterations", "1000", "--task-time", "const(5)", "--max-worker-time-s", "0.05"];
    let run = ["up", "--workers", "2", "--budget", "2", "--eval-every", "0"];
    let summary = sandbox.summary(&[&run[..], &TINY, &flags].concat());
    let iterations = summary["iterations"].as_u64().unwrap();
    assert!(summary["total_worker_time_s"].as_f64() >= Some(0.05) && iterations < 20, "{summary}");
}

/// The file of the settings repeats the run.
#[test]
fn the_settings_of_a_run_are_in_its_folder() {
    let sandbox = Sandbox::new();
    up(&sandbox, &["--out", "run", "--journal", "full", "--time-price", "3", "--peer-hosts", "a.example,b.example"]);
    let settings = |run: &str| std::fs::read_to_string(sandbox.path(run).join("config.toml")).unwrap();
    let first = settings("run");
    for setting in ["journal = \"full\"", "time_price = 3.0", "peer_hosts = \"a.example,b.example\""] {
        assert!(first.contains(setting), "{setting} is not in {first}");
    }
    sandbox.text(&["up", "--config", "run/config.toml", "--out", "again"]);
    assert_eq!(settings("again"), first);
}

/// What a batch stands for depends on the machine, and repeats the run.
#[test]
fn a_batch_is_divided_into_tasks() {
    let sandbox = Sandbox::new();
    let run = |flags: &[&str]| {
        let run = ["up", "--workers", "2", "--task-time", "none", "--model", "cnn:widths=4/4/8/16", "--device", "cpu"];
        sandbox.summary(&[&run[..], &["--iterations", "3", "--eval-every", "0"], flags].concat())
    };
    let by_batch = run(&["--batch", "48", "--out", "run"]);
    let [budget, task_batch] = ["budget", "task_batch"].map(|key| by_batch[key].as_u64().unwrap());
    assert_eq!(budget * task_batch, 48);
    let repeated = run(&["--budget", &budget.to_string(), "--task-batch", &task_batch.to_string()]);
    assert_eq!(repeated["parameters_sha256"], by_batch["parameters_sha256"]);

    // The same command goes on with it, and another batch is refused.
    let resumed = ["up", "--resume", "run", "--iterations", "4", "--batch"];
    let summary = sandbox.summary(&[&resumed[..], &["48"]].concat());
    assert_eq!([&summary["budget"], &summary["task_batch"]], [&by_batch["budget"], &by_batch["task_batch"]]);
    let says = format!("batch = 96 is not budget = {budget} and task_batch = {task_batch}");
    sandbox.fails(&[&resumed[..], &["96"]].concat(), 64, &says);
}

#[test]
fn the_budgets_of_a_run_can_be_repeated() {
    let sandbox = Sandbox::new();
    let first = up(&sandbox, &["--budget", "noise:4", "--out", "run"]);
    let repeated = up(&sandbox, &["--budget", "path:run"]);
    assert_eq!(first["budget_path"], repeated["budget_path"]);
    assert_eq!(first["parameters_sha256"], repeated["parameters_sha256"]);
    up(&sandbox, &["--out", "plain"]);
    for (budget, says) in
        [("path:absent", "absent"), ("path:plain", "plain: expected the folder of a run with steps, and --budget auto")]
    {
        sandbox.fails(&["up", "--budget", budget], 64, says);
    }
}
