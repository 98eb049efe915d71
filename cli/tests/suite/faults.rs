//! Tests of processes that are stopped, killed or out of disk space.
#![cfg(unix)]

use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use crate::support::{Process, Sandbox, TINY, until};
use serde_json::Value;

const LONG: [&str; 4] = ["--iterations", "1000000", "--budget", "8"];

/// Starts a coordinator with its run in `run`, and a worker slow enough that the run does not end by itself.
fn start(sandbox: &Sandbox, args: &[&str]) -> (Process, Process) {
    let processes = start_with(sandbox, args, &["--task-time", "const(5)"]);
    until("a step", || sandbox.has_event("step"));
    processes
}

fn start_with(sandbox: &Sandbox, args: &[&str], worker_args: &[&str]) -> (Process, Process) {
    let head = ["coordinator", "--listen", "127.0.0.1:0", "--out", "run"];
    let mut coordinator = sandbox.start(&[&head[..], args, &TINY[..]].concat());
    let address = format!("http://127.0.0.1:{}", coordinator.port());
    let worker = ["worker", "--coordinator", &address, "--device", "cpu", "--retry-for", "1"];
    let worker = sandbox.start(&[&worker[..], worker_args].concat());
    (coordinator, worker)
}

/// Each says at once what it does. The worker leaves with what it has begun, and its coordinator saves the run.
#[test]
fn a_process_that_is_asked_to_stop_says_what_it_does() {
    for (signal, says, worker_code, code) in [("TERM", "SIGTERM: ", 0, 75), ("INT", "Ctrl-C: ", 130, 130)] {
        let sandbox = Sandbox::new();
        let (coordinator, worker) = start(&sandbox, &LONG);
        worker.signal(signal);
        let (_, log) = worker.ends_with(worker_code);
        assert!(log.contains(&format!("{says}this worker finishes what it has begun")), "{log}");
        until("the farewell", || sandbox.journal().contains("it was told to stop"));
        assert!(!sandbox.journal().contains("\"outcome\":\"lost\""), "{}", sandbox.journal());
        coordinator.signal(signal);
        let (_, log) = coordinator.ends_with(code);
        assert!(log.contains(&format!("{says}no step begins any more, and the state is saved")), "{log}");
    }
}

/// A task takes an hour. The worker waits for it for as long as it may, or until a second signal.
#[test]
fn a_worker_that_cannot_finish_in_time_leaves_its_tasks_to_others() {
    for (drain_s, second, code) in
        [("0", None, 0), ("1", None, 0), ("3600", Some("TERM"), 0), ("3600", Some("INT"), 130)]
    {
        let sandbox = Sandbox::new();
        let (_coordinator, mut worker) =
            start_with(&sandbox, &LONG, &["--task-time", "const(3600000)", "--drain-s", drain_s]);
        until("an allocation", || sandbox.has_event("allocation"));
        worker.signal("TERM");
        worker.wait_for("SIGTERM: this worker finishes what it has begun");
        if let Some(second) = second {
            worker.signal(second);
        }
        worker.ends_with(code);
        until("the loss", || sandbox.has_event("loss"));
    }
}

/// Whether a process is stopped by a signal.
fn is_stopped(process: &Process) -> bool {
    let state = Command::new("ps").args(["-o", "state=", "-p", &process.id().to_string()]).output().unwrap();
    state.stdout.starts_with(b"T")
}

/// The coordinator is stopped for three times the heartbeat timeout. All deadlines must move by the same time.
#[test]
fn a_stopped_coordinator_loses_no_worker() {
    let sandbox = Sandbox::new();
    let (coordinator, worker) =
        start(&sandbox, &["--iterations", "100", "--budget", "8", "--heartbeat-timeout-ms", "1000"]);
    coordinator.signal("STOP");
    until("the stop", || is_stopped(&coordinator));
    let stopped = Instant::now();
    until("three heartbeat timeouts", || stopped.elapsed() > Duration::from_secs(3));
    assert!(is_stopped(&coordinator));
    coordinator.signal("CONT");
    coordinator.ends_with(0);
    worker.ends_with(0);
    assert!(!sandbox.has_event("loss"));
}

