//! Tests that the problem learns, and that its parameters do not depend on which worker computes what. Run them with `cargo test
//! --release`.

use std::process::Command;

/// Trains for some iterations, and returns what `--json` prints: one field per line.
fn train(name: &str, flags: &[&str]) -> String {
    let out = format!("{}/{name}", env!("CARGO_TARGET_TMPDIR"));
    std::fs::remove_dir_all(&out).ok();
    let output = Command::new(env!("CARGO_BIN_EXE_NAME"))
        .args(["up", "--iterations", "60", "--device", "cpu", "--task-time", "none", "--json", "--out", &out])
        .args(flags)
        .output()
        .expect("the program starts");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).expect("JSON is UTF-8")
}

fn field<'a>(summary: &'a str, name: &str) -> &'a str {
    let (_, rest) = summary.split_once(&format!("\"{name}\": ")).expect("the summary has this field");
    rest.split(['\n', ',']).next().unwrap_or(rest)
}

#[test]
fn training_reduces_the_loss() {
    let summary = train("learns", &["--lr", "1e-2"]);
    let loss = |name| field(&summary, name).parse::<f64>().expect("a loss is a number");
    assert!(loss("final_loss") < 0.8 * loss("first_loss"), "{summary}");
}

#[test]
fn parameters_do_not_depend_on_who_computes_what() {
    let one = train("one", &["--workers", "1"]);
    let three = train("three", &["--workers", "3", "--policy", "uta"]);
    assert_eq!(field(&one, "parameters_sha256"), field(&three, "parameters_sha256"));
}
