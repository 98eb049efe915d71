//! Fuzzes time laws.
#![no_main]

use ata_simulator::TimeLaws;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|text: &str| {
    // Laws that name a file are covered by the target `trace`.
    if !text.contains("trace")
        && let Ok(laws) = text.parse::<TimeLaws>()
    {
        drop(laws.means(3));
    }
});
