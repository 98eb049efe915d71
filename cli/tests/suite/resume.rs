//! Tests of runs that are stopped and resumed, as whole processes. The parameters must be those of an undisturbed run.
#![cfg(unix)]

use std::path::Path;

use crate::support::{Process, Sandbox, TINY, until};
use serde_json::{Value, json};

/// The settings of a run that is long enough to be interrupted, and saved often.
const RUN: [&str; 8] = ["--iterations", "60", "--budget", "6", "--checkpoint-every", "5", "--lr", "1e-2"];

fn undisturbed(sandbox: &Sandbox) -> Value {
    let up = ["up", "--out", "undisturbed", "--workers", "1", "--task-time", "none"];
    sandbox.summary(&[&up[..], &RUN, &TINY].concat())
}

fn steps(run: &Path) -> usize {
    let text = std::fs::read_to_string(run.join("metrics.csv")).unwrap_or_default();
    text.lines().skip(1).filter(|line| line.split(',').nth(2) != Some("")).count()
}

fn coordinator(sandbox: &Sandbox, port: &str, data: &str) -> Process {
    let listen = format!("127.0.0.1:{port}");
    let head = ["coordinator", "--listen", &listen, "--out", "run", "--resume", "auto", "--json", "--data", data];
    sandbox.start(&[&head[..], &RUN, &TINY].concat())
}

/// The coordinator is killed, asked to stop and interrupted; its worker keeps running. It checks its training data only once, which may
/// take seconds, so it is ready when a coordinator returns.
#[test]
fn a_resumed_run_ends_as_if_nothing_had_happened() {
    let sandbox = Sandbox::new();
    let data = sandbox.data();
    let up = ["up", "--out", "undisturbed", "--data", &data, "--workers", "1", "--task-time", "none"];
    let expected = sandbox.summary(&[&up[..], &RUN, &TINY].concat());
    let (run, own) = (sandbox.path("run"), sandbox.path("own"));
    std::fs::create_dir(&own).unwrap();
    std::fs::copy(Path::new(&data).join("train.bin"), own.join("train.bin")).unwrap();
    let mut head = coordinator(&sandbox, "0", &data);
    let port = head.port();
    let address = format!("http://127.0.0.1:{port}");
    // The worker is slow enough for the coordinator to be stopped in the meantime.
    let worker = sandbox.worker(&address, &["--task-time", "const(8)", "--data", own.to_str().unwrap()]);
    for (signal, code, at) in [("KILL", None, 3), ("KILL", None, 14), ("TERM", Some(75), 25), ("INT", Some(130), 36)] {
        until("progress", || steps(&run) >= at);
        head.signal(signal);
        let (ended, _, log) = head.end();
        assert_eq!(ended, code, "{signal}: {log}");
        let status = sandbox.text(&["status", "run"]);
        assert_eq!(status.contains("its process ended without a word"), signal == "KILL", "{signal}: {status}");
        if at == 3 {
            std::fs::remove_dir_all(&own).unwrap();
        }
        head = coordinator(&sandbox, &port, &data);
    }
    let summary = head.summary();
    worker.ends_with(0);
    for key in ["parameters_sha256", "iterations", "test_loss", "test_accuracy", "final_loss", "tasks_applied"] {
        assert_eq!(summary[key], expected[key], "{key}");
    }

    // The journal, the table and the report cover all parts; repeated iterations are stored separately.
    assert_eq!(steps(&run), 60);
    let events = sandbox.events();
    let of = |event: &str| events.iter().filter(|line| line["event"] == event).collect::<Vec<_>>();
    let iterations: Vec<u64> = of("step").iter().map(|step| step["iteration"].as_u64().unwrap()).collect();
    assert!(iterations.iter().copied().eq(1..=60), "{iterations:?}");
    // The first part ended before its first checkpoint, so the run was restarted.
    assert_eq!(of("resume").len(), 3);
    let times: Vec<f64> = of("step").iter().map(|step| step["time_s"].as_f64().unwrap()).collect();
    assert!(times.is_sorted(), "the run's clock goes on");
    assert!(run.join("events-discarded.jsonl").exists() && run.join("report.html").exists());
    sandbox.text(&["replay", "run", "--policy", "uta", "--seeds", "1"]);
}

