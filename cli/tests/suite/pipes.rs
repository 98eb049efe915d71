//! Tests that a reader that closes the pipe, such as `head`, ends a command quietly, and that an output that cannot be
//! written is a failure.
#![cfg(unix)]

use std::process::Stdio;

use crate::support::Sandbox;

/// Commands with different ways of printing.
const COMMANDS: [&[&str]; 7] = [
    &["policies"],
    &["policies", "--json"],
    &["completions", "bash"],
    &["simulate", "--list"],
    &["simulate", "--show", "ata-regret"],
    &["simulate", "--task-time", "const(1)", "--workers", "2", "--iterations", "2"],
    &["up", "--help"],
];

#[test]
fn a_reader_that_leaves_ends_a_command_quietly() {
    let sandbox = Sandbox::new();
    for args in COMMANDS {
        let mut child = sandbox.ata(args).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        drop(child.stdout.take());
        let output = child.wait_with_output().unwrap();
        let said = String::from_utf8_lossy(&output.stderr);
        assert_eq!((output.status.code(), &*said), (Some(0), ""), "{args:?}");
    }
}

#[cfg(target_os = "linux")]
#[test]
fn an_output_that_cannot_be_written_is_a_failure() {
    let sandbox = Sandbox::new();
    for args in COMMANDS {
        let full = std::fs::File::options().write(true).open("/dev/full").unwrap();
        let output = sandbox.ata(args).stdout(full).stderr(Stdio::piped()).output().unwrap();
        let said = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(74), "{args:?}: {said}");
        assert!(said.starts_with("ata: cannot write to standard output: "), "{args:?}: {said}");
    }
}
