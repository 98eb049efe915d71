//! Tests that the manifests follow the layout of docs/ARCHITECTURE.md, and that the Dockerfile names every crate.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use toml::Table;

/// The dependencies of each crate on our own crates and on the [`WATCHED`] ones, as in the diagram in docs/ARCHITECTURE.md.
const DEPENDS_ON: &str = "\
common/types:
common/scheduler: ata-types
common/simulator: ata-scheduler ata-types
common/plan: ata-scheduler ata-simulator rayon
common/record: ata-types
common/observe: ata-net ata-record ata-scheduler ata-types axum hyper prost rustls tokio tokio-stream
common/net: rlimit rustls tokio tokio-stream tonic
common/wire: ata-net ata-sums ata-types prost tokio tokio-stream tonic tonic-prost
common/nn: rayon
common/objects: object_store reqwest rustls tokio tokio-stream
common/sums: ata-nn ata-types
common/data: ata-types rayon
common/learn: ata-data ata-nn ata-sums ata-types burn rayon
common/doctor: ata-data ata-learn ata-net ata-types ata-wire tokio tonic
tools/dev: ata ata-coordinator ata-data ata-fault-proxy ata-figures ata-learn ata-net ata-observe ata-policies \
    ata-record ata-scheduler ata-simulator ata-sums ata-types ata-wire ata-worker tokio tokio-stream tonic
tools/fault-proxy: tokio
tools/harness: ata-coordinator ata-data ata-fault-proxy ata-learn ata-mutator ata-net ata-policies ata-record \
    ata-scheduler ata-sums ata-types ata-wire ata-worker prost tokio tokio-stream tonic
tools/mutator:
coordinator: ata-data ata-learn ata-net ata-objects ata-record ata-scheduler ata-sums ata-types ata-wire object_store \
    tokio tokio-stream tonic
worker: ata-data ata-learn ata-net ata-objects ata-sums ata-types ata-wire tokio tokio-stream tonic
cli: ata-coordinator ata-data ata-doctor ata-experiments ata-figures ata-learn ata-net ata-objects ata-observe \
    ata-plan ata-policies ata-record ata-scheduler ata-simulator ata-sums ata-types ata-wire ata-worker tokio tokio-stream \
    tonic ureq
python: ata ata-data ata-learn ata-policies ata-scheduler ata-sums ata-types pyo3
research/policies: ata-scheduler ata-types
research/experiments: ata-figures ata-policies ata-scheduler ata-simulator ata-types rayon
research/figures:
xtask:";

/// The third-party crates that bind a crate to a runtime, a network or a device.
const WATCHED: &str =
    "axum burn hyper object_store prost pyo3 rayon reqwest rlimit rustls tokio tokio-stream tonic tonic-prost ureq";

/// Returns the folder of the repository.
pub(crate) fn root() -> PathBuf {
    // The variable is read at run time because several checkouts may share one target directory.
    Path::new(&std::env::var_os("CARGO_MANIFEST_DIR").unwrap()).parent().unwrap().to_owned()
}

fn manifest(folder: &Path) -> Table {
    let path = folder.join("Cargo.toml");
    std::fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display())).parse().unwrap()
}

fn members() -> Vec<String> {
    let members = manifest(&root())["workspace"]["members"].as_array().unwrap().clone();
    members.iter().map(|member| member.as_str().unwrap().to_owned()).collect()
}

/// Returns the names in a section of a manifest.
fn names(manifest: &Table, section: &str) -> BTreeSet<String> {
    manifest.get(section).and_then(|section| section.as_table()).into_iter().flat_map(Table::keys).cloned().collect()
}

#[test]
fn crates_depend_on_what_the_layout_says() {
    for member in members() {
        let (_, expected) = DEPENDS_ON
            .lines()
            .filter_map(|line| line.split_once(':'))
            .find(|(name, _)| *name == member)
            .unwrap_or_else(|| panic!("{member} is new: add it here and to docs/ARCHITECTURE.md"));
        let expected: BTreeSet<String> = expected.split_whitespace().map(String::from).collect();
        let manifest = manifest(&root().join(&member));
        let mut named = names(&manifest, "dependencies");
        let targets = manifest.get("target").and_then(|targets| targets.as_table()).into_iter().flat_map(Table::values);
        named.extend(targets.flat_map(|target| names(target.as_table().unwrap(), "dependencies")));
        named.retain(|name| {
            name == "ata" || name.starts_with("ata-") || WATCHED.split(' ').any(|watched| watched == name)
        });
        assert_eq!(named, expected, "{member}: change this list and docs/ARCHITECTURE.md along with the manifest");
    }
}

/// Object stores are not part of an ordinary build.
#[test]
fn object_stores_are_optional() {
    let objects = manifest(&root().join("common/objects"));
    for name in ["object_store", "reqwest", "rustls", "url"] {
        assert_eq!(objects["dependencies"][name].get("optional"), Some(&toml::Value::Boolean(true)), "{name}");
    }
    for member in ["common/objects", "cli"] {
        let manifest = manifest(&root().join(member));
        let default = manifest["features"].get("default").and_then(|default| default.as_array());
        assert!(default.is_none_or(Vec::is_empty), "{member} has default features");
    }
}

/// The scheduler uses no clock, thread, file, network or global random source, so its decisions depend only on its inputs.
#[test]
fn the_scheduler_is_pure() {
    let pure = ["ata-types", "rand", "serde", "serde_json", "smallvec", "thiserror"].map(String::from).into();
    assert_eq!(names(&manifest(&root().join("common/scheduler")), "dependencies"), pure);
}

/// The image is first built from the manifests alone, so a missing one breaks `docker-compose up --build`.
#[test]
fn the_dockerfile_names_every_member() {
    let dockerfile = std::fs::read_to_string(root().join("deploy/Dockerfile")).unwrap();
    let ignored = std::fs::read_to_string(root().join(".dockerignore")).unwrap();
    let kept: Vec<&str> = ignored.lines().filter_map(|line| line.strip_prefix('!')).collect();
    for member in members() {
        let manifest = format!("{member}/Cargo.toml");
        assert!(kept.iter().any(|kept| manifest.starts_with(kept)), "the engine is not sent {manifest}: .dockerignore");
        let copy = format!("COPY {member}/Cargo.toml {member}/");
        assert!(dockerfile.lines().any(|line| line == copy), "deploy/Dockerfile lacks '{copy}'");
    }
    let copied = dockerfile.lines().filter(|line| line.starts_with("COPY ") && line.contains("/Cargo.toml "));
    assert_eq!(copied.count(), members().len(), "deploy/Dockerfile copies a manifest of no member");
}

/// The volume `credentials` holds the coordinator's key and all secrets.
#[test]
fn only_the_coordinator_mounts_its_credentials() {
    for (file, mounted) in [("", 1), (".gpu", 0), (".monitoring", 0)] {
        let text = std::fs::read_to_string(root().join(format!("deploy/docker-compose{file}.yml"))).unwrap();
        assert_eq!(text.matches("- credentials:").count(), mounted, "{file}");
        assert!(text.contains("- for-workers:") || text.contains("- for-status:"), "{file}");
    }
}

#[test]
fn the_documentation_names_every_member() {
    let text = std::fs::read_to_string(root().join("docs/ARCHITECTURE.md")).unwrap();
    for member in members() {
        assert!(text.contains(&format!("| `{member}` |")), "docs/ARCHITECTURE.md has no row for {member}");
    }
}
