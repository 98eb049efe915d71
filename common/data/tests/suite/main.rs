//! Tests packing images from outside for training, and reading their shards.

use std::fs;
use std::path::Path;

use ata_data::{BadImage, DataError, Packing, Unpacked};
use image::{Rgb, RgbImage};

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

/// Packs images into a folder, in place of what it holds.
fn pack(from: &Path, out: &Path, packing: Packing) -> Result<Vec<BadImage>, DataError> {
    drop(fs::remove_dir_all(out));
    let unpacked = Unpacked::find(from)?.expect("there are images");
    unpacked.pack(out, packing, &mut |done, total| assert!(done <= total))
}
