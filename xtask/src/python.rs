//! Builds the Python package as a wheel, installs it in a new environment, and tests it there.

use std::path::{Path, PathBuf};

use crate::{Failure, Shell};

/// The build tool, the test runner, and gRPC for a worker that is written from the contract alone. Their versions are pinned because later
/// ones may fail on an old commit.
const MATURIN: &str = "maturin==1.16.0";
const PYTEST: &str = "pytest==9.2.0";
const GRPC: &str = "grpcio-tools==1.85.1";

/// What the package's adapters are for, in their newest versions: what users install.
const ADAPTED: [&str; 7] = ["torch", "torchvision", "lightning", "accelerate", "transformers", "jax", "matplotlib"];

/// Builds, installs and tests the package, without PyTorch. Needs Python 3.10 or newer with venv, and access to PyPI.
pub(crate) fn check(shell: &Shell, arguments: &[String]) -> Result<(), Failure> {
    test(shell, "tests", &[], arguments)
}

/// The same in an environment with everything that the package has an adapter for: 6 GB.
pub(crate) fn check_adapters(shell: &Shell, arguments: &[String]) -> Result<(), Failure> {
    test(shell, "adapters", &ADAPTED, arguments)
}

fn test(shell: &Shell, environment_name: &str, packages: &[&str], arguments: &[String]) -> Result<(), Failure> {
    let target = std::env::var_os("CARGO_TARGET_DIR").map_or_else(|| PathBuf::from("target"), PathBuf::from);
    let folder =
        std::path::absolute(target.join("python")).map_err(|error| format!("{}: {error}", target.display()))?;
    let (build, tests, wheels) = (folder.join("build"), folder.join(environment_name), folder.join("wheels"));
    // This environment is reused: it contains no code of this repository.
    if !program(&build, "maturin").exists() {
        environment(shell, &build)?;
        install(shell, &build, MATURIN)?;
    }
    clear(&wheels)?;
    let maturin = [program(&build, "maturin"), "build".into(), "--release".into(), "--locked".into(), "--out".into()];
    shell.run_with(&texts(maturin.into_iter().chain([wheels.clone()])), |command| command.current_dir("python"))?;
    environment(shell, &tests)?;
    for package in [PYTEST, GRPC, &wheel(&wheels)?].iter().chain(packages) {
        install(shell, &tests, package)?;
    }
    // pytest does not run in `python/`, so the tests import the installed package.
    let mut pytest = texts([program(&tests, "pytest"), "python/tests".into()]);
    pytest.extend_from_slice(arguments);
    shell.run(&pytest)
}

/// Creates a virtual environment without third-party packages.
fn environment(shell: &Shell, folder: &Path) -> Result<(), Failure> {
    let python = if cfg!(windows) { "python" } else { "python3" };
    let words = [python, "-m", "venv", "--clear"].map(PathBuf::from);
    shell.run(&texts(words.into_iter().chain([folder.into()])))
}

fn install(shell: &Shell, folder: &Path, what: &str) -> Result<(), Failure> {
    let words = ["-m", "pip", "install", "--quiet", "--disable-pip-version-check", what].map(PathBuf::from);
    shell.run(&texts([program(folder, "python")].into_iter().chain(words)))
}

/// The path of a program in an environment.
fn program(folder: &Path, name: &str) -> PathBuf {
    if cfg!(windows) { folder.join("Scripts").join(name).with_extension("exe") } else { folder.join("bin").join(name) }
}

fn wheel(folder: &Path) -> Result<String, Failure> {
    let entries = std::fs::read_dir(folder).map_err(|error| format!("{}: {error}", folder.display()))?;
    let paths: Vec<PathBuf> = entries.filter_map(|entry| Some(entry.ok()?.path())).collect();
    match paths.as_slice() {
        [wheel] => Ok(wheel.display().to_string()),
        others => Err(format!("{}: expected one wheel, found {}", folder.display(), others.len())),
    }
}

fn clear(folder: &Path) -> Result<(), Failure> {
    match std::fs::remove_dir_all(folder) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => Err(format!("{}: {error}", folder.display())),
        _ => Ok(()),
    }
}

fn texts(words: impl IntoIterator<Item = PathBuf>) -> Vec<String> {
    words.into_iter().map(|word| word.display().to_string()).collect()
}
