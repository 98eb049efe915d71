//! The documentation and the monitoring agree with the program.

use std::collections::BTreeSet;
use std::path::Path;

use crate::layout::root;
use crate::support::{Sandbox, files_below};

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
    let files = files_below(&root().join("deploy/monitoring"));
    let asked: BTreeSet<String> = files.iter().flat_map(|path| metrics_in(&read(path))).collect();
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
        assert!(sandbox.text(&["completions", shell]).contains("coordinator"), "{shell}");
    }
    sandbox.text(&["man", "--out", sandbox.path("man").to_str().unwrap()]);
    for page in ["ata.1", "ata-worker.1", "ata-token-rotate.1"] {
        assert!(read(&sandbox.path("man").join(page)).starts_with(".ie"), "{page}");
    }
}
