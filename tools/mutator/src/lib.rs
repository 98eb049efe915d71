//! Mutates valid inputs, to test readers of untrusted bytes. The crate is for development only.
//!
//! A reader is given inputs that are nearly valid, and must return a value or an error for each. The inputs are derived from a seed. If the
//! reader panics, the input is printed.
//!
//! # Layout
//! - here: [`feed`], and the exhaustive mutations of a short input
//! - `mutator`: [`Mutator`], which generates mutated inputs
//! - `memory`: the memory of this process

mod memory;
mod mutator;

use std::path::Path;

pub use memory::{address_space_bytes, peak_bytes, reset_peak, resident_bytes};
pub use mutator::{MUTATIONS, Mutator};

/// The numbers of accepted and refused inputs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Fed {
    /// The number of inputs that the reader accepted.
    pub accepted: u64,
    /// The number of inputs that the reader refused.
    pub refused: u64,
}

/// Feeds `count` mutated inputs to a reader. `read` returns whether it accepted the input.
/// Panics if the reader panics, or if it accepts all inputs or none, since it would not have been tested. Also panics if a kind of mutation
/// was never made.
pub fn feed(mut mutator: Mutator, count: u64, mut read: impl FnMut(&[u8]) -> bool) -> Fed {
    let mut fed = Fed { accepted: 0, refused: 0 };
    for _ in 0..count {
        let input = mutator.next_input();
        let blame = Blame(&input);
        let accepted = read(&input);
        std::mem::forget(blame);
        *(if accepted { &mut fed.accepted } else { &mut fed.refused }) += 1;
    }
    assert!(mutator.made().iter().all(|made| *made > 0), "made of each kind: {:?}", mutator.made());
    assert!(fed.accepted > 0 && fed.refused > 0, "{fed:?} says little about the reader");
    fed
}

/// Returns every proper prefix of an input.
pub fn truncations(input: &[u8]) -> impl Iterator<Item = &[u8]> {
    (0..input.len()).map(|length| &input[..length])
}

/// Returns copies of an input, each with one bit flipped, for every bit.
pub fn bit_flips(input: &[u8]) -> impl Iterator<Item = Vec<u8>> {
    (0..8 * input.len()).map(|bit| {
        let mut flipped = input.to_vec();
        flipped[bit / 8] ^= 1 << (bit % 8);
        flipped
    })
}

/// Writes a file for a reader of files. An existing file is removed first, since some file systems flush an overwritten
/// file to the disk at once, which takes milliseconds.
/// Panics if the file cannot be written.
pub fn write_file(path: &Path, content: &[u8]) {
    // The file does not exist at first.
    drop(std::fs::remove_file(path));
    std::fs::write(path, content).expect("a file can be written");
}

/// Prints an input if its reader panics.
struct Blame<'a>(&'a [u8]);

