//! Tests of processes that are stopped or killed.
#![cfg(unix)]

use std::process::Command;
use std::time::{Duration, Instant};

use crate::support::{Process, Sandbox, until};

const LONG: [&str; 4] = ["--iterations", "1000000", "--budget", "8"];

/// Starts a coordinator with its run in `run`, and a worker slow enough that the run does not end by itself.
fn start(sandbox: &Sandbox, args: &[&str]) -> (Process, Process) {
    let processes = start_with(sandbox, args, &["--task-time", "const(5)"]);
    until("a step", || sandbox.has_event("step"));
    processes
}

fn start_with(sandbox: &Sandbox, args: &[&str], worker_args: &[&str]) -> (Process, Process) {
    let (coordinator, address) = sandbox.coordinator(args);
    let worker = sandbox.worker(&address, &[&["--retry-for", "1"], worker_args].concat());
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
        let slow = ["--task-time", "const(3600000)", "--drain-s", drain_s, "--log", "ata_worker=debug"];
        let (_coordinator, mut worker) = start_with(&sandbox, &LONG, &slow);
        worker.wait_for("a lease is begun");
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

/// The coordinator is stopped for three times the heartbeat timeout. All deadlines must move by the same time. Then it is killed.
#[test]
fn a_stopped_coordinator_loses_no_worker_and_a_killed_one_leaves_a_journal() {
    let sandbox = Sandbox::new();
    let (coordinator, worker) = start(&sandbox, &[&LONG[..], &["--heartbeat-timeout-ms", "1000"]].concat());
    let steps = || sandbox.journal().matches("\"event\":\"step\"").count();
    coordinator.signal("STOP");
    until("the stop", || is_stopped(&coordinator));
    let stopped = Instant::now();
    until("three heartbeat timeouts", || stopped.elapsed() > Duration::from_secs(3));
    assert!(is_stopped(&coordinator));
    let before = steps();
    coordinator.signal("CONT");
    until("many steps", || steps() > before + 60);
    assert!(!sandbox.has_event("loss"));

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
    assert!(sandbox.said(&replay).contains("was not written to its end"));
}
