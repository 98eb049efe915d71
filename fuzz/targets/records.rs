//! Fuzzes files of CIFAR-100 records.
#![no_main]

use ata_fuzz::Folder;
use ata_data::RecordFile;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|input: &[u8]| {
    let folder = Folder::default();
    if let Ok(file) = RecordFile::open(&folder.file("train.bin", input)) {
        assert!((0..file.len()).all(|index| file.read(index).is_ok()));
    }
});
