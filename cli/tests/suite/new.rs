//! Tests that `ata new` writes a crate. `tools/try-new.sh` builds and tests the crate.

use crate::support::Sandbox;
use toml::Table;

fn read(sandbox: &Sandbox, file: &str) -> String {
    std::fs::read_to_string(sandbox.path(file)).unwrap_or_else(|error| panic!("{file}: {error}"))
}

#[test]
fn a_crate_with_a_problem_of_its_own() {
    let sandbox = Sandbox::new();
    sandbox.text(&["new", "projects/my-problem"]);
    let manifest: Table = read(&sandbox, "projects/my-problem/Cargo.toml").parse().unwrap();
    assert_eq!(manifest["package"]["name"].as_str(), Some("my-problem"));
    let of_ata: Table = include_str!("../../../Cargo.toml").parse().unwrap();
    for name in ["ata", "ata-learn"] {
        let folder = manifest["dependencies"][name]["path"].as_str().unwrap();
        let dependency: Table = std::fs::read_to_string(format!("{folder}/Cargo.toml")).unwrap().parse().unwrap();
        assert_eq!(dependency["package"]["name"].as_str(), Some(name));
    }
    for name in ["burn", "rand"] {
        let version = |table: &Table| table["dependencies"][name]["version"].clone();
        assert_eq!(version(&manifest), version(of_ata["workspace"].as_table().unwrap()), "{name}");
    }
    let program = read(&sandbox, "projects/my-problem/src/main.rs");
    assert!(program.contains("cargo run --release -- up") && !program.contains("--example"), "{program}");
    assert!(read(&sandbox, "projects/my-problem/tests/training.rs").contains("\"CARGO_BIN_EXE_my-problem\""));
    assert!(read(&sandbox, "projects/my-problem/Cargo.lock").contains("name = \"burn\""));
}

#[test]
fn what_cannot_be_a_crate_is_refused_and_nothing_is_written() {
    let sandbox = Sandbox::new();
    std::fs::create_dir(sandbox.path("taken")).unwrap();
    for (args, expected) in [
        (&["new", "My Problem"][..], "cannot be the name of a crate"),
        (&["new", "ata"], "cannot be the name of a crate"),
        (&["new", "1st"], "cannot be the name of a crate"),
        (&["new", ".."], "cannot be the name of a crate"),
        (&["new", "taken"], "exists already"),
        (&["new", "mine", "--ata", "taken"], "has no sources of ata"),
    ] {
        sandbox.fails(args, 64, expected);
    }
    assert!(!sandbox.path("mine").exists());
}
