//! Tests that each line is JSON with `--log-format json`.

use crate::support::{Sandbox, TINY};
use serde_json::Value;

/// Runs a command, checks that it prints JSON only, and returns the lines of standard output and standard error.
fn lines(sandbox: &Sandbox, args: &[&str], code: i32) -> [Vec<Value>; 2] {
    let output = sandbox.run(args);
    let [out, said] = [&output.stdout, &output.stderr].map(|text| String::from_utf8_lossy(text));
    assert_eq!(output.status.code(), Some(code), "{args:?}: {said}");
    let parse = |line: &str| serde_json::from_str(line).unwrap_or_else(|error| panic!("{args:?}: {error}: {line}"));
    let [out, said] = [out, said].map(|text| text.lines().map(parse).collect::<Vec<Value>>());
    for line in &said {
        assert!(["timestamp", "level", "message"].iter().all(|key| line[key].is_string()), "{args:?}: {line}");
    }
    [out, said]
}

#[test]
fn each_line_is_json() {
    let sandbox = Sandbox::new();
    let up = ["up", "--workers", "2", "--iterations", "3", "--budget", "4", "--out", "run", "--lr-warmup", "9"];
    let [out, said] = lines(&sandbox, &[&up[..], &TINY, &["--log-format", "json", "--log", "info"]].concat(), 0);
    let [summary] = &out[..] else { panic!("{out:?}") };
    assert_eq!((&summary["iterations"], &summary["state"]), (&3.into(), &"finished".into()));
    for message in ["training on ", "lr_warmup = 9: ", "iteration ", "worker ready"] {
        assert!(said.iter().any(|line| line["message"].as_str().unwrap().starts_with(message)), "{message}: {said:?}");
    }
    for (args, results) in [
        (&["status", "run"][..], 1),
        (&["explain", "run"], 1),
        (&["report", "run"], 1),
        (&["replay", "run", "--seeds", "1", "--policy", "gta"], 1),
        (&["simulate", "--workers", "2", "--iterations", "5", "--policy", "gta"], 1),
        (&["simulate", "--list"], 1),
        (&["policies"], 1),
        (&["plan", "a=1ms", "b=2ms"], 1),
        (&["eval", "run"], 1),
        (&["data", "synth", "data", "--train", "10", "--test", "10"], 2),
        (&["data", "verify", "data"], 2),
        (&["up", "--resume", "run", "--json"], 0),
    ] {
        let [out, _] = lines(&sandbox, &[args, &["--log-format=json"]].concat(), 0);
        assert_eq!(out.len(), results, "{args:?}: {out:?}");
    }
}

#[test]
fn each_error_is_json() {
    let sandbox = Sandbox::new();
    for (args, code, message) in [
        (&[][..], 64, "subcommands: up, coordinator, worker"),
        (&["up", "--bugdet", "3"], 64, "unexpected argument"),
        (&["up", "--budget", "0"], 64, "budget = 0"),
        (&["up", "--data", "absent"], 65, "absent"),
        (&["worker", "--coordinator", "http://127.0.0.1:1", "--retry-for", "0"], 69, "refuses connections"),
        (&["--log", "no=such=level", "policies"], 64, "--log"),
    ] {
        let mut command = sandbox.ata(args);
        let output = command.env("ATA_LOG_FORMAT", "json").output().unwrap();
        let said = String::from_utf8(output.stderr).unwrap();
        assert_eq!((output.status.code(), output.stdout.len()), (Some(code), 0), "{args:?}: {said}");
        let last: Value = serde_json::from_str(said.lines().last().unwrap()).unwrap();
        assert_eq!(last["level"], "ERROR");
        assert!(last["message"].as_str().unwrap().contains(message), "{args:?}: {said}");
    }
}

/// A token is for a file or a pipe.
#[test]
fn a_token_is_copied_as_it_is() {
    let sandbox = Sandbox::new();
    let show = ["token", "show", "--advertise", "head"];
    let token = sandbox.text(&[&show[..], &["--log-format", "json"]].concat());
    assert!(token.starts_with("ata1-head:7070-"), "{token}");
}
