//! Fuzzes files of recorded task times.
#![no_main]

use ata_fuzz::Folder;
use ata_simulator::TimeLaws;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|input: &[u8]| {
    let folder = Folder::default();
    let path = folder.file("times.csv", input);
    let laws: TimeLaws = format!("trace({})", path.display()).parse().expect("a law");
    if let Ok(law) = laws.of_worker(2, 3) {
        assert!(law.mean() > 0.0 && law.mean().is_finite());
    }
});
