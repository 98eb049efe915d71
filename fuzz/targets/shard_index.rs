//! Fuzzes indices of shards.
#![no_main]

use ata_data::ShardIndex;
use ata_fuzz::Folder;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|input: &[u8]| {
    let folder = Folder::default();
    if let Ok(index) = ShardIndex::read(&folder.file("train.shards", input)) {
        assert!(index.shards().all(|shard| shard.bytes > 0));
    }
});
