//! `cargo xtask speed`: the benchmarks of this build against those of an earlier commit.

use std::process::Command;

use crate::{Failure, Shell, words};

/// Builds `ata-dev` of the first argument, a commit, and of this checkout, and measures them in turn. Further arguments are
/// the subjects. Without any, the commit is the last release or, before there is one, the newest that is a week old.
pub(crate) fn run(shell: &Shell, arguments: &[String]) -> Result<(), Failure> {
    let before = match arguments.first() {
        Some(commit) => git(&format!("rev-parse --verify {commit}^{{commit}}"))?,
        None => git("describe --tags --abbrev=0 HEAD~1").or_else(|_| git("rev-list -1 --before=1.week HEAD"))?,
    };
    // Its own folder and target directory, or the two builds would take each other's crates for theirs.
    let folder = std::env::temp_dir().join(format!("ata-speed-{before}"));
    let program = folder.join("target/release/ata-dev");
    if !folder.exists() {
        shell.run(&[words("git worktree add --detach"), vec![folder.display().to_string(), before]].concat())?;
    }
    let build = words("cargo build --release --locked -p ata-dev");
    shell.run_with(&build, |command| command.current_dir(&folder).env("CARGO_TARGET_DIR", folder.join("target")))?;
    let compare = words("cargo run --release --locked -p ata-dev -- bench --against");
    shell.run(&[compare, vec![program.display().to_string()], arguments.iter().skip(1).cloned().collect()].concat())
}

/// Returns what git prints.
fn git(arguments: &str) -> Result<String, Failure> {
    let output = Command::new("git").args(words(arguments)).output().map_err(|error| format!("git: {error}"))?;
    let text = String::from_utf8_lossy(&output.stdout).trim().to_owned();
    if output.status.success() && !text.is_empty() { Ok(text) } else { Err(format!("git {arguments}: no such commit")) }
}
