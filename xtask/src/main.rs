//! Commands for contributors. `cargo xtask` prints the list, which is [`TASKS`].

mod flaky;
mod house;
mod python;
mod speed;

use std::path::Path;
use std::process::{Command, ExitCode};
use std::time::Instant;

type Failure = String;

/// A task that `cargo xtask NAME` runs.
struct Task {
    name: &'static str,
    help: &'static str,
    run: fn(&Shell, &[String]) -> Result<(), Failure>,
}

const TASKS: [Task; 17] = [
    Task { name: "ci", help: "everything that a change must pass: the next six", run: ci },
    Task { name: "test", help: "all tests, or those that further arguments of `cargo test` choose", run: test },
    Task {
        name: "house",
        help: "counts lines, doubled names, circles, fragments and words, within bounds",
        run: |_, _| house::check(),
    },
    Task { name: "lint", help: "formatting, and clippy with warnings as errors", run: lint },
    Task { name: "doc", help: "the documentation of the code, with warnings as errors", run: doc },
    Task { name: "features", help: "a type check with GPUs, object stores and traces", run: features },
    Task {
        name: "python",
        help: "builds, installs and tests the Python package (needs Python 3.10)",
        run: python::check,
    },
    Task {
        name: "adapters",
        help: "the same with PyTorch, Lightning, transformers and JAX, which `python` skips (6 GB from PyPI)",
        run: python::check_adapters,
    },
    Task {
        name: "flaky",
        help: "runs changed tests, or those that arguments of `cargo test` choose, 50 times on a busy machine",
        run: flaky::run,
    },
    Task {
        name: "speed",
        help: "[COMMIT] [SUBJECT]...: compares the benchmarks with those of a commit, or of the last release",
        run: speed::run,
    },
    Task {
        name: "reference",
        help: "writes docs/reference/ from the code",
        run: |shell, _| shell.cargo("run --release --locked -p ata-dev -- reference --out docs/reference"),
    },
    Task {
        name: "book",
        help: "builds docs/ as a book into book/ (needs mdbook)",
        run: |shell, _| shell.run(&words("mdbook build docs")),
    },
    Task { name: "page", help: "tests the dashboard's page in Chromium (needs Node 20)", run: page },
    Task {
        name: "deny",
        help: "checks licenses, advisories and sources of all crates (needs cargo-deny)",
        run: |shell, _| shell.cargo("deny --locked check"),
    },
    Task { name: "typos", help: "checks the spelling (needs typos-cli)", run: |shell, _| shell.run(&words("typos")) },
    Task {
        name: "fuzz",
        help: "[TARGET] [SECONDS]: fuzzes one reader or each, 60 s (needs cargo-fuzz, nightly)",
        run: fuzz,
    },
    Task {
        name: "figures",
        help: "[--data DIR]: simulates the comparison of docs/explanation/policies-compared.md and keeps its figure",
        run: figures,
    },
];

fn main() -> ExitCode {
    let mut arguments = std::env::args().skip(1);
    let name = arguments.next().unwrap_or_default();
    let Some(task) = TASKS.iter().find(|task| task.name == name) else {
        eprintln!("cargo xtask TASK, where TASK is");
        for Task { name, help, .. } in TASKS {
            eprintln!("  {name:10} {help}");
        }
        return if name.is_empty() { ExitCode::SUCCESS } else { ExitCode::from(64) };
    };
    let shell = Shell { start: Instant::now() };
    match enter_root().and_then(|()| (task.run)(&shell, &arguments.collect::<Vec<_>>())) {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => {
            eprintln!("cargo xtask {name}: {failure}");
            ExitCode::FAILURE
        }
    }
}

/// Changes to the root of the repository: all paths in this program are relative to it.
fn enter_root() -> Result<(), Failure> {
    // The variable is read at run time because several checkouts may share one target directory.
    let manifest = std::env::var_os("CARGO_MANIFEST_DIR").ok_or("start it with `cargo xtask`")?;
    std::env::set_current_dir(Path::new(&manifest).join(".."))
        .map_err(|error| format!("{}: {error}", manifest.display()))
}

fn ci(shell: &Shell, _: &[String]) -> Result<(), Failure> {
    shell.cargo("fmt --check")?;
    house::check()?;
    // Most tests wait for other processes, rather than compute.
    let threads = 2 * std::thread::available_parallelism().map_or(1, usize::from);
    test(shell, &words(&format!("--workspace -- --test-threads {threads}")))?;
    clippy(shell)?;
    doc(shell, &[])?;
    features(shell, &[])?;
    python::check(shell, &[])?;
    println!("\nall passed in {} s", shell.start.elapsed().as_secs());
    Ok(())
}

