//! Fuzzes CIFAR-10 in its binary layout.
#![no_main]

use ata_data::{Packing, Unpacked};
use ata_fuzz::Folder;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|input: &[u8]| {
    let folder = Folder::default();
    for name in (1..=5).map(|number| format!("data_batch_{number}.bin")).chain(["test_batch.bin".into()]) {
        folder.file(&name, input);
    }
    let packing = Packing { size: 32, skip_bad: true, shard_bytes: None };
    if let Ok(Some(found)) = Unpacked::find(folder.path(), None) {
        drop(found.pack(&folder.path().join("out"), packing, &mut |_, _| {}));
    }
});
