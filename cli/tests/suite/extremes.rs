//! Tests that any number in a flag or a file is either used or refused: with a documented exit code, without a panic, and in bounded
//! memory.
#![cfg(target_os = "linux")]

use std::collections::BTreeSet;
use std::path::Path;

use crate::support::extremes::{DESCRIBED, changed, ends_well, places};
use crate::support::{Sandbox, TINY};
use serde_json::Value;

/// The replacements for a number; the first one is nothing.
const EXTREMES: &str =
    ",0,-1,0.5,1e20,1e308,NaN,inf,4294967295,4294967296,9007199254740992,9223372036854775808,18446744073709551615";

/// The commands with flags that take a value, and a valid use of each. {RUN} is a run's folder, {IMAGES} one with
/// CIFAR-10's files, {NEW} a new one.
const COMMANDS: [(&str, &str); 20] = [
    (
        "up",
        "--model=cnn:widths=4/4/8/16 --device=cpu --workers=1 --task-time=none --task-batch=1 --budget=2 --iterations=2 \
         --target-loss=1e9 --out={NEW}",
    ),
    ("coordinator", "--model=cnn:widths=4/4/8/16 --device=cpu --listen=127.0.0.1:0 --dashboard=off --out={NEW}"),
    ("worker", "--coordinator=http://127.0.0.1:1 --device=cpu --retry-for=0"),
    ("status", "{RUN}"),
    ("explain", "{RUN}"),
    ("report", "{RUN}"),
    ("token show", "--advertise=head:7070"),
    ("token rotate", "--advertise=head:7070"),
    ("data fetch", "--url=http://127.0.0.1:1/data.tar.gz"),
    ("data synth", "{NEW} --train=2 --test=2"),
    ("data pack", "{IMAGES} {NEW}"),
    ("new", "{NEW}/a"),
    ("init", "{NEW} --model=cnn:widths=4/4/8/16"),
    ("eval", "{RUN} --device=cpu"),
    (
        "plan",
        "gpu=20ms cpu=50ms --budget=2 --link=1Gbit --round-trip=1ms --local-steps=9 --difference-bits=8 --model-bytes=1MB",
    ),
    ("simulate", "--task-time=exp(i) --workers=3 --budget=2 --iterations=2 --policy=uta"),
    ("replay", "{RUN} --policy=uta --seeds=1"),
    ("doctor", "--device=cpu --model=cnn:widths=4/4/8/16 --task-batch=1"),
    ("man", "--out={NEW}"),
    ("health", "http://127.0.0.1:1"),
];

/// Creates a run, and returns its folder.
fn run(sandbox: &Sandbox) -> String {
    let folder = sandbox.path("run").to_str().unwrap().to_owned();
    let few =
        ["--workers", "2", "--task-time", "scale(1)", "--iterations", "6", "--budget", "4", "--checkpoint-every", "2"];
    sandbox.summary(&[&["up", "--out", &folder], &TINY[..], &few].concat());
    folder
}

/// Creates a folder with an image in each file of CIFAR-10's binary layout: a label, and 3,072 bytes of pixels.
fn images(sandbox: &Sandbox) -> String {
    let folder = sandbox.path("images");
    std::fs::create_dir(&folder).unwrap();
    for file in ["data_batch_1", "data_batch_2", "data_batch_3", "data_batch_4", "data_batch_5", "test_batch"] {
        std::fs::write(folder.join(file).with_extension("bin"), [7; 3073]).unwrap();
    }
    folder.to_str().unwrap().to_owned()
}

/// Tries each extreme as the value of each chosen flag, at least `least` times in all.
fn try_flags(least: usize, is_chosen: impl Fn(&str, &str) -> bool) {
    let sandbox = Sandbox::new();
    let (run, images) = (run(&sandbox), images(&sandbox));
    let mut tried = 0;
    for (command, flag) in DESCRIBED.flags.iter().filter(|(command, flag)| is_chosen(command, flag)) {
        let valid = COMMANDS.iter().find(|(name, _)| name == command);
        let (_, valid) = valid.unwrap_or_else(|| panic!("a valid use of ata {command} is wanted here"));
        for extreme in EXTREMES.split(',') {
            let others = valid.split_whitespace().filter(|arg| arg.split('=').next() != Some(flag));
            let others = others.collect::<Vec<_>>().join(" ").replace("{RUN}", &run).replace("{IMAGES}", &images);
            let others = others.replace("{NEW}", &format!("new-{tried}"));
            let changed = format!("{flag}={extreme}");
            let args = command.split(' ').chain(others.split_whitespace()).chain([&*changed]);
            ends_well(&sandbox, &args.collect::<Vec<_>>());
            tried += 1;
        }
    }
    println!("{tried} commands");
    assert!(tried > least);
}

#[test]
fn flags_of_a_run() {
    try_flags(100, |command, _| command == "up");
}

#[test]
fn flags_of_a_coordinator_that_are_not_those_of_a_run() {
    let is_of_up = |flag: &str| DESCRIBED.flags.iter().any(|(command, of_up)| command == "up" && of_up == flag);
    try_flags(50, |command, flag| command == "coordinator" && (!is_of_up(flag) || flag == "--dashboard"));
}

#[test]
fn flags_of_all_other_commands() {
    // The flags for the log are common to all commands.
    try_flags(100, |command, flag| !["up", "coordinator"].contains(&command) && !flag.starts_with("--log"));
}

/// Each number of one event of each kind is replaced. Every command reads the event or refuses it.
#[test]
fn numbers_in_journals() {
    let sandbox = Sandbox::new();
    let folder = run(&sandbox);
    let path = Path::new(&folder).join("events.jsonl");
    let journal = std::fs::read_to_string(&path).unwrap();
    let lines: Vec<&str> = journal.lines().collect();
    let (mut kinds, mut refused, mut read) = (BTreeSet::new(), 0, 0);
    for (at, line) in lines.iter().enumerate() {
        let event: Value = serde_json::from_str(line).unwrap();
        if !kinds.insert(event["event"].to_string()) {
            continue;
        }
        for changed in changed(&event, &places(&event)) {
            let mut lines = lines.clone();
            let changed = changed.to_string();
            lines[at] = &changed;
            std::fs::write(&path, lines.join("\n") + "\n").unwrap();
            for command in ["status", "explain", "report", "replay --policy=all --seeds=1"] {
                let args: Vec<&str> = command.split(' ').chain([&*folder]).collect();
                let code = ends_well(&sandbox, &args).0.code();
                *(if code == Some(0) { &mut read } else { &mut refused }) += 1;
            }
        }
    }
    println!("{kinds:?}: {refused} refused, {read} read");
    assert!(kinds.len() > 5 && refused > 100 && read > 100);
}
