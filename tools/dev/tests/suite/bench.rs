//! Tests of `ata-dev bench`. Times are not asserted.

use crate::support::Sandbox;
use serde_json::Value;

#[test]
fn a_build_is_compared_with_another_one() {
    let sandbox = Sandbox::new();
    let this = env!("CARGO_BIN_EXE_ata-dev");
    let output = sandbox.run(&["bench", "allocation", "--json", "--against", this]);
    let figures: Vec<Value> = serde_json::from_slice(&output.stdout).unwrap();
    assert!(!figures.is_empty());
    for figure in figures {
        assert!(figure["name"].is_string() && figure["before_seconds"].as_f64() > Some(0.0), "{figure}");
    }
    let output = sandbox.run(&["bench", "allocation", "--against", "no-such-program"]);
    let log = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(70), "{log}");
    assert!(log.contains("no-such-program bench allocation: "), "{log}");
}
