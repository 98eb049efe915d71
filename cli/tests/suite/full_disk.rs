//! Tests that a run whose results cannot be written does not end with exit code 0.
#![cfg(unix)]

use std::path::Path;
use std::process::Output;

use crate::support::{Sandbox, TINY};

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

/// Runs a command that cannot write files of more than this many blocks of 512 bytes (or 1,024, in some shells).
fn limited(sandbox: &Sandbox, blocks: u32, args: &[&str]) -> Output {
    let (ata, blocks) = (sandbox.ata(&[]), blocks.to_string());
    let limit = ["-c", "ulimit -f $0 && exec \"$@\"", &blocks, ata.get_program().to_str().unwrap()];
    sandbox.command(Path::new("sh"), &[&limit[..], args].concat()).output().unwrap()
}

/// SIGXFSZ would kill the process.
#[test]
fn a_run_lacks_no_result_without_saying_so() {
    let sandbox = Sandbox::new();
    let mut ended = Vec::new();
    for blocks in [1, 4, 8, 16, 32, 64, 128, 256, 1 << 20] {
        let out = format!("run-{blocks}");
        let args =
            ["up", "--task-time", "none", "--workers", "1", "--budget", "4", "--iterations", "20", "--out", &out];
        let output = limited(&sandbox, blocks, &[&args[..], &TINY].concat());
        let said = said(&output);
        let run = sandbox.path(&out);
        let missing = NEEDED.iter().filter(|(file, _)| !run.join(file).metadata().is_ok_and(|file| file.len() > 0));
        let missing: Vec<&str> = missing.map(|(_, name)| *name).collect();
        let code = output.status.code();
        assert!(
            code == Some(74) || code == Some(0) && missing.is_empty(),
            "{blocks}: {code:?} without {missing:?}: {said}"
        );
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
        let output = limited(&sandbox, 1, args);
        let said = said(&output);
        let name = args.iter().skip(1).rfind(|arg| !arg.starts_with('-') && arg.parse::<u32>().is_err()).unwrap();
        assert_eq!(output.status.code(), Some(74), "{args:?}: {said}");
        assert!(
            said.lines().last().unwrap().starts_with("ata: cannot write") && said.contains(name),
            "{args:?}: {said}"
        );
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
