//! The documentation and the monitoring agree with the program.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use crate::support::Sandbox;

fn root() -> PathBuf {
    // The variable is read at run time because several checkouts may share one target directory.
    Path::new(&std::env::var_os("CARGO_MANIFEST_DIR").unwrap()).parent().unwrap().to_owned()
}

fn read(path: &Path) -> String {
    std::fs::read_to_string(path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

/// Returns the names of metrics in a text.
fn metrics_in(text: &str) -> BTreeSet<String> {
    let words = text.split(|letter: char| !(letter.is_ascii_alphanumeric() || letter == '_'));
    words.filter(|word| word.starts_with("ata_")).map(str::to_owned).collect()
}

/// A dashboard that asks for a metric that does not exist stays empty, and an alert on it never fires.
#[test]
fn monitoring_asks_for_metrics_that_exist() {
    let exported = metrics_in(&read(&root().join("docs/reference/metrics.md")));
    let mut asked = BTreeSet::new();
    let mut folders = vec![root().join("deploy/monitoring")];
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                folders.push(path);
            } else {
                asked.extend(metrics_in(&read(&path)));
            }
        }
    }
    assert!(asked.len() > 20, "{asked:?}");
    for name in asked {
        let of_histogram = ["_bucket", "_sum", "_count"].iter().filter_map(|suffix| name.strip_suffix(suffix));
        let is_there = exported.contains(&name) || of_histogram.into_iter().any(|name| exported.contains(name));
        assert!(is_there, "deploy/monitoring asks for {name}, which no coordinator exports");
    }
}

#[test]
fn completions_and_manual_pages_are_written() {
    let sandbox = Sandbox::new();
    for shell in ["bash", "elvish", "fish", "powershell", "zsh"] {
        let output = sandbox.run(&["completions", shell]);
        assert!(output.status.success() && String::from_utf8_lossy(&output.stdout).contains("coordinator"), "{shell}");
    }
    assert!(sandbox.run(&["man", "--out", sandbox.path("man").to_str().unwrap()]).status.success());
    for page in ["ata.1", "ata-worker.1", "ata-token-rotate.1"] {
        assert!(read(&sandbox.path("man").join(page)).starts_with(".ie"), "{page}");
    }
}