/// Checks that a run can be resumed from checkpoints outside of its folder when the folder is lost.
fn a_lost_folder_comes_back(sandbox: &Sandbox, checkpoint: &str, saved: &Path) {
    let up = ["up", "--checkpoint", checkpoint, "--out", "run"];
    let begin = [&up[..], &["--workers", "1", "--task-time", "none", "--iterations", "30"], &RUN[2..], &TINY].concat();
    sandbox.summary(&begin);
    let run = sandbox.path("run");
    assert!(saved.join("step-000030/state.json").exists() && !run.join("checkpoints").exists());
    std::fs::remove_dir_all(&run).unwrap();
    sandbox.fails(&begin, 64, "already holds the checkpoints of a run");
    // All other settings are taken from the checkpoint.
    let resumed = sandbox.summary(&[&up[..], &["--resume", "auto", "--iterations", "60"]].concat());
    assert_eq!(resumed["parameters_sha256"], undisturbed(sandbox)["parameters_sha256"]);
    // The run's folder contains the location of its checkpoints.
    assert!(sandbox.said(&["up", "--resume", "run"]).contains("has its 60 iterations"));
    assert!(saved.join("step-000060").exists());
}

#[test]
fn checkpoints_may_be_in_another_folder() {
    let sandbox = Sandbox::new();
    a_lost_folder_comes_back(&sandbox, "saved", &sandbox.path("saved"));
}

#[cfg(feature = "object-store")]
#[test]
fn checkpoints_may_be_in_an_object_store() {
    let sandbox = Sandbox::new();
    let saved = sandbox.path("saved/here");
    a_lost_folder_comes_back(&sandbox, &format!("file://{}", saved.display()), &saved);
}

#[test]
fn a_finished_run_can_be_extended_and_what_cannot_change_is_refused() {
    let sandbox = Sandbox::new();
    undisturbed(&sandbox);
    let said = sandbox.said(&["up", "--resume", "undisturbed"]);
    assert!(said.contains("--iterations with a larger number extends it"), "{said}");
    sandbox.fails(&["up", "--resume", "undisturbed", "--seed", "9"], 64, "seed = 9");
    let extend = ["up", "--resume", "undisturbed", "--iterations", "70", "--policy", "uta", "--json"];
    let extended: Value = serde_json::from_str(&sandbox.text(&extend)).unwrap();
    assert_eq!((extended["iterations"].as_u64(), extended["policy"].as_str()), (Some(70), Some("uta")));
    let whole = ["up", "--out", "whole", "--workers", "2", "--task-time", "none", "--iterations", "70"];
    let whole = sandbox.summary(&[&whole[..], &RUN[2..], &TINY].concat());
    assert_eq!(extended["parameters_sha256"], whole["parameters_sha256"]);
    for name in ["nothing", "undisturbed/checkpoints/step-000001"] {
        sandbox.fails(&["up", "--resume", name], 64, "no checkpoints there");
    }

    // If the newest checkpoint is damaged, this is reported and the previous one is used.
    let newest = sandbox.path("undisturbed/checkpoints/step-000070/optimizer.safetensors");
    let mut bytes = std::fs::read(&newest).unwrap();
    let middle = bytes.len() / 2;
    bytes[middle] ^= 4;
    std::fs::write(&newest, bytes).unwrap();
    let [again, log] = sandbox.outputs(&extend);
    for said in ["step-000070 is damaged: optimizer.safetensors", "after iteration 65"] {
        assert!(log.contains(said), "{log}");
    }
    let again: Value = serde_json::from_str(&again).unwrap();
    assert_eq!(again["parameters_sha256"], whole["parameters_sha256"]);
}

