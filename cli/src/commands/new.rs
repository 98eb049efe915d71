//! The command `ata new`: writes a crate with a custom problem.

use std::path::{Path, PathBuf};

use crate::args::NewArgs;
use crate::failure::{Failure, require};
use crate::output::{note, write_file};
use crate::shell::word;

/// The source of the program: the example that the documentation explains and that tests run.
const EXAMPLE: &str = include_str!("../../examples/tabular.rs");
const MANIFEST: &str = include_str!("../../templates/Cargo.toml.in");
const TEST: &str = include_str!("../../templates/training.rs");
/// The lock file with the versions that ata is tested with. Cargo removes the packages that the crate does not need.
const LOCK: &str = include_str!("../../../Cargo.lock");
/// The URL of the releases, which is set by the workflow that builds them.
const REPOSITORY: Option<&str> = option_env!("ATA_REPOSITORY");
/// The folder of the sources that this program was built from.
const SOURCES: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/..");

pub(crate) fn run(args: &NewArgs) -> Result<(), Failure> {
    let shown = args.folder.display();
    let name = args.folder.file_name().and_then(|name| name.to_str()).unwrap_or_default();
    check(name)?;
    let [ata, learn] = dependencies(args.ata.as_deref())?;
    let message = || format!("{shown} exists already: choose another name, or remove it first");
    require(!args.folder.exists(), message)?;
    let manifest =
        MANIFEST.replace("NAME", name).replace("ATA_LEARN", &learn).replace("{ ATA }", &format!("{{ {ata} }}"));
    for (file, text) in [
        ("Cargo.toml", manifest),
        ("Cargo.lock", LOCK.to_owned()),
        (".gitignore", "/target\n/runs\n".to_owned()),
        ("src/main.rs", EXAMPLE.replace("--release --example tabular --", "--release --")),
        ("tests/training.rs", TEST.replace("CARGO_BIN_EXE_NAME", &format!("CARGO_BIN_EXE_{name}"))),
    ] {
        let path = args.folder.join(file);
        let parent = path.parent().unwrap_or(&args.folder);
        std::fs::create_dir_all(parent)
            .map_err(|cause| Failure::disk(format!("cannot write {}: {cause}", path.display())))?;
        write_file(&path, text.as_bytes())?;
    }
    note!("{shown}: regression on a table, to be replaced by your problem in src/main.rs");
    note!("train it: cd {} && cargo run --release -- up", word(&args.folder));
    Ok(())
}

/// Refuses an invalid crate name, and the name of a dependency.
fn check(name: &str) -> Result<(), Failure> {
    let is_written = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-' || c == '_';
    let is_name = name.starts_with(|c: char| c.is_ascii_lowercase()) && name.chars().all(is_written);
    let is_taken = ["ata", "ata-learn", "burn", "rand", "core", "std", "alloc", "test"].contains(&name);
    require(is_name && name.len() <= 64 && !is_taken, || {
        format!(
            "'{name}' cannot be the name of a crate that uses ata: expected up to 64 lower-case letters, digits, '-' and '_', a \
             letter first, as in my-problem"
        )
    })
}

/// Returns the dependencies on `ata` and `ata-learn` for the manifest.
fn dependencies(chosen: Option<&Path>) -> Result<[String; 2], Failure> {
    if let (None, Some(repository)) = (chosen, REPOSITORY) {
        let release = format!("git = \"{repository}\", tag = \"v{}\"", env!("CARGO_PKG_VERSION"));
        return Ok([release.clone(), release]);
    }
    let sources = chosen.map_or_else(|| PathBuf::from(SOURCES), Path::to_path_buf);
    let folders = ["cli", "common/learn"].map(|folder| sources.join(folder));
    let found = folders.each_ref().map(|folder| folder.join("Cargo.toml").canonicalize());
    match found {
        [Ok(cli), Ok(learn)] => Ok([cli, learn].map(|manifest| {
            let folder = manifest.parent().unwrap_or(&manifest).display().to_string();
            format!("path = {}", toml::Value::from(folder))
        })),
        _ => Err(Failure::usage(format!(
            "{} has no sources of ata: pass the folder of a clone with --ata",
            sources.display()
        ))),
    }
}