#[test]
fn a_killed_coordinator_leaves_a_journal() {
    let sandbox = Sandbox::new();
    let (coordinator, worker) = start(&sandbox, &LONG);
    let has_steps =
        || std::fs::read_to_string(sandbox.path("run/metrics.csv")).is_ok_and(|text| text.lines().count() > 3);
    until("steps", has_steps);
    coordinator.signal("KILL");
    drop(coordinator.end());
    // There is no coordinator to work for.
    worker.ends_with(69);
    let replay = ["replay", "run", "--policy", "uta", "--seeds", "1"];
    sandbox.text(&replay);
    // The journal is truncated as after a crash of the machine, or on a full disk.
    let path = sandbox.path("run/events.jsonl");
    let text = std::fs::read(&path).unwrap();
    std::fs::write(&path, &text[..text.len() - 7]).unwrap();
    let replay = sandbox.run(&replay);
    assert_eq!(replay.status.code(), Some(0));
    assert!(String::from_utf8_lossy(&replay.stderr).contains("was not written to its end"));
}

/// Returns a command for `ata` whose files are limited to this number of blocks of 512 bytes. Longer writes fail, as on a full disk.
fn limited(sandbox: &Sandbox, blocks: u32, args: &[&str]) -> Command {
    let program = sandbox.ata(args);
    let mut command = Command::new("sh");
    command
        .args(["-c", &format!("trap '' XFSZ; ulimit -f {blocks}; exec \"$0\" \"$@\"")])
        .arg(program.get_program())
        .args(program.get_args())
        .current_dir(program.get_current_dir().unwrap())
        .stdin(Stdio::null());
    command
}

/// A limit of 40 KiB per file emulates a full disk. The run ends with the reason and leaves its results.
#[test]
fn a_full_disk_ends_a_run_with_the_reason() {
    let sandbox = Sandbox::new();
    let up =
        [&["up", "--out", "run", "--workers", "2", "--task-time", "none", "--json"], &LONG[..], &TINY[..]].concat();
    let output = limited(&sandbox, 80, &up).output().unwrap();
    let errors = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(74), "{errors}");
    assert!(errors.lines().last().unwrap().contains("cannot write run/events.jsonl: "), "{errors}");
    // Every line is complete.
    assert!(sandbox.events().iter().any(|event| event["event"] == "step"));
    let printed: Value = serde_json::from_slice(&output.stdout).unwrap();
    let written: Value = serde_json::from_slice(&std::fs::read(sandbox.path("run/summary.json")).unwrap()).unwrap();
    assert_eq!(printed, written);
    assert_eq!(written["state"], "failed");
    assert!(written["iterations"].as_u64() > Some(0) && written["error"].as_str().unwrap().contains("events.jsonl"));
    assert!(sandbox.path("run/statistics.json").exists());
}

/// The optimizer's state does not fit on the disk, but the journal and the model do. The run prints warnings, goes on to its
/// end, and says then that its last checkpoint is missing.
#[test]
fn a_disk_too_full_for_checkpoints_does_not_end_a_run() {
    let sandbox = Sandbox::new();
    let up = ["up", "--out", "run", "--workers", "1", "--task-time", "none", "--device", "cpu", "--task-batch", "1"];
    let run = ["--iterations", "3", "--budget", "2", "--checkpoint-every", "1", "--eval-every", "0"];
    let output = limited(&sandbox, 2000, &[&up[..], &run].concat()).output().unwrap();
    let errors = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(74), "{errors}");
    assert!(errors.lines().last().unwrap().starts_with("ata: cannot write run/checkpoints/step-000003"), "{errors}");
    let failed = sandbox.events().iter().filter(|event| event["event"] == "checkpoint_failed").count();
    assert!((3..=4).contains(&failed), "after each iteration, and perhaps once more at the end: {failed}");
    assert!(sandbox.path("run/model.safetensors").exists());
    let left = std::fs::read_dir(sandbox.path("run/checkpoints")).unwrap().map(|entry| entry.unwrap().file_name());
    assert!(left.eq(["checkpoints.lock"]), "no half checkpoint is left");
}
