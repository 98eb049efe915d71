//! Tests of runs that are stopped or killed at any moment, from the start of the process to its end. `--resume auto` completes each of
//! them, with all result files and the parameters of an undisturbed run.
#![cfg(unix)]

use std::path::{Path, PathBuf};

use crate::support::{Process, Sandbox, TINY, files_below, until};
use serde_json::Value;

/// The settings of a run of about a second, which is not saved before its end unless a test requests it.
const RUN: [&str; 6] = ["--iterations", "40", "--budget", "4", "--workers", "1"];
/// The files that a finished run leaves.
const RESULTS: &str = "config.toml events.jsonl metrics.csv summary.json statistics.json model.safetensors report.html";

fn up<'a>(more: &[&'a str]) -> Vec<&'a str> {
    [&["up", "--task-time", "none"], &RUN[..], &TINY, more].concat()
}

fn resumable<'a>(more: &[&'a str]) -> Vec<&'a str> {
    up(&[&["--out", "run", "--resume", "auto"], more].concat())
}

fn undisturbed(sandbox: &Sandbox) -> Value {
    sandbox.summary(&up(&["--out", "undisturbed"]))
}

fn summary(run: &Path) -> Value {
    serde_json::from_slice(&std::fs::read(run.join("summary.json")).unwrap()).unwrap()
}

/// Completes a run, and compares it with an undisturbed one.
fn ends_well(sandbox: &Sandbox, args: &[&str], expected: &Value) {
    sandbox.text(args);
    let run = sandbox.path("run");
    for file in RESULTS.split(' ') {
        assert!(run.join(file).exists(), "{file} is missing");
    }
    let summary = summary(&run);
    for key in ["parameters_sha256", "iterations", "test_loss", "tasks_applied", "state"] {
        assert_eq!(summary[key], expected[key], "{key}");
    }
    // Only the tensors are compared because the metadata before them has no fixed order.
    let tensors = |run: &str| {
        let file = std::fs::read(sandbox.path(run).join("model.safetensors")).unwrap();
        let (length, rest) = file.split_first_chunk().unwrap();
        rest[u64::from_le_bytes(*length) as usize..].to_vec()
    };
    assert!(tensors("run") == tensors("undisturbed"), "the models differ");
}

/// Makes a run with these flags to its end, and returns the summary of an undisturbed one.
fn finished(more: &[&str]) -> (Sandbox, Value) {
    let sandbox = Sandbox::new();
    let expected = undisturbed(&sandbox);
    ends_well(&sandbox, &resumable(more), &expected);
    (sandbox, expected)
}

fn stops(process: Process, signal: &str, code: Option<i32>) {
    process.signal(signal);
    let (ended, _, log) = process.end();
    assert_eq!(ended, code, "{log}");
}

/// Ctrl-C reaches all processes in a terminal's foreground group, but the workers end with the run.
#[test]
fn ctrl_c_loses_no_worker() {
    let sandbox = Sandbox::new();
    let args = ["up", "--workers", "3", "--iterations", "100000", "--task-time", "const(20)", "--out", "run"];
    let mut run = sandbox.start_group(&[&args[..], &TINY].concat());
    run.wait_for("iteration ");
    until("a step", || sandbox.has_event("step"));
    // Whether a worker that also receives the signal is lost is a race, so the test checks that workers cannot receive it.
    assert_eq!(run.group(), [run.id()], "the workers are not in the group that a terminal interrupts");
    run.signal_group("INT");
    let (_, log) = run.ends_with(130);
    assert!(!log.contains("worker lost") && !log.contains("ended ("), "{log}");
    assert!(!sandbox.has_event("loss"), "{log}");
}

/// The path has blanks, and the law has characters that shells interpret. What the table says about replays is said at the end.
#[test]
fn a_run_that_is_stopped_says_how_it_goes_on() {
    for (signal, code) in [("TERM", 75), ("INT", 130)] {
        let sandbox = Sandbox::new();
        let args = ["up", "--workers", "2", "--iterations", "150", "--budget", "4", "--out", "my run"];
        let process = sandbox.start(&[&args[..], &["--task-time", "const(2*i)"], &TINY].concat());
        let run = sandbox.path("my run");
        let events = || std::fs::read_to_string(run.join("events.jsonl")).unwrap_or_default();
        until("a step", || events().contains("\"event\":\"step\""));
        process.signal(signal);
        let (table, _) = process.ends_with(code);
        let stopped = summary(&run);
        let latest = std::fs::read_to_string(run.join("checkpoints/latest")).unwrap();
        assert!(table.contains("training loss") && stopped["state"] == "stopped", "{table}");
        assert_eq!(latest.trim(), format!("step-{:06}", stopped["iterations"].as_u64().unwrap()));

        let (_, command) = table.split_once("saved; to go on: ").unwrap_or_else(|| panic!("{table}"));
        let command = command.lines().next().unwrap();
        let output = sandbox.command(Path::new("sh"), &["-c", command]).output().unwrap();
        let table = String::from_utf8(output.stdout).unwrap();
        assert!(output.status.success(), "{command}: {}", String::from_utf8_lossy(&output.stderr));
        assert_eq!(summary(&run)["iterations"], 150);
        for said in [
            "ata-auto (this run)",
            "ata-auto, replayed",
            "\nThe replay of ata-auto itself has ",
            "\nWorkers that share",
        ] {
            assert!(table.contains(said), "{table}");
        }
    }
}

