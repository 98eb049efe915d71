//! Fuzzes experiment files.
#![no_main]

use ata_experiments::Experiment;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|text: &str| {
    if let Ok(experiment) = Experiment::parse(text, "file") {
        // Laws are checked for each worker, which takes too long with the largest allowed number.
        if experiment.workers.iter().all(|workers| *workers < 1000) && !text.contains("trace") {
            drop(experiment.check());
        }
    }
});
