//! Fuzzes files of packed images.
#![no_main]

use ata_fuzz::Folder;
use ata_data::PackedFile;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|input: &[u8]| {
    let folder = Folder::default();
    if let Ok(file) = PackedFile::open(&folder.file("train.packed", input)) {
        assert!((0..file.len()).all(|index| file.read(index).is_ok()));
    }
});
