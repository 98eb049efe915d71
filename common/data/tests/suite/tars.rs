//! Tests packing images in tar archives in the layout of WebDataset: which samples are read, and which are refused.

use std::fs;
use std::path::Path;

use ata_data::{Packing, Split};
use image::{ImageFormat, Rgb, RgbImage};
use tar::{Builder, Header};
use tempfile::TempDir;

use super::{Place, write_images};

pub(super) const TRAIN: u8 = 20;
const TEST: u8 = 5;

pub(super) fn colour(class: u8, at: u8) -> Rgb<u8> {
    Rgb([class * 50, at, 100 + class])
}

pub(super) fn png(class: u8, at: u8) -> Vec<u8> {
    let mut file = std::io::Cursor::new(Vec::new());
    RgbImage::from_pixel(16, 16, colour(class, at)).write_to(&mut file, ImageFormat::Png).unwrap();
    file.into_inner()
}

/// The names and contents of an archive's entries.
pub(super) type Entries = Vec<(String, Vec<u8>)>;

/// Returns the samples of these classes, in the order of the classes.
pub(super) fn samples(classes: &[u8], count: u8) -> Entries {
    let of_sample = |class: u8, at: u8| {
        let key = format!("c{class}/{at:03}");
        [
            (format!("{key}.png"), png(class, at)),
            (format!("{key}.json"), b"{}".to_vec()),
            (format!("{key}.cls"), format!("{class}\n").into_bytes()),
        ]
    };
    classes.iter().flat_map(|class| (0..count).flat_map(move |at| of_sample(*class, at))).collect()
}

pub(super) fn tar(entries: &[(String, Vec<u8>)]) -> Vec<u8> {
    let mut tar = Builder::new(Vec::new());
    for (name, content) in entries {
        let mut header = Header::new_gnu();
        header.set_size(content.len() as u64);
        tar.append_data(&mut header, name, &content[..]).unwrap();
    }
    tar.into_inner().unwrap()
}

fn write_tar(path: &Path, entries: &[(String, Vec<u8>)]) {
    fs::create_dir_all(path.parent().unwrap()).unwrap();
    fs::write(path, tar(entries)).unwrap();
}

/// Returns a folder of archives, two of which hold training images.
pub(super) fn place() -> Place {
    let place = Place(TempDir::new().unwrap());
    write_tar(&place.folder().join("birds-train-000.tar"), &samples(&[0, 1], TRAIN));
    write_tar(&place.folder().join("constrained_intervals-train-001.tar"), &samples(&[2], TRAIN));
    write_tar(&place.folder().join("constrained_intervals-validation-000.tar"), &samples(&[0, 1, 2], TEST));
    place
}

pub(super) fn write_names(place: &Place, names: &str) {
    fs::write(place.folder().join("classnames.txt"), names).unwrap();
}

pub(super) fn packed(place: &Place) -> Vec<(String, Vec<u8>)> {
    let name = |path: &Path| path.file_name().unwrap().to_str().unwrap().to_owned();
    let paths = fs::read_dir(place.out()).unwrap().map(|entry| entry.unwrap().path());
    let mut files: Vec<_> = paths.map(|path| (name(&path), fs::read(&path).unwrap())).collect();
    files.sort();
    files
}

/// The result is the same with and without shards, and with the archives in folders.
#[test]
fn archives_are_packed_into_the_bytes_of_a_folder_with_the_same_images() {
    let place = place();
    write_names(&place, "ant\nbee\ncat\n");
    let files = place.0.path().join("files");
    for (split, count) in [("train", TRAIN), ("test", TEST)] {
        write_images(&files.join(split), 16, count, colour);
    }
    let in_folders = place.0.path().join("in-folders");
    for (from, to) in [
        ("birds-train-000", "train/0"),
        ("constrained_intervals-train-001", "train/1"),
        ("constrained_intervals-validation-000", "test/0"),
    ] {
        let to = in_folders.join(format!("{to}.tar"));
        fs::create_dir_all(to.parent().unwrap()).unwrap();
        fs::copy(place.folder().join(format!("{from}.tar")), to).unwrap();
    }
    fs::copy(place.folder().join("classnames.txt"), in_folders.join("classnames.txt")).unwrap();
    for shard_bytes in [None, Some(10_000)] {
        let packing = Packing { size: 16, skip_bad: false, shard_bytes };
        assert_eq!(place.pack_from(&files, packing).unwrap(), []);
        let expected = packed(&place);
        assert_eq!(expected.len(), if shard_bytes.is_some() { 4 } else { 2 });
        for from in [place.folder(), in_folders.clone()] {
            assert_eq!(place.pack_from(&from, packing).unwrap(), []);
            assert!(packed(&place) == expected, "{}", from.display());
        }
    }
}

/// The archive that a folder was unpacked from may be next to it.
#[test]
fn a_folder_of_images_goes_before_archives_next_to_it() {
    let place = place();
    for split in ["train", "test"] {
        write_images(&place.folder().join(split), 16, 1, colour);
    }
    place.pack(false).unwrap();
    assert_eq!(place.open(Split::Train).len(), 3);
}

#[test]
fn archives_that_make_no_sense_are_refused_with_the_reason() {
    let check = |change: &dyn Fn(&Place), reason: &str| {
        let place = place();
        change(&place);
        let error = place.pack(true).expect_err(reason).to_string();
        assert!(error.contains(reason), "expected '{reason}': {error}");
    };
    let train = |place: &Place| place.folder().join("constrained_intervals-train-001.tar");
    let test = |place: &Place| place.folder().join("constrained_intervals-validation-000.tar");
    check(&|place| fs::remove_file(test(place)).unwrap(), "none that have 'test' or 'val' in their names");
    check(&|place| write_tar(&test(place), &samples(&[0, 2], TEST)), "there is no test image of class 1 ('1')");
    check(&|place| write_tar(&train(place), &samples(&[3], TRAIN)), "there is no training image of class 2 ('2')");
    check(
        &|place| write_names(place, "ant\nbee\n"),
        "there are images of class 2, but classes are numbered from 0 to 1",
    );
    check(&|place| write_names(place, "ant\nbee, wasp\ncat\n"), "classnames.txt: line 2: the name of a class");
}