/// The run has all its iterations but lacks results, which were never written or have been removed.
#[test]
fn what_is_missing_of_a_run_that_is_over_is_made_up_for() {
    let (sandbox, expected) = finished(&[]);
    let run = sandbox.path("run");
    for lost in ["model.safetensors", "summary.json", "report.html statistics.json", RESULTS] {
        for file in lost.split(' ') {
            std::fs::remove_file(run.join(file)).unwrap();
        }
        if lost == RESULTS {
            // A new run does not begin on the checkpoints of this one.
            let before = files(&run);
            sandbox.fails(&up(&["--out", "run"]), 64, "already holds the checkpoints of a run");
            assert!(files(&run) == before);
        }
        ends_well(&sandbox, &resumable(&[]), &expected);
    }
    // The process may exit after it has written the summary and before it has computed the costs of other policies.
    let mut early = summary(&run);
    early["counterfactual"] = Value::Null;
    std::fs::write(run.join("summary.json"), early.to_string()).unwrap();
    ends_well(&sandbox, &resumable(&[]), &expected);
    assert!(summary(&run)["counterfactual"].is_array());
    // Now nothing is left to do.
    let before = sandbox.journal();
    ends_well(&sandbox, &resumable(&[]), &expected);
    assert_eq!(sandbox.journal(), before);
}

/// A finished run without checkpoints is not restarted.
#[test]
fn a_run_without_checkpoints_is_over_too() {
    let (sandbox, expected) = finished(&["--checkpoint-every", "never"]);
    let never = resumable(&["--checkpoint-every", "never"]);
    let before = sandbox.journal();
    ends_well(&sandbox, &never, &expected);
    assert_eq!(sandbox.journal(), before);
    // The missing file can only be created by another run, which must not destroy a model.
    std::fs::remove_file(sandbox.path("run/report.html")).unwrap();
    let model = std::fs::read(sandbox.path("run/model.safetensors")).unwrap();
    ends_well(&sandbox, &never, &expected);
    assert!(std::fs::read(sandbox.path("run/model-discarded.safetensors")).unwrap() == model);
}

