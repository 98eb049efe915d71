//! Runs with `--otlp` as whole processes.

#![cfg(feature = "otlp")]

mod support;

use std::net::TcpListener;

use support::{Sandbox, TINY};

const RUN: [&str; 7] = ["up", "--workers", "2", "--iterations", "3", "--budget", "4"];

/// Trains with a collector at a URL; returns what the run said and the digest of its parameters.
fn train(otlp: &[&str]) -> (String, String) {
    let output = Sandbox::new().run(&[&RUN, otlp, &["--seed", "1", "--json"], &TINY[..]].concat());
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(output.status.success(), "{said}");
    let summary: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    (said, summary["parameters_sha256"].to_string())
}

/// Neither one that refuses connections nor one that takes them and says nothing changes a run or its end.
#[test]
fn a_run_does_not_need_its_collector() {
    let (_, reference) = train(&[]);
    let silent = TcpListener::bind("127.0.0.1:0").unwrap();
    let closed = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let (said, parameters) = train(&["--otlp", &format!("http://{closed}")]);
    assert_eq!(said.matches("no spans reach").count(), 1, "{said}");
    assert_eq!(parameters, reference);
    let (_, parameters) = train(&["--otlp", &format!("http://{}", silent.local_addr().unwrap())]);
    assert_eq!(parameters, reference);
}
