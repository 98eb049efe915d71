//! Tests that packed images in shards are the same images, wherever the shards come from, and that damage is detected.

use std::collections::BTreeSet;
use std::fs::{self, File, OpenOptions};
use std::io::{self, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};

use ata_data::{
    DataError, DataSource, ImageChecksummer, Images, Packing, Shard, ShardFile, ShardIndex, ShardStore, Split, hex,
};
use image::Rgb;
use sha2::{Digest, Sha256};
use tempfile::TempDir;

use super::{Place, write_images};

/// The size of an image of 8 × 8 pixels with its label, in bytes.
const RECORD_BYTES: usize = 2 + 3 * 8 * 8;

/// Packs 60 training images of each of three classes, in shards of 25, and 20 test images.
fn packed() -> (Place, PathBuf) {
    let place = Place(TempDir::new().unwrap());
    for (split, count) in [("train", 60), ("test", 20)] {
        write_images(&place.folder().join(split), 8, count, |class, at| Rgb([80 * class, at, 3 * at]));
    }
    let packing = Packing { size: 8, skip_bad: false, shard_bytes: Some(25 * RECORD_BYTES as u64 + 7) };
    place.pack_from(&place.folder(), packing).unwrap();
    let out = place.out();
    (place, out)
}

fn open(path: &Path) -> Result<Images, DataError> {
    Images::open(&DataSource::File(path.into()), Split::Train)
}

/// A store that cuts shards out of a packed file, and records its calls.
#[derive(Debug)]
struct Cutter {
    packed: Vec<u8>,
    folder: TempDir,
    opened: Mutex<Vec<u64>>,
    rechecked: Mutex<Vec<u64>>,
    fails: bool,
    /// Whether each shard lacks its last byte.
    cuts_short: bool,
}

impl Cutter {
    fn new(packed: &Path) -> Self {
        let (folder, packed) = (TempDir::new().unwrap(), fs::read(packed).unwrap());
        let [opened, rechecked] = [const { Mutex::new(Vec::new()) }; 2];
        Self { packed, folder, opened, rechecked, fails: false, cuts_short: false }
    }
}

impl ShardStore for Cutter {
    fn open(&self, shard: &Shard) -> Result<ShardFile, DataError> {
        let path = self.folder.path().join(hex(&shard.sha256));
        if self.fails {
            return Err(DataError::io(path)(io::Error::other("no connection")));
        }
        self.opened.lock().unwrap().push(shard.number);
        let bytes = &self.packed[shard.offset as usize..][..shard.bytes as usize];
        assert_eq!(Sha256::digest(bytes)[..], shard.sha256);
        fs::write(&path, bytes).unwrap();
        let mut images = ImageChecksummer::new(shard);
        bytes.chunks(1000).for_each(|piece| images.add(piece));
        if self.cuts_short {
            fs::write(&path, &bytes[..bytes.len() - 1]).unwrap();
        }
        Ok(ShardFile::new(File::open(path).unwrap(), images.finish()))
    }

    fn recheck(&self, shard: &Shard) {
        self.rechecked.lock().unwrap().push(shard.number);
    }

    fn expect(&self, _: &[Shard]) {}
}

#[test]
fn images_are_the_same_from_a_file_and_from_shards() {
    let (_place, out) = packed();
    let whole = open(&out.join("train.packed")).unwrap();
    let sharded = open(&out.join("train.shards")).unwrap();
    let index = ShardIndex::read(&out.join("train.shards")).unwrap();
    assert_eq!((index.count(), index.images_of_shard(), index.shards().len()), (180, 25, 8));
    let store = Arc::new(Cutter::new(&out.join("train.packed")));
    let source = DataSource::Shards { index: out.join("train.shards"), store: store.clone() };
    let fetched = Images::open(&source, Split::Train).unwrap();
    assert_eq!((whole.info(), sharded.count()), (sharded.info(), fetched.count()));
    for index in (0..180).rev() {
        let expected = whole.read(index).unwrap();
        assert_eq!(sharded.read(index).unwrap(), expected);
        assert_eq!(fetched.read(index).unwrap(), expected);
    }
    assert_eq!(*store.opened.lock().unwrap(), [7, 6, 5, 4, 3, 2, 1, 0], "each shard was opened once");
    let classes: BTreeSet<u16> = (0..25).map(|index| whole.read(index).unwrap().label).collect();
    assert_eq!(classes.len(), 3, "a shard has images of all classes, although folders are sorted by class");
    // A folder is located as the index in it.
    assert_eq!(Images::locate(&out, Split::Train).unwrap(), out.join("train.shards"));
}