impl Drop for Blame<'_> {
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!("the reader panicked on {} bytes: \"{}\"", self.0.len(), self.0.escape_ascii());
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;
    use std::path::{Path, PathBuf};

    /// What a file contains that reads bytes in a format of its own.
    const READS: [&str; 9] = [
        "serde_json::from_",
        "toml::from_str",
        "parse::<Table>",
        "SafeTensors",
        "Archive::new",
        "ImageReader",
        "BufReader::new",
        "deserialize(",
        "::decode(",
    ];

    /// Every file of the product that reads bytes, and the test that feeds it mutated ones, or the reason why it reads none from outside.
    const READERS: &str = "\
common/data/src/archive.rs: common/data/tests/hostile_files.rs
common/data/src/cifar10.rs: common/data/tests/hostile_files.rs
common/data/src/class_label.rs: common/data/tests/hostile_files.rs
common/data/src/decode.rs: common/data/tests/hostile_files.rs
common/data/src/pack.rs: common/data/tests/hostile_files.rs
common/data/src/packed.rs: common/data/tests/hostile_files.rs
common/data/src/shard_index.rs: common/data/tests/hostile_files.rs
common/data/src/tar_reader.rs: common/data/tests/hostile_files.rs
common/data/src/tars.rs: common/data/tests/hostile_files.rs
common/record/src/event/fields.rs: common/record/tests/mutated.rs
common/record/src/journal.rs: common/record/tests/mutated.rs
common/record/src/output.rs: common/record/tests/mutated.rs
common/record/src/state/saved.rs: coordinator/src/checkpoint/tests.rs
common/scheduler/src/policy/mod.rs: coordinator/src/checkpoint/tests.rs
common/sums/src/codec/differences.rs: common/sums/src/codec/differences.rs
common/sums/src/codec/sums.rs: common/sums/src/codec/sums.rs
common/sums/src/model_file.rs: common/data/tests/hostile_files.rs
common/wire/src/transfer/body.rs: tools/harness/tests/suite/frames.rs
coordinator/src/checkpoint/mod.rs: coordinator/src/checkpoint/tests.rs
coordinator/src/checkpoint/store.rs: coordinator/src/checkpoint/tests.rs
cli/src/commands/explain.rs: - the coordinator's answer, to whom the operator gave the address
cli/src/commands/plan/measured.rs: - the output of `ata doctor`, on the operator's own machine
cli/src/commands/status/mod.rs: - the coordinator's answer, to whom the operator gave the address
cli/src/local_run.rs: - the defaults of a program that is linked with ata
cli/src/run/resume.rs: cli/src/settings/tests.rs
cli/src/run/statistics.rs: cli/src/run/statistics.rs
cli/src/settings/sources.rs: cli/src/settings/tests.rs
common/simulator/src/law/trace.rs: common/simulator/tests/suite/mutated.rs
python/src/scheduler.rs: - a state that the user's own loop saved
research/experiments/src/spec.rs: research/experiments/tests/suite/mutated.rs";

    /// The fuzz targets, each with a reader that it names.
    const TARGETS: [(&str, &str); 15] = [
        ("archive", "extract_archive"),
        ("checkpoint", "Checkpoint::decode"),
        ("cifar10", "Unpacked::find"),
        ("experiment", "Experiment"),
        ("frames", "Frames::ALL"),
        ("image", "Unpacked::find"),
        ("join_token", "JoinToken"),
        ("journal", "read_journal"),
        ("model", "decode_model"),
        ("packed", "PackedFile::open"),
        ("records", "RecordFile::open"),
        ("shard_index", "ShardIndex::read"),
        ("tar", "Unpacked::find"),
        ("time_law", "TimeLaws"),
        ("trace", "TimeLaws"),
    ];

    fn root() -> PathBuf {
        Path::new(&std::env::var_os("CARGO_MANIFEST_DIR").unwrap()).join("../..")
    }

    fn text(path: &str) -> String {
        std::fs::read_to_string(root().join(path)).unwrap_or_else(|error| panic!("{path}: {error}"))
    }

    fn sources(folder: &Path, found: &mut Vec<PathBuf>) {
        for entry in std::fs::read_dir(folder).into_iter().flatten() {
            let path = entry.unwrap().path();
            if path.is_dir() && !path.ends_with("target") {
                sources(&path, found);
            } else if path.extension().is_some_and(|extension| extension == "rs") {
                found.push(path);
            }
        }
    }

    /// Files of tests, and those that only the product's own tests read, are not the product.
    fn is_product(path: &str) -> bool {
        path.contains("/src/") && !path.contains("/tests") && !path.ends_with("tests.rs")
    }

    #[test]
    fn every_reader_is_fed_mutated_bytes() {
        let listed: BTreeMap<&str, &str> = READERS.lines().map(|line| line.split_once(": ").unwrap()).collect();
        let mut files = Vec::new();
        for folder in ["common", "coordinator", "worker", "cli", "python", "research"] {
            sources(&root().join(folder), &mut files);
        }
        for file in files {
            let path = file.strip_prefix(root()).unwrap().to_str().unwrap().replace('\\', "/");
            let product = text(&path).split("#[cfg(test)]").next().unwrap_or_default().to_owned();
            let reads = READS.iter().find(|reads| product.contains(*reads));
            if let (true, Some(reads)) = (is_product(&path), reads) {
                assert!(
                    listed.contains_key(&*path),
                    "{path} has '{reads}': which test feeds it mutated bytes? Add it to READERS"
                );
            }
        }
        for (reader, proof) in listed {
            let stem = text(reader);
            assert!(!stem.is_empty());
            if !proof.starts_with("- ") {
                let proof_text = text(proof);
                let mutates = ["feed(", "bit_flips(", "Mutator::new("].iter().any(|call| proof_text.contains(call));
                assert!(mutates, "{proof} mutates nothing for {reader}");
            }
        }
    }

    #[test]
    fn every_fuzz_target_is_built_and_fuzzes_a_reader() {
        let manifest = text("fuzz/Cargo.toml");
        let mut files = Vec::new();
        sources(&root().join("fuzz/targets"), &mut files);
        assert_eq!(files.len(), TARGETS.len());
        for (name, reader) in TARGETS {
            let path = format!("targets/{name}.rs");
            assert!(manifest.contains(&format!("path = \"{path}\"")), "fuzz/Cargo.toml lacks {path}");
            assert!(text(&format!("fuzz/{path}")).contains(reader), "{path} does not name {reader}");
            let seeds = text("fuzz/src/main.rs");
            assert!(
                name == "archive" || name == "checkpoint" || seeds.contains(&format!("\"{name}\"")),
                "no corpus of {name}"
            );
        }
    }
}
