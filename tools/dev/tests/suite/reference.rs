//! Checks that the reference pages match this program.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use crate::support::Sandbox;

fn root() -> PathBuf {
    // The variable is read at run time because several checkouts may share one target directory.
    Path::new(&std::env::var_os("CARGO_MANIFEST_DIR").unwrap()).join("../..")
}

fn read(path: &Path) -> String {
    std::fs::read_to_string(path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

#[test]
fn reference_pages_are_those_of_this_program() {
    let sandbox = Sandbox::new();
    let made = sandbox.path("reference");
    assert!(sandbox.run(&["reference", "--out", made.to_str().unwrap()]).status.success());
    let mut pages = BTreeSet::new();
    for entry in std::fs::read_dir(&made).unwrap() {
        let path = entry.unwrap().path();
        let kept = root().join("docs/reference").join(path.file_name().unwrap());
        let is_same = read(&path) == read(&kept);
        assert!(is_same, "{} is out of date: cargo xtask reference", kept.display());
        pages.insert(kept);
    }
    // The other pages of the folder are written by hand.
    let kept = std::fs::read_dir(root().join("docs/reference")).unwrap().map(|entry| entry.unwrap().path());
    let generated: BTreeSet<_> = kept.filter(|page| read(page).starts_with("<!-- Made by")).collect();
    assert_eq!(generated, pages);
}