/// The damage happens between the check of the shard and the reading of an image.
#[test]
fn what_is_damaged_after_it_was_checked_is_obtained_again() {
    let (_place, out) = packed();
    let whole = open(&out.join("train.packed")).unwrap();
    let index = ShardIndex::read(&out.join("train.shards")).unwrap();
    let store = Arc::new(Cutter::new(&out.join("train.packed")));
    let source = DataSource::Shards { index: out.join("train.shards"), store: store.clone() };
    let images = Images::open(&source, Split::Train).unwrap();
    let file = store.folder.path().join(hex(&index.shards().nth(1).unwrap().sha256));
    let check = |opened: &[u64], rechecked: &[u64]| {
        assert_eq!(images.read(30).unwrap(), whole.read(30).unwrap());
        assert_eq!((&store.opened.lock().unwrap()[..], &store.rechecked.lock().unwrap()[..]), (opened, rechecked));
    };
    check(&[1], &[]);
    for byte in [0, RECORD_BYTES - 1] {
        let mut damaged = OpenOptions::new().write(true).open(&file).unwrap();
        damaged.seek(SeekFrom::Start((5 * RECORD_BYTES + byte) as u64)).unwrap();
        damaged.write_all(&[99]).unwrap();
        let times = if byte == 0 { 1 } else { 2 };
        check(&[1, 1, 1][..=times], &[1, 1][..times]);
    }
    OpenOptions::new().write(true).open(&file).unwrap().set_len(9).unwrap();
    check(&[1; 4], &[1; 3]);

    let store = Arc::new(Cutter { cuts_short: true, ..Cutter::new(&out.join("train.packed")) });
    let images = Images::open(&DataSource::Shards { index: out.join("train.shards"), store }, Split::Train).unwrap();
    assert_eq!(images.read(48).unwrap(), whole.read(48).unwrap());
    let error = images.read(49).unwrap_err().to_string();
    assert!(error.contains("train.shards: image 49 is damaged, in a copy of shard 1 that was just checked"), "{error}");
}

#[test]
fn changed_and_missing_files_are_named() {
    let (_place, out) = packed();
    let path = out.join("train.packed");
    let store = Arc::new(Cutter { fails: true, ..Cutter::new(&path) });
    let refused = |part: &str| {
        let error = open(&out.join("train.shards")).unwrap_err().to_string();
        assert!(error.contains(part), "{error}");
    };
    // A shard whose content has changed is named when it is read; the others are not affected.
    let mut bytes = fs::read(&path).unwrap();
    let header = bytes.len() - 180 * RECORD_BYTES;
    bytes[header + 30 * RECORD_BYTES + 9] ^= 1;
    fs::write(&path, bytes).unwrap();
    let sharded = open(&out.join("train.shards")).unwrap();
    let error = sharded.read(49).unwrap_err().to_string();
    assert!(error.contains("train.packed") && error.contains("shard 1, images 25 to 49, has changed"), "{error}");
    assert!(sharded.read(24).is_ok() && sharded.read(50).is_ok());
    fs::copy(out.join("test.packed"), &path).unwrap();
    refused("it is not the index of");
    fs::remove_file(path).unwrap();
    refused("train.packed");
    let source = DataSource::Shards { index: out.join("train.shards"), store };
    let error = Images::open(&source, Split::Train).unwrap().read(0).unwrap_err().to_string();
    assert!(error.contains("no connection"), "{error}");
}

#[test]
fn damaged_indexes_are_refused_with_the_reason() {
    let (_place, out) = packed();
    let path = out.join("train.shards");
    let good = fs::read(&path).unwrap();
    let with = |at: usize, bytes: &[u8]| {
        let mut bad = good.clone();
        bad[at..at + bytes.len()].copy_from_slice(bytes);
        bad
    };
    for (bytes, reason) in [
        (with(8, &[2]), "no index of shards of version 1"),
        (with(16, &[0]), "180 images in shards of 0"),
        (with(24, &[0]), "version 1 of the packed images"),
        (with(48, &[255; 8]), "images in shards of 25"),
        (good[..good.len() - 1].to_vec(), "is it cut short?"),
        (good[..20].to_vec(), "is it cut short?"),
        ([&good[..], &[0]].concat(), "it goes on after the digests of its 8 shards"),
    ] {
        fs::write(&path, bytes).unwrap();
        let error = ShardIndex::read(&path).unwrap_err().to_string();
        assert!(error.contains(reason), "expected '{reason}': {error}");
    }
}