#[test]
fn a_model_is_kept_evaluated_and_begun_with() {
    let sandbox = Sandbox::new();
    let summary = undisturbed(&sandbox);
    let eval = |name: &str| sandbox.summary(&["eval", name]);
    for name in ["undisturbed", "undisturbed/model.safetensors", "undisturbed/checkpoints/step-000060"] {
        let found = eval(name);
        assert_eq!((&found["loss"], &found["accuracy"]), (&summary["test_loss"], &summary["test_accuracy"]), "{name}");
        assert_eq!((found["step"].as_u64(), &found["parameters_sha256"]), (Some(60), &summary["parameters_sha256"]));
        let samples: u64 = found["classes"].as_array().unwrap().iter().map(|c| c["samples"].as_u64().unwrap()).sum();
        assert_eq!(samples, 2000);
    }
    assert!(eval("undisturbed/model-best.safetensors")["accuracy"].as_f64() >= summary["test_accuracy"].as_f64());

    let again = ["up", "--out", "again", "--workers", "1", "--task-time", "none", "--iterations", "1", "--lr", "1e-9"];
    let init = ["--init", "undisturbed/model.safetensors"];
    let again = sandbox.summary(&[&again[..], &init, &TINY].concat());
    let (first, last) = (again["first_loss"].as_f64().unwrap(), summary["final_loss"].as_f64().unwrap());
    assert!((first - last).abs() < 1.0, "it begins where the other ended: {first}, {last}");
    let fresh = ["up", "--out", "fresh", "--workers", "1", "--task-time", "none", "--iterations", "1", "--lr", "1e-9"];
    let fresh = sandbox.summary(&[&fresh[..], &init, &["--init-except", "output.*"], &TINY].concat());
    assert_ne!(fresh["parameters_sha256"], again["parameters_sha256"], "its last layer is another one");

    assert_eq!(sandbox.text(&["eval", "undisturbed"]).lines().count(), 2);
    assert_eq!(sandbox.text(&["eval", "undisturbed", "--classes"]).lines().count(), 106);

    std::fs::copy(sandbox.path("undisturbed/model.safetensors"), sandbox.path("moved.safetensors")).unwrap();
    sandbox.fails(&["eval", "moved.safetensors"], 64, "its data is not known: add --data DATA");
    sandbox.text(&["eval", "moved.safetensors", "--data", "synthetic"]);

    for (file, text) in [("missing", "no model there"), ("undisturbed/config.toml", "not a whole safetensors file")] {
        sandbox.fails(&["eval", file], 65, text);
    }
}

#[test]
fn a_moving_average_is_saved_evaluated_and_resumed() {
    let sandbox = Sandbox::new();
    let up = |flags: &[&str]| sandbox.summary(&[&["up", "--task-time", "none"], flags, &TINY].concat());
    let flags = ["--ema", "0.9", "--lr", "0.01", "--workers", "2", "--eval-every", "10"];
    let whole = up(&[&["--out", "whole", "--iterations", "20"], &flags[..]].concat());
    let of_average = sandbox.summary(&["eval", "whole/model-ema.safetensors"]);
    assert_eq!(of_average["loss"], whole["test_loss"]);
    assert_ne!(sandbox.summary(&["eval", "whole"])["loss"], whole["test_loss"]);
    up(&[&["--out", "half", "--iterations", "10"], &flags[..]].concat());
    sandbox.summary(&["up", "--resume", "half", "--iterations", "20"]);
    let resumed = sandbox.summary(&["eval", "half/model-ema.safetensors"]);
    assert_eq!(resumed["parameters_sha256"], of_average["parameters_sha256"]);
}

/// A run is found by its id and its name, whatever its folder and the current folder, until it is deleted.
#[test]
fn a_run_is_found_by_its_id_and_its_name() {
    let sandbox = Sandbox::new();
    let begin = |out: &str, more: &[&str]| {
        let own = ["up", "--workers", "1", "--task-time", "none", "--budget", "2", "--iterations", "2", "--out", out];
        sandbox.summary(&[&own[..], &TINY, more].concat())
    };
    std::fs::write(sandbox.path("team.toml"), "tags = { team = 'vision', data = 'large' }").unwrap();
    let tags = ["--config", "team.toml", "--tag", "data=small", "--tag", "note=a=b"];
    let first = begin("somewhere/else", &[&["--name", "first"], &tags[..]].concat());
    assert_eq!(first["name"], "first");
    assert_eq!(first["tags"], json!({"team": "vision", "data": "small", "note": "a=b"}));
    let id = first["run_id"].as_str().unwrap();
    std::fs::create_dir(sandbox.path("other")).unwrap();
    let found = |args: &[&str]| sandbox.ata(args).current_dir(sandbox.path("other")).output().unwrap();
    for run in [id, "first"] {
        for args in [
            &["status", run][..],
            &["explain", run],
            &["eval", run, "--device", "cpu"],
            &["replay", run, "--policy", "uta"],
            &["report", run],
            &["up", "--resume", run],
        ] {
            let output = found(args);
            assert!(output.status.success(), "{args:?}: {}", String::from_utf8_lossy(&output.stderr));
        }
    }
    let status = String::from_utf8(found(&["status", "first"]).stdout).unwrap();
    assert!(status.starts_with(&format!("run {id} (first, data=small, note=a=b, team=vision): ")), "{status}");
    std::fs::remove_dir_all(sandbox.path("somewhere")).unwrap();
    assert_eq!(found(&["status", "first"]).status.code(), Some(64));
    begin("again", &[]);
    assert!(!sandbox.path("xdg/ata/runs/first").exists(), "it is forgotten");
    sandbox.fails(&["up", "--name", "a/b"], 64, "expected 1 to 64 letters");
}