/// The run is killed or stopped before its first step, when it has no checkpoint, so that it begins again in the same folder, and then
/// during the evaluation after the last step.
#[test]
fn a_run_that_has_not_begun_or_is_in_its_last_evaluation_is_not_over() {
    let sandbox = Sandbox::new();
    let data = sandbox.path("data").to_str().unwrap().to_owned();
    // The test data is large enough that the evaluation can be interrupted.
    sandbox.text(&["data", "synth", &data, "--train", "400", "--test", "20000"]);
    let more = ["--data", &data, "--checkpoint-every", "10"];
    let expected = sandbox.summary(&up(&[&more[..], &["--out", "undisturbed"]].concat()));
    let signals = [("TERM", Some(75)), ("INT", Some(130)), ("KILL", None)];
    for (signal, code) in signals {
        // No worker joins.
        let (head, _) = sandbox.coordinator(&[&["--resume", "auto"], &RUN[..4], &more].concat());
        until("the journal", || !sandbox.journal().is_empty());
        stops(head, signal, code);
    }
    for (signal, code) in signals {
        let process = sandbox.start(&resumable(&more));
        // The journal of a run that was stopped earlier has an end event, which is removed.
        until("the last evaluation", || {
            let journal = sandbox.journal();
            journal.contains(r#""event":"evaluating""#) && !journal.contains(r#""event":"end""#)
        });
        stops(process, signal, code);
        let file = sandbox.path("run/summary.json");
        assert_eq!(file.exists(), signal != "KILL");
        assert!(!file.exists() || summary(&sandbox.path("run"))["state"] == "stopped");
    }
    assert!(sandbox.path("run/events-discarded.jsonl").exists());
    ends_well(&sandbox, &resumable(&more), &expected);
}

/// A process that ended while it created its folder leaves some of the files. Whichever files are left, the run can begin.
#[test]
fn half_a_folder_is_no_run() {
    let sandbox = Sandbox::new();
    let expected = undisturbed(&sandbox);
    let run = sandbox.path("run");
    let config = std::fs::read(sandbox.path("undisturbed/config.toml")).unwrap();
    let states: [&[(&str, &[u8])]; 5] = [
        &[],
        &[("run.lock", b"process 1 on a host\n")],
        &[("run.lock", b""), ("config.toml", &config)],
        &[("run.lock", b""), ("config.toml", &config), ("events.jsonl", b"")],
        &[("run.lock", b""), ("config.toml", &config), ("events.jsonl", b""), ("metrics.csv", b"iteration")],
    ];
    for (files, resume) in states.into_iter().flat_map(|files| [(files, true), (files, false)]) {
        std::fs::create_dir_all(&run).unwrap();
        for (file, content) in files {
            std::fs::write(run.join(file), content).unwrap();
        }
        let args = if resume { resumable(&[]) } else { up(&["--out", "run"]) };
        ends_well(&sandbox, &args, &expected);
        std::fs::remove_dir_all(&run).unwrap();
    }
    // The folder may have been copied without its lock.
    std::fs::create_dir_all(&run).unwrap();
    std::fs::write(run.join("config.toml"), &config).unwrap();
    ends_well(&sandbox, &resumable(&[]), &expected);
}

/// Files that do not belong to a run are kept, on the first attempt and on the second.
#[test]
fn files_of_others_are_not_replaced() {
    let sandbox = Sandbox::new();
    let run = sandbox.path("run");
    let config = "budget = 4\niterations = 40\n";
    for (file, text) in
        [("config.toml", config), ("model.safetensors", "mine"), ("summary.json", "mine"), ("events.jsonl", "mine")]
    {
        std::fs::create_dir_all(&run).unwrap();
        std::fs::write(run.join(file), text).unwrap();
        std::fs::write(run.join("lock"), "mine").unwrap();
        for again in [&[][..], &["--resume", "auto"]] {
            sandbox.fails(&up(&[&["--out", "run"], again].concat()), 64, file);
            assert_eq!(std::fs::read_to_string(run.join(file)).unwrap(), text);
        }
        std::fs::remove_dir_all(&run).unwrap();
    }
    // A model that a user put next to a run's checkpoints is not mistaken for the run's model.
    sandbox.text(&up(&["--out", "run", "--checkpoint", "saved", "--keep", "1"]));
    let model = sandbox.path("saved/model.safetensors");
    std::fs::write(&model, "mine").unwrap();
    for again in [&[][..], &["--resume", "auto"]] {
        sandbox.fails(&up(&[&["--out", "saved"], again].concat()), 64, "saved");
        assert_eq!(std::fs::read_to_string(&model).unwrap(), "mine");
    }
}

/// Checkpoints may be in the run's own folder.
#[test]
fn a_run_and_its_checkpoints_may_share_a_folder() {
    let (sandbox, expected) = finished(&["--checkpoint", "run"]);
    std::fs::remove_file(sandbox.path("run/summary.json")).unwrap();
    ends_well(&sandbox, &resumable(&["--checkpoint", "run"]), &expected);
}

#[test]
fn a_second_coordinator_is_refused_and_told_of_the_first() {
    let sandbox = Sandbox::new();
    let more = ["--checkpoint", "saved", "--checkpoint-every", "1"];
    let long =
        ["up", "--out", "run", "--task-time", "const(20)", "--workers", "1", "--budget", "4", "--iterations", "40000"];
    let first = sandbox.start(&[&long[..], &TINY, &more].concat());
    until("a checkpoint", || sandbox.has_event("checkpoint"));
    let process = format!("process {}", first.id());
    let others: [&[&str]; 4] = [
        &["up", "--out", "run"],
        &["up", "--resume", "run"],
        &["coordinator", "--listen", "127.0.0.1:0", "--out", "run", "--resume", "auto"],
        // The second command uses another folder with the same checkpoints.
        &["up", "--out", "other", "--resume", "auto", "--checkpoint", "saved"],
    ];
    for other in others {
        if other == others[0] {
            sandbox.fails(other, 64, "run");
        } else {
            let log = sandbox.fails(other, 74, "is in use by");
            assert!(log.contains(&process), "{log}");
        }
    }
    stops(first, "KILL", None);
    // The death of the process has released the lock.
    sandbox.text(&["up", "--resume", "run", "--task-time", "none", "--max-employments", "1"]);
}

/// Returns all files of a run, except the content of its lock.
fn files(run: &Path) -> Vec<(PathBuf, Vec<u8>)> {
    let is_lock = |path: &PathBuf| path.extension().is_some_and(|extension| extension == "lock");
    let files = files_below(run).into_iter().filter(|path| !is_lock(path));
    files.map(|path| (path.clone(), std::fs::read(path).unwrap())).collect()
}

/// A rollback to an earlier checkpoint is permanent, even if the process ends before it saves.
#[test]
fn a_rollback_is_not_undone() {
    let (sandbox, expected) = finished(&["--checkpoint-every", "10", "--keep", "9"]);
    let (tenth, run) = ("run/checkpoints/step-000010", sandbox.path("run"));
    assert!(run.join("checkpoints/step-000040").exists());
    // A resumption that is refused changes nothing.
    let (data, before) = (sandbox.data(), files(&run));
    sandbox.fails(&["up", "--resume", tenth, "--data", &data, "--iterations", "99"], 65, "data");
    assert!(files(&run) == before);
    // No worker joins, and the coordinator is killed before it saves.
    let mut head = sandbox.start(&["coordinator", "--listen", "127.0.0.1:0", "--resume", tenth]);
    head.port();
    until("the journal is cut", || sandbox.has_event("resume"));
    stops(head, "KILL", None);
    let log = sandbox.said(&resumable(&[]));
    assert!(log.contains("after iteration 10"), "{log}");
    ends_well(&sandbox, &resumable(&[]), &expected);
    assert_eq!(sandbox.journal().matches(r#""event":"step""#).count(), 40);
}

/// The tests of settings have the other ones that cannot change.
#[test]
fn checkpoints_of_another_run_are_refused() {
    let sandbox = Sandbox::new();
    for (out, seed) in [("run", "1"), ("other", "2")] {
        sandbox.text(&up(&["--out", out, "--seed", seed]));
    }
    let run = sandbox.path("run");
    std::fs::remove_dir_all(run.join("checkpoints")).unwrap();
    std::fs::rename(sandbox.path("other/checkpoints"), run.join("checkpoints")).unwrap();
    let before = files(&run);
    let resume = ["up", "--resume", "run", "--iterations", "50"];
    sandbox.fails(&resume, 65, "it has seed = 2, this one seed = 1");
    assert!(files(&run) == before, "nothing was changed");
}

/// After a rollback to fewer iterations, the results of more iterations are not used.
#[test]
fn a_rollback_has_results_of_its_own() {
    let sandbox = Sandbox::new();
    let ten = ["--iterations", "10", "--budget", "4", "--workers", "1", "--task-time", "none", "--out", "tenth"];
    let tenth = sandbox.summary(&[&["up"], &ten[..], &TINY].concat());
    sandbox.text(&resumable(&["--checkpoint-every", "10", "--keep", "9"]));
    // The command is run in the folder of the run.
    let mut command = sandbox.ata(&["up", "--resume", "checkpoints/step-000010", "--iterations", "10"]);
    let output = command.current_dir(sandbox.path("run")).output().unwrap();
    assert_eq!(output.status.code(), Some(0), "{}", String::from_utf8_lossy(&output.stderr));
    let found = summary(&sandbox.path("run"));
    assert_eq!((&found["iterations"], &found["parameters_sha256"]), (&10.into(), &tenth["parameters_sha256"]));
}

/// Without `--out`, `auto` resumes the newest run that is not over or lacks results.
#[test]
fn a_run_without_a_name_is_brought_to_its_end() {
    let sandbox = Sandbox::new();
    sandbox.text(&up(&["--resume", "auto"]));
    let runs = || std::fs::read_dir(sandbox.path("runs")).unwrap().map(|run| run.unwrap().path()).collect::<Vec<_>>();
    let [run] = &runs()[..] else { panic!("one run") };
    std::fs::remove_file(run.join("report.html")).unwrap();
    sandbox.text(&up(&["--resume", "auto"]));
    assert_eq!(runs().len(), 1);
    assert!(run.join("report.html").exists());
}

/// After a power loss, the checkpoint may be intact and the journal damaged.
#[test]
fn a_damaged_journal_does_not_hold_up_a_run() {
    let sandbox = Sandbox::new();
    let expected = undisturbed(&sandbox);
    let path = sandbox.path("run/events.jsonl");
    for damage in ["zeros", "a bad line", "gone"] {
        ends_well(&sandbox, &up(&["--out", "run", "--resume", "auto"]), &expected);
        let mut bytes = std::fs::read(&path).unwrap();
        let middle = bytes.len() / 2;
        match damage {
            "zeros" => bytes[middle..middle + 9000].fill(0),
            "a bad line" => drop(bytes.splice(middle..middle + 10, *b"nonsense")),
            _ => bytes.clear(),
        }
        std::fs::write(&path, bytes).unwrap();
        std::fs::remove_file(sandbox.path("run/summary.json")).unwrap();
        ends_well(&sandbox, &resumable(&[]), &expected);
        sandbox.text(&["status", "run"]);
        std::fs::remove_dir_all(sandbox.path("run")).unwrap();
    }
}