fn test(shell: &Shell, arguments: &[String]) -> Result<(), Failure> {
    let mut command = words("cargo test --release --locked");
    if arguments.is_empty() {
        command.push("--workspace".into());
    }
    command.extend_from_slice(arguments);
    shell.run(&command)
}

fn lint(shell: &Shell, _: &[String]) -> Result<(), Failure> {
    shell.cargo("fmt --check")?;
    clippy(shell)
}

fn clippy(shell: &Shell) -> Result<(), Failure> {
    shell.cargo("clippy --release --workspace --all-targets --locked -- -D warnings")
}

fn doc(shell: &Shell, _: &[String]) -> Result<(), Failure> {
    let command = words("cargo doc --release --workspace --no-deps --locked");
    shell.run_with(&command, |command| command.env("RUSTDOCFLAGS", "-D warnings"))
}

fn features(shell: &Shell, _: &[String]) -> Result<(), Failure> {
    shell.cargo("check --release --workspace --tests --features ata/gpu,ata/object-store --locked")
}

fn page(shell: &Shell, _: &[String]) -> Result<(), Failure> {
    shell.cargo("build --release --locked")?;
    for command in ["npm ci", "npx playwright test"] {
        shell.run_with(&words(command), |command| command.current_dir("tools/page-tests"))?;
    }
    Ok(())
}

fn fuzz(shell: &Shell, arguments: &[String]) -> Result<(), Failure> {
    let seconds = arguments.get(1).map_or("60", String::as_str);
    let targets = match arguments.first() {
        Some(target) => vec![target.clone()],
        None => fuzz_targets()?,
    };
    // The fuzz targets are built with the same versions as the program.
    std::fs::copy("Cargo.lock", "fuzz/Cargo.lock").map_err(|error| format!("cannot copy Cargo.lock: {error}"))?;
    shell.run_with(&words("cargo run --release --bin ata-fuzz"), |command| command.current_dir("fuzz"))?;
    for target in targets {
        let command = words(&format!("rustup run nightly cargo fuzz run {target} -- -max_total_time={seconds}"));
        shell.run(&command)?;
    }
    Ok(())
}

/// The names of the files in `fuzz/targets`.
fn fuzz_targets() -> Result<Vec<String>, Failure> {
    let entries = std::fs::read_dir("fuzz/targets").map_err(|error| format!("fuzz/targets: {error}"))?;
    let stem = |entry: std::io::Result<std::fs::DirEntry>| Some(entry.ok()?.path().file_stem()?.to_str()?.to_owned());
    let mut targets: Vec<String> = entries.filter_map(stem).collect();
    targets.sort();
    Ok(targets)
}

fn figures(shell: &Shell, arguments: &[String]) -> Result<(), Failure> {
    let mut command = words("cargo run --release --locked -- simulate --experiment comparison --out runs/comparison");
    command.extend_from_slice(arguments);
    shell.run(&command)?;
    let copied = std::fs::copy("runs/comparison/comparison.svg", "docs/figures/comparison.svg");
    copied.map(drop).map_err(|error| format!("cannot copy runs/comparison/comparison.svg: {error}"))
}

/// Runs commands, and prints how long the task took.
struct Shell {
    start: Instant,
}

impl Shell {
    fn cargo(&self, arguments: &str) -> Result<(), Failure> {
        self.run(&words(&format!("cargo {arguments}")))
    }

    fn run(&self, command: &[String]) -> Result<(), Failure> {
        self.run_with(command, |command| command)
    }

    fn run_with(&self, words: &[String], change: impl Fn(&mut Command) -> &mut Command) -> Result<(), Failure> {
        println!("\n== {} (after {} s)", words.join(" "), self.start.elapsed().as_secs());
        // On Windows, npm and npx are scripts, which start only by their full name.
        let is_script = cfg!(windows) && words[0].starts_with("np");
        let program = if is_script { format!("{}.cmd", words[0]) } else { words[0].clone() };
        let mut command = Command::new(program);
        // Cargo sets these for this program. Build scripts that read them would run again and cause recompilation.
        for (name, _) in std::env::vars_os() {
            if name.to_str().is_some_and(|name| name.starts_with("CARGO_PKG_") || name.starts_with("CARGO_MANIFEST_")) {
                command.env_remove(name);
            }
        }
        let status = change(command.args(&words[1..])).status();
        let status = status.map_err(|error| format!("cannot run {}: {error}. Is it installed?", words[0]))?;
        if status.success() { Ok(()) } else { Err(format!("`{}` failed: {status}", words.join(" "))) }
    }
}

fn words(command: &str) -> Vec<String> {
    command.split(' ').map(str::to_owned).collect()
}
