//! Tests that untrusted text cannot control a terminal: neither a worker's description of itself and of its failures, nor the content of a
//! run's folder.

use crate::support::{Process, Sandbox, until};
use ata_wire::{FromWorker, Hello, ToWorker, connect};
use serde_json::Value;
use tokio::sync::mpsc;
use tokio_stream::StreamExt;
use tokio_stream::wrappers::ReceiverStream;

/// Text that clears the screen, turns the following text red in a second way, reverses it, and begins a new line.
const EVIL: &str = "\x1b[2J\u{9b}31m\u{202e}evil\r\nata: \x07";

/// Checks that the text contains no control sequences.
fn check(what: &str, text: &str) {
    let is_evil = |c: char| c.is_control() && c != '\n' || c == '\u{202e}';
    let found = text.lines().find(|line| line.contains(is_evil) || line.starts_with("ata: \\u{7}"));
    assert_eq!(found, None, "{what}");
}

/// Returns the output of every command that reads a run in a folder.
fn printed(sandbox: &Sandbox, run: &str) -> String {
    let mut all = String::new();
    for args in [
        &["status", run][..],
        &["status", run, "--json"],
        &["explain", run],
        &["explain", run, "--json"],
        &["explain", run, "--worker", "1"],
        &["report", run, "--out", "page.html"],
        &["replay", run, "--policy", "uta", "--seeds", "1"],
        &["replay", run, "--policy", "uta", "--seeds", "1", "--json"],
    ] {
        let outputs = sandbox.outputs(args);
        for text in &outputs {
            check(&format!("{args:?}"), text);
        }
        all += &outputs[0];
    }
    all
}

/// Joins as a worker with an evil device name, fails its first leases with an evil reason, and leaves when the coordinator has received it.
async fn fail_evilly(coordinator: &str) {
    let mut control = connect(&coordinator.parse().unwrap()).await.unwrap().coordinator();
    let (say, said) = mpsc::channel(64);
    let hello =
        Hello { name: "evil".parse().unwrap(), instance: 1, number: None, device: EVIL.into(), version: EVIL.into() };
    say.send(FromWorker::Hello(hello).into()).await.unwrap();
    let mut incoming = control.session(ReceiverStream::new(said)).await.unwrap().into_inner();
    let leases = loop {
        match incoming.next().await.unwrap().unwrap().try_into().unwrap() {
            ToWorker::Welcome(_) => {
                say.send(FromWorker::Ready { fuses: false, peer_address: None }.into()).await.unwrap();
            }
            ToWorker::Assign(leases) => break leases,
            other => panic!("{other:?}"),
        }
    };
    for lease in leases {
        say.send(FromWorker::LeaseFailed { lease: lease.lease.id, reason: EVIL.into(), uncomputable: false }.into())
            .await
            .unwrap();
    }
    drop(say);
    while incoming.next().await.is_some_and(|message| message.is_ok()) {}
}

/// Makes a run with an evil and an honest worker, and returns the coordinator, which is about to exit.
fn run(sandbox: &Sandbox, log: &[&str]) -> Process {
    let (coordinator, address) = sandbox.coordinator(&[&["--iterations", "3", "--budget", "4"], log].concat());
    tokio::runtime::Runtime::new().unwrap().block_on(fail_evilly(&address));
    until("the refusal", || sandbox.has_event("refusal"));
    sandbox.worker(&address, &[]).ends_with(0);
    coordinator
}

/// The second time, all of the journal's text is evil.
#[test]
fn text_of_workers_and_journals_is_escaped() {
    for log in [&[][..], &["--log-format", "json"]] {
        let sandbox = Sandbox::new();
        let (table, log) = run(&sandbox, log).ends_with(0);
        check("the table", &table);
        check("the log", &log);
        assert!(log.contains("[2J") && log.contains("evil"), "it quotes the worker: {log}");
        assert!(printed(&sandbox, "run").contains("evil"));
        let line = |mut event: Value| {
            corrupt(&mut event);
            event.to_string() + "\n"
        };
        let journal: String = sandbox.events().into_iter().map(line).collect();
        std::fs::write(sandbox.path("run/events.jsonl"), journal).unwrap();
        let printed = printed(&sandbox, "run");
        assert!(printed.matches("evil").count() > 10, "{printed}");
    }
}

/// Appends evil text to each free-form text in a run's journal.
fn corrupt(value: &mut Value) {
    match value {
        Value::Object(fields) => {
            for (name, value) in fields {
                match value {
                    Value::String(text) if ["run_id", "name", "device", "why", "reason", "rule"].contains(&&**name) => {
                        text.push_str(EVIL);
                    }
                    _ => corrupt(value),
                }
            }
        }
        Value::Array(values) => values.iter_mut().for_each(corrupt),
        _ => {}
    }
}
