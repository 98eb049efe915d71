//! Tests that every experiment file is either refused or can be run.

use ata_experiments::Experiment;
use ata_mutator::{Mutator, feed};

/// The number of texts that are tried.
const COUNT: u64 = 20_000;

/// The tokens that are inserted: brackets, operators and numbers, alone and repeated many times.
const TOKENS: [&str; 14] =
    ["(", "-", "+1", "*i", "/0", "sqrt(", "ln(", ";exp(1)", "1e999", "NaN", "[", "{a=", "\n[[change]]\n", "é"];

#[test]
fn mutated_experiments_do_no_harm() {
    let valid = [
        include_str!("../../builtin/speed-change.toml"),
        include_str!("../../builtin/ata-quadratic.toml"),
        include_str!("../../builtin/ata-warm-start.toml"),
        "workers = [3]\n[limits]\nruntime = 5.0\n[[change]]\ntime = 1.5\nslow_down = 1\nfactor = 2.0\n",
        "workers = [3]\niterations = 50\n[[change]]\niteration = 5\nworkers = '1,2..n'\nfactor = 2.0\nevery = 9\nfor = 3\nuntil = 40\n",
    ];
    let mutator = Mutator::new(3, valid.iter().map(|text| text.as_bytes().to_vec()).collect()).with_tokens(&TOKENS);
    let fed = feed(mutator, COUNT, |bytes| {
        let Ok(text) = std::str::from_utf8(bytes) else { return false };
        let Ok(experiment) = Experiment::parse(text, "file") else { return false };
        // Laws are checked for each worker, which takes too long with the largest allowed number.
        experiment.workers.iter().all(|workers| *workers < 1000) && experiment.check().is_ok()
    });
    println!("{fed:?}");
}
