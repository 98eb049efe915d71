//! Tests of `ata-dev chaos` with real processes.
#![cfg(target_os = "linux")]

use crate::support::{Sandbox, TINY, until};
use serde_json::Value;

const SMALL: [&str; 6] = ["--workers", "2", "--model", TINY[1], "--heartbeat-timeout-ms", "1000"];

/// With a checkpoint after five steps, the verdict also says whether a kill costs more steps than that, or a stop any. Recovery times are
/// not asserted: the machine may be busy.
#[test]
fn a_run_under_faults_ends_as_one_without() {
    let kinds =
        "kill-coordinator,kill-start,kill-end,end-coordinator,fill-disk,kill-worker,stop-worker,cut-link,slow-link";
    let chaos = ["chaos", "--out", "chaos", "--json", "--faults", "9", "--only", kinds, "--checkpoint-every", "5"];
    let output = Sandbox::new().run(&[&chaos[..], &SMALL].concat());
    let log = String::from_utf8_lossy(&output.stderr);
    let verdict: Value = serde_json::from_slice(&output.stdout).unwrap_or_else(|error| panic!("{error}: {log}"));
    let broken: Vec<&str> = verdict["broken"].as_array().unwrap().iter().map(|text| text.as_str().unwrap()).collect();
    let is_slow = |text: &&str| text.contains("recovered too late") || text.contains("lost that were well");
    assert!(broken.iter().all(is_slow), "{broken:?}: {log}");
    assert_eq!(output.status.code(), Some(if broken.is_empty() { 0 } else { 70 }), "{log}");
    assert!(verdict["iterations"].as_u64() > Some(3));
    assert!(verdict["parameters_sha256"].is_string() && verdict["parameters_sha256"] == verdict["undisturbed_sha256"]);
    assert_eq!(verdict["processes_left"], 0);
    let faults = verdict["faults"].as_array().unwrap();
    assert_eq!(faults.len(), 9);
    for fault in faults {
        assert_eq!((&fault["fired"], &fault["saved_steps_lost"]), (&1.into(), &0.into()), "{fault}");
    }
}

/// Returns the processes that were started in the sandbox: those with its cache in their environment.
fn processes(sandbox: &Sandbox) -> usize {
    let cache = format!("XDG_CACHE_HOME={}", sandbox.path("cache").display());
    let processes = std::fs::read_dir("/proc").unwrap().flatten();
    let environments = processes.filter_map(|process| std::fs::read(process.path().join("environ")).ok());
    environments.filter(|environment| environment.split(|byte| *byte == 0).any(|one| one == cache.as_bytes())).count()
}

#[test]
fn no_process_is_left() {
    let up = ["up", "--out", "up", "--workers", "2", "--task-time", "const(5)", "--iterations", "1000000"];
    let chaos = ["chaos", "--out", "chaos", "--only", "cut-link", "--faults", "100000"];
    let cases = [
        ([&up[..], &TINY].concat(), "up", "step", 3, 75),
        ([&chaos[..], &SMALL].concat(), "chaos/disturbed", "loss", 4, 130),
    ];
    for (args, run, event, started, code) in cases {
        let sandbox = Sandbox::new();
        let process = sandbox.start(&args);
        let (journal, event) = (sandbox.path(run).join("events.jsonl"), format!("\"event\":\"{event}\""));
        until("the event", || std::fs::read_to_string(&journal).is_ok_and(|journal| journal.contains(&event)));
        assert_eq!(processes(&sandbox), started, "{args:?}");
        process.signal("TERM");
        let (ended, _, log) = process.end();
        assert_eq!(ended, Some(code), "{log}");
        until("the end of all processes", || processes(&sandbox) == 0);
    }
}

#[test]
fn what_cannot_be_run_is_refused() {
    let sandbox = Sandbox::new();
    std::fs::create_dir(sandbox.path("there")).unwrap();
    for (args, text) in [
        (["--out", "there"], "expected a new folder"),
        (["--faults", "0"], "expected more than 0"),
        (["--minutes", "-1"], "expected more than 0"),
        (["--only", "earthquake"], "kill-coordinator"),
        (["--workers", "0"], "workers = 0"),
        (["--data", "nowhere"], "nowhere"),
    ] {
        let output = sandbox.run(&["chaos", args[0], args[1]]);
        let errors = String::from_utf8_lossy(&output.stderr);
        let expected = if args[0] == "--data" { 65 } else { 64 };
        assert_eq!(output.status.code(), Some(expected), "{args:?}: {errors}");
        assert!(errors.contains(text), "{errors}");
    }
}
