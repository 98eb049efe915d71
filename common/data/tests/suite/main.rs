//! Tests packing images from outside for training, and reading their shards.

use std::fs;
use std::path::{Path, PathBuf};

use ata_data::{BadImage, DataError, PackedFile, Packing, Split, Unpacked};
use image::{Rgb, RgbImage};
use tempfile::TempDir;

mod archives;
mod packing;
mod shards;
mod tars;

const CLASSES: [&str; 3] = ["ant", "bee", "cat"];

/// Writes images of one colour to a folder for each class, as many for each as `count` says.
fn write_images(split: &Path, size: u32, count: u8, colour: impl Fn(u8, u8) -> Rgb<u8>) {
    for (class, name) in (0..).zip(CLASSES) {
        let folder = split.join(name);
        fs::create_dir_all(&folder).unwrap();
        for at in 0..count {
            RgbImage::from_pixel(size, size, colour(class, at)).save(folder.join(format!("{at:03}.png"))).unwrap();
        }
    }
}

/// A folder with images or archives, and the folder that they are packed into.
struct Place(TempDir);

impl Place {
    fn folder(&self) -> PathBuf {
        self.0.path().join("images")
    }

    fn out(&self) -> PathBuf {
        self.0.path().join("out")
    }

    /// Packs a folder, in place of what was packed before.
    fn pack_from(&self, from: &Path, packing: Packing) -> Result<Vec<BadImage>, DataError> {
        drop(fs::remove_dir_all(self.out()));
        let unpacked = Unpacked::find(from, None)?.expect("there are images");
        unpacked.pack(&self.out(), packing, &mut |done, total| assert!(done <= total))
    }

    fn pack(&self, skip_bad: bool) -> Result<Vec<BadImage>, DataError> {
        self.pack_from(&self.folder(), Packing { size: 16, skip_bad, shard_bytes: None })
    }

    fn open(&self, split: Split) -> PackedFile {
        PackedFile::open(&self.out().join(split.packed_name())).unwrap()
    }
}
