//! `cargo xtask flaky`: runs tests again and again on a busy machine, to find those that can lose a race.

use std::path::Path;
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use crate::{Failure, Shell};

/// A race that is lost once in twenty runs is found with a probability of 92 %.
const TIMES: u32 = 50;

/// As many busy loops as the machine that checks changes has cores.
const BUSY_LOOPS: usize = 2;

/// Runs what the arguments of `cargo test` choose or, without any, the tests in files that changed since the commit before.
pub(crate) fn run(shell: &Shell, arguments: &[String]) -> Result<(), Failure> {
    let chosen = if arguments.is_empty() { changed()? } else { vec![arguments.to_vec()] };
    if chosen.is_empty() {
        return Err(
            "no file of tests has changed; name tests as for `cargo test`, as in -p ata --test suite resume".into()
        );
    }
    let is_over = Arc::new(AtomicBool::new(false));
    let loops: Vec<_> = (0..BUSY_LOOPS)
        .map(|_| {
            let is_over = is_over.clone();
            std::thread::spawn(move || {
                while !is_over.load(Ordering::Relaxed) {
                    std::hint::spin_loop();
                }
            })
        })
        .collect();
    let ended = chosen.iter().try_for_each(|arguments| {
        (1..=TIMES).try_for_each(|time| {
            println!("\n== run {time} of {TIMES}");
            let command = ["cargo", "test", "--release", "--locked"].iter().map(ToString::to_string);
            shell.run(&command.chain(arguments.iter().cloned()).collect::<Vec<_>>())
        })
    });
    is_over.store(true, Ordering::Relaxed);
    for busy in loops {
        drop(busy.join());
    }
    ended
}

/// Arguments of `cargo test` for each changed file of tests: its crate, and the module's name.
fn changed() -> Result<Vec<Vec<String>>, Failure> {
    let output = Command::new("git").args(["diff", "--name-only", "HEAD~1"]).output();
    let output = output.map_err(|error| format!("git: {error}"))?;
    let files = String::from_utf8_lossy(&output.stdout).into_owned();
    Ok(files.lines().filter_map(tests_of).collect())
}

/// The tests in a file, if it has some: those of a module of the crate's test program.
fn tests_of(file: &str) -> Option<Vec<String>> {
    let (folder, rest) = file.split_once("/tests/suite/")?;
    let module = rest.strip_suffix(".rs")?.split('/').next()?;
    let manifest = Path::new(folder).join("Cargo.toml").to_string_lossy().into_owned();
    let is_module = !["main", "support"].contains(&module);
    let filter = format!("{module}::");
    is_module.then(|| ["--manifest-path", &manifest, "--test", "suite", &filter].map(String::from).into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_changed_file_names_its_tests() {
        let chosen = tests_of("tools/harness/tests/suite/shards.rs").unwrap();
        assert_eq!(chosen, ["--manifest-path", "tools/harness/Cargo.toml", "--test", "suite", "shards::"]);
        assert_eq!(tests_of("cli/tests/suite/support/mod.rs"), None);
        assert_eq!(tests_of("cli/src/main.rs"), None);
    }
}
