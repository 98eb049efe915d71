//! Tests of processes that the system refuses room on the disk, or open files. No run ends with exit code 0 without its results.
#![cfg(unix)]

use std::path::Path;
use std::process::Output;

use crate::support::{Sandbox, TINY};
use serde_json::Value;

/// The files without which a run is not done, each with the name by which a message refers to it.
const NEEDED: [(&str, &str); 7] = [
    ("model.safetensors", "model.safetensors"),
    ("summary.json", "summary.json"),
    ("statistics.json", "statistics.json"),
    ("report.html", "report.html"),
    ("events.jsonl", "events.jsonl"),
    ("metrics.csv", "metrics.csv"),
    ("checkpoints/step-000020/state.json", "step-000020"),
];

fn said(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

/// Runs a command within a limit of the shell's `ulimit`, as `-f N`: no file of more than N blocks of 512 bytes (or 1,024, in some shells).
fn limited(sandbox: &Sandbox, limit: &str, args: &[&str]) -> Output {
    let (ata, limit) = (sandbox.ata(&[]), format!("ulimit {limit} && exec \"$0\" \"$@\""));
    let limit = ["-c", &limit, ata.get_program().to_str().unwrap()];
    sandbox.command(Path::new("sh"), &[&limit[..], args].concat()).output().unwrap()
}

/// SIGXFSZ would kill the process.
#[test]
fn a_run_lacks_no_result_without_saying_so() {
    let sandbox = Sandbox::new();
    let mut ended = Vec::new();
    for blocks in [1, 4, 8, 16, 32, 64, 128, 256, 1 << 20] {
        let out = format!("run-{blocks}");
        let args = ["--task-time", "none", "--workers", "1", "--budget", "4", "--iterations", "20", "--out", &out];
        let output = limited(&sandbox, &format!("-f {blocks}"), &[&["up"], &args[..], &TINY].concat());
        let said = said(&output);
        let run = sandbox.path(&out);
        let missing = NEEDED.iter().filter(|(file, _)| !run.join(file).metadata().is_ok_and(|file| file.len() > 0));
        let missing: Vec<&str> = missing.map(|(_, name)| *name).collect();
        let code = output.status.code();
        let is_told = code == Some(74) || code == Some(0) && missing.is_empty();
        assert!(is_told, "{blocks}: {code:?} without {missing:?}: {said}");
        let last = said.lines().last().unwrap_or_default();
        assert!(code == Some(0) || last.starts_with("ata: cannot ") && last.contains(&out), "{blocks}: {said}");
        ended.push((blocks, code, missing.len()));
    }
    let codes: Vec<_> = ended.iter().map(|(_, code, _)| *code).collect();
    assert!(codes.first() == Some(&Some(74)) && codes.last() == Some(&Some(0)), "{ended:?}");
}

#[test]
fn other_results_are_not_cut_off_either() {
    let sandbox = Sandbox::new();
    for args in [
        &["simulate", "--iterations", "50", "--workers", "3", "--out", "figures"][..],
        &["data", "synth", "data", "--train", "10", "--test", "10"],
        &["init", "model.safetensors"],
        &["man", "--out", "man"],
    ] {
        let output = limited(&sandbox, "-f 1", args);
        let said = said(&output);
        let name = args.iter().skip(1).rfind(|arg| !arg.starts_with('-') && arg.parse::<u32>().is_err()).unwrap();
        assert_eq!(output.status.code(), Some(74), "{args:?}: {said}");
        let is_named = said.lines().last().unwrap().starts_with("ata: cannot write") && said.contains(name);
        assert!(is_named, "{args:?}: {said}");
    }
}

/// A folder is in the place of the file.
#[test]
fn a_missing_result_is_named() {
    let sandbox = Sandbox::new();
    let up = ["up", "--task-time", "none", "--workers", "1", "--budget", "4", "--out", "run", "--resume", "auto"];
    sandbox.text(&[&up[..], &["--iterations", "10"], &TINY].concat());
    for (iterations, file) in [("11", "report.html"), ("12", "model.safetensors"), ("13", "statistics.json")] {
        let path = sandbox.path("run").join(file);
        std::fs::remove_file(&path).unwrap();
        std::fs::create_dir(&path).unwrap();
        let output = sandbox.run(&[&up[..], &["--iterations", iterations], &TINY].concat());
        let said = said(&output);
        assert!(output.status.code() == Some(74) && said.lines().last().unwrap().contains(file), "{file}: {said}");
        std::fs::remove_dir(&path).unwrap();
        std::fs::write(&path, "").unwrap();
    }
    sandbox.text(&[&up[..], &["--iterations", "15"], &TINY].concat());
}

/// A limit of 40 KiB per file emulates a full disk. The run ends with the reason and leaves its results.
#[test]
fn a_full_disk_ends_a_run_with_the_reason() {
    let sandbox = Sandbox::new();
    let up = ["up", "--out", "run", "--workers", "2", "--task-time", "none", "--json"];
    let run = ["--budget", "8", "--iterations", "1000000"];
    let output = limited(&sandbox, "-f 80", &[&up[..], &run, &TINY].concat());
    let errors = said(&output);
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
    let output = limited(&sandbox, "-f 2000", &[&up[..], &run].concat());
    let errors = said(&output);
    assert_eq!(output.status.code(), Some(74), "{errors}");
    assert!(errors.lines().last().unwrap().starts_with("ata: cannot write run/checkpoints/step-000003"), "{errors}");
    let failed = sandbox.events().iter().filter(|event| event["event"] == "checkpoint_failed").count();
    assert!((3..=4).contains(&failed), "after each iteration, and perhaps once more at the end: {failed}");
    assert!(sandbox.path("run/model.safetensors").exists());
    let left = std::fs::read_dir(sandbox.path("run/checkpoints")).unwrap().map(|entry| entry.unwrap().file_name());
    assert!(left.eq(["checkpoints.lock"]), "no half checkpoint is left");
}

#[test]
fn a_low_limit_of_open_files_is_said() {
    let sandbox = Sandbox::new();
    let up = ["up", "--task-time", "none", "--workers", "1", "--iterations", "1", "--budget", "1"];
    let output = limited(&sandbox, "-n 400", &[&up[..], &TINY].concat());
    let said = said(&output);
    assert_eq!(output.status.code(), Some(0), "{said}");
    let limit = "may open only 400 files, enough for 8 workers: raise the limit of open files: ulimit -n";
    assert!(said.contains(limit), "{said}");
}
