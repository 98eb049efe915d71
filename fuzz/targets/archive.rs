//! Fuzzes the extraction of data archives.
#![no_main]

use ata_fuzz::Folder;
use ata_data::extract_archive;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|input: &[u8]| {
    let folder = Folder::default();
    let archive = folder.file("data.tar.gz", input);
    let cache = folder.path().join("cache");
    if let Ok(target) = extract_archive(&archive, &cache) {
        assert!(target.starts_with(&cache));
    }
    assert_eq!(std::fs::read_dir(folder.path()).expect("it is there").count(), 2);
});
