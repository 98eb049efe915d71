//! Tests that problems other than images have all of ata's commands.

use crate::support::Sandbox;
use serde_json::Value;

/// Runs a command of an example that must succeed, and returns what `--json` prints.
fn json(sandbox: &Sandbox, example: &str, args: &[&str]) -> Value {
    let output = sandbox.example(example, &[args, &["--json"]].concat());
    assert!(output.status.success(), "{args:?}: {}", String::from_utf8_lossy(&output.stderr));
    serde_json::from_slice(&output.stdout).unwrap()
}

/// Runs a command that must fail, and returns the last line that it prints.
fn failure(sandbox: &Sandbox, example: &str, args: &[&str]) -> String {
    let output = sandbox.example(example, args);
    assert_eq!(output.status.code(), Some(65), "{args:?}");
    String::from_utf8(output.stderr).unwrap().lines().last().unwrap().to_owned()
}

const UP: [&str; 9] = ["up", "--workers", "2", "--task-time", "none", "--budget", "4", "--device", "cpu"];

#[test]
fn a_language_model_learns_and_writes() {
    let sandbox = Sandbox::new();
    std::fs::write(sandbox.path("text.txt"), "the quick brown fox jumps over the lazy dog\n".repeat(60)).unwrap();
    let run = [&UP[..], &["--data", "text.txt", "--iterations", "40", "--task-batch", "2", "--lr", "3e-3"]].concat();
    let output = sandbox.example("char_lm", &[&run[..], &["--out", "run"]].concat());
    let printed = String::from_utf8(output.stdout).unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let sample = printed.split("A sample:\n\n").nth(1).unwrap();
    assert!(sample.chars().count() >= 200, "{printed}");
    let measured = json(&sandbox, "char_lm", &["eval", "run"]);
    // A random guess has a loss of ln 97 = 4.57.
    assert!(measured["loss"].as_f64() < Some(3.5) && measured["accuracy"].as_f64() > Some(0.1), "{measured}");
    assert_eq!(measured["classes"][1]["name"], "' '");

    std::fs::write(sandbox.path("short.txt"), "too short").unwrap();
    let refused = failure(&sandbox, "char_lm", &["up", "--data", "short.txt"]);
    assert!(refused.contains("9 characters: expected at least 650"), "{refused}");
    let none = failure(&sandbox, "char_lm", &["up", "--data", "synthetic"]);
    assert!(none.contains("no synthetic data for this model: --data takes a text file"), "{none}");
}

/// A regression has a loss but no accuracy, in any output.
#[test]
fn a_regression_learns_from_a_table() {
    let sandbox = Sandbox::new();
    let row = |at: u32| format!("{},{},{}\n", at % 7, at % 5, at % 7 + 2 * (at % 5));
    std::fs::write(sandbox.path("table.csv"), format!("a,b,y\n{}", (0..400).map(row).collect::<Vec<_>>().concat()))
        .unwrap();
    let data = ["--data", "table.csv", "--model", "mlp:inputs=2", "--out", "run"];
    let training = ["--iterations", "60", "--lr", "1e-2", "--eval-every", "20"];
    let summary = json(&sandbox, "tabular", &[&UP[..], &data, &training].concat());
    assert!(summary["test_loss"].as_f64() < Some(0.1), "{summary}");
    assert!(summary["test_accuracy"].is_null());
    assert!(sandbox.path("run/model-best.safetensors").is_file());
    let measured = json(&sandbox, "tabular", &["eval", "run"]);
    assert_eq!(measured["loss"], summary["test_loss"]);
    let error = &summary["test_metrics"]["absolute error"];
    assert!(error.as_f64() > Some(0.0) && &measured["metrics"]["absolute error"] == error, "{measured}");
    let status = String::from_utf8(sandbox.example("tabular", &["status", "run"]).stdout).unwrap();
    assert!(status.contains(&format!("absolute error {:.3}", error.as_f64().unwrap())), "{status}");
    assert_eq!((&measured["accuracy"], &measured["classes"]), (&Value::Null, &Value::Array(Vec::new())));

    let generated = json(&sandbox, "tabular", &[&UP[..], &["--iterations", "5"]].concat());
    assert_eq!((&generated["model"], &generated["data"]), (&"mlp".into(), &"synthetic".into()));
    let other = failure(&sandbox, "tabular", &["up", "--data", "table.csv"]);
    assert!(other.contains("line 2: 3 columns; use --model mlp:inputs=2"), "{other}");
    let wrong = sandbox.example("tabular", &["up", "--target-accuracy", "0.5"]);
    assert_eq!(wrong.status.code(), Some(64), "{}", String::from_utf8_lossy(&wrong.stderr));
}
