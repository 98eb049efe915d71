//! Fuzzes images, of each format, in a folder of images.
#![no_main]

use ata_data::{Packing, Unpacked};
use ata_fuzz::Folder;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|input: &[u8]| {
    let folder = Folder::default();
    for name in ["train/ant/1.png", "train/bee/2.jpg", "test/ant/3.png", "test/bee/4.jpg"] {
        folder.file(name, input);
    }
    let packing = Packing { size: 8, skip_bad: true, shard_bytes: None };
    if let Ok(Some(found)) = Unpacked::find(folder.path(), None) {
        drop(found.pack(&folder.path().join("out"), packing, &mut |_, _| {}));
    }
});
