//! Tests packing folders of images for training: which files are read, and which are refused.

use std::fs;
use std::path::{Path, PathBuf};

use ata_data::{BadImage, DataError, DataSource, Images, PackedFile, Packing, Split, Unpacked};
use image::codecs::jpeg::JpegEncoder;
use image::{DynamicImage, ImageEncoder, Rgb, RgbImage};
use tempfile::TempDir;

use super::{pack, write_images};

const RED: Rgb<u8> = Rgb([200, 10, 20]);
const GREEN: Rgb<u8> = Rgb([10, 200, 20]);
const BLUE: Rgb<u8> = Rgb([10, 20, 200]);

/// A folder of three classes with 50 training images and 20 test images each, whose colours encode class and position.
struct Place(TempDir);

impl Place {
    fn new() -> Self {
        let place = Self(TempDir::new().unwrap());
        for (split, count) in [("train", 50), ("test", 20)] {
            write_images(&place.folder().join(split), 16, count, colour);
        }
        place
    }

    fn folder(&self) -> PathBuf {
        self.0.path().join("images")
    }

    /// Returns the path of a file among the training images of a class.
    fn file(&self, name: &str) -> PathBuf {
        self.folder().join("train/bee").join(name)
    }

    fn out(&self) -> PathBuf {
        self.0.path().join("out")
    }

    fn pack(&self, skip_bad: bool) -> Result<Vec<BadImage>, DataError> {
        pack(&self.folder(), &self.out(), Packing { size: 16, skip_bad, shard_bytes: None })
    }

    fn refused(&self, skip_bad: bool) -> String {
        let error = self.pack(skip_bad).expect_err("it is refused").to_string();
        let left = fs::read_dir(self.out()).map_or(0, Iterator::count);
        assert_eq!(left, 0, "nothing is left behind");
        error
    }

    fn open(&self, split: Split) -> PackedFile {
        PackedFile::open(&self.out().join(split.packed_name())).unwrap()
    }

    /// Returns the middle pixel of a packed training image, given its position among the images of its class.
    fn middle(&self, class: u64, at: u64) -> [u8; 3] {
        let image = self.open(Split::Train).read(class * 50 + at).unwrap();
        [0, 1, 2].map(|channel| image.pixels[channel * 256 + 8 * 16 + 8])
    }
}

fn colour(class: u8, at: u8) -> Rgb<u8> {
    Rgb([50 * class, at, 7])
}

fn close(found: [u8; 3], Rgb(expected): Rgb<u8>) -> bool {
    found.iter().zip(expected).all(|(found, expected)| found.abs_diff(expected) <= 6)
}

#[test]
fn images_are_packed_by_class_in_order() {
    let place = Place::new();
    // Hidden files do not count as images.
    fs::write(place.file(".hidden"), "x").unwrap();
    assert_eq!(place.pack(false).unwrap(), []);
    for (split, count) in [(Split::Train, 50), (Split::Test, 20)] {
        let file = place.open(split);
        assert_eq!((file.len(), &file.info().classes[..]), (3 * count, &["ant", "bee", "cat"].map(String::from)[..]));
        for index in 0..file.len() {
            let image = file.read(index).unwrap();
            let (class, at) = ((index / count) as u8, (index % count) as u8);
            assert_eq!(image.label, u16::from(class));
            let planes: Vec<u8> = colour(class, at).0.iter().flat_map(|value| [*value; 256]).collect();
            assert_eq!(image.pixels, planes, "an image of the right size is not touched");
        }
    }
    assert_eq!(
        place.open(Split::Train).info(),
        place.open(Split::Test).info(),
        "the test is normalised as the training"
    );
    let first = fs::read(place.out().join("train.packed")).unwrap();
    place.pack(false).unwrap();
    assert!(fs::read(place.out().join("train.packed")).unwrap() == first, "packing again gives the same bytes");
}

#[test]
fn the_middle_of_an_image_is_kept_upright() {
    let place = Place::new();
    // The image is wide: a third is cut off on each side.
    let wide = RgbImage::from_fn(96, 32, |x, _| [RED, GREEN, BLUE][x as usize / 32]);
    wide.save(place.file("000.png")).unwrap();
    // The image is turned by a quarter in its metadata: its stored left side is the top.
    let turned = RgbImage::from_fn(32, 32, |x, _| if x < 16 { RED } else { BLUE });
    let mut file = fs::File::create(place.file("000.png.jpg")).unwrap();
    let mut encoder = JpegEncoder::new_with_quality(&mut file, 100);
    let orientation = b"II*\0\x08\0\0\0\x01\0\x12\x01\x03\0\x01\0\0\0\x06\0\0\0\0\0\0\0";
    encoder.set_exif_metadata(orientation.to_vec()).unwrap();
    encoder.write_image(&turned, 32, 32, image::ExtendedColorType::Rgb8).unwrap();
    fs::remove_file(place.file("001.png")).unwrap();
    // These images are grey, have 16 bits, or have transparency.
    DynamicImage::ImageLuma8(image::GrayImage::from_pixel(40, 40, image::Luma([99])))
        .save(place.file("002.png"))
        .unwrap();
    DynamicImage::from(RgbImage::from_pixel(20, 16, RED)).into_rgb16().save(place.file("003.png")).unwrap();
    DynamicImage::from(RgbImage::from_pixel(8, 8, BLUE)).into_rgba8().save(place.file("004.png")).unwrap();
    place.pack(false).unwrap();
    let image = place.open(Split::Train).read(50).unwrap();
    // In the first and the last column, the neighbouring colour still has some weight.
    let inside = (0..256).filter(|at| (1..15).contains(&(at % 16)));
    assert!(
        inside.map(|at| [0, 1, 2].map(|channel| image.pixels[channel * 256 + at])).all(|pixel| close(pixel, GREEN))
    );
    let turned = place.open(Split::Train).read(51).unwrap();
    let pixel = |row: usize, column: usize| [0, 1, 2].map(|channel| turned.pixels[channel * 256 + row * 16 + column]);
    assert!(close(pixel(2, 2), RED) && close(pixel(2, 13), RED) && close(pixel(13, 2), BLUE), "{:?}", pixel(2, 13));
    for (at, colour) in [(2, Rgb([99; 3])), (3, RED), (4, BLUE)] {
        assert!(close(place.middle(1, at), colour), "{at}: {:?}", place.middle(1, at));
    }
}

/// Every kind of file found in such folders is named or left out, and so is one that claims to have 900 megapixels.
#[test]
fn bad_files_are_named_or_left_out() {
    let place = Place::new();
    let good = fs::read(place.file("000.png")).unwrap();
    let mut huge = good.clone();
    huge[16..24].copy_from_slice(&[0, 0, 0x75, 0x30, 0, 0, 0x75, 0x30]);
    let mut crc = flate2::Crc::new();
    crc.update(&huge[12..29]);
    huge[29..33].copy_from_slice(&crc.sum().to_be_bytes());
    let bad: [(&str, &[u8], &str); 6] = [
        ("a.png", b"", "unexpected end of file"),
        ("b.jpg", b"no image at all", "decoding Jpeg"),
        ("c.png", &good[..good.len() / 2], "unexpected end of file"),
        ("d.txt", b"notes", "expected a file .png, .jpg or .jpeg"),
        ("e.webp", b"RIFF", "expected a file .png, .jpg or .jpeg"),
        ("f.png", &huge, "emory"),
    ];
    for (name, bytes, _) in bad {
        fs::write(place.file(name), bytes).unwrap();
    }
    fs::create_dir(place.file("g")).unwrap();
    fs::write(place.folder().join("train/readme"), "x").unwrap();
    let error = place.refused(false);
    assert!(error.starts_with("8 of the files") && error.ends_with("--skip-bad` leave them out"), "{error}");
    let Err(DataError::BadImages { first, others }) = place.pack(false) else { panic!("they are named") };
    let found = [vec![first], others].concat();
    for (name, _, reason) in bad {
        let bad = found.iter().find(|bad| bad.path == place.file(name)).expect(name);
        assert!(bad.reason.contains(reason), "expected '{reason}': {}", bad.reason);
    }
    assert_eq!(place.pack(true).unwrap().len(), 8);
    assert_eq!(place.open(Split::Train).len(), 150);
}

#[test]
fn folders_that_make_no_sense_are_refused_with_the_reason() {
    let check = |change: &dyn Fn(&Path), reason: &str| {
        let place = Place::new();
        change(&place.folder());
        let error = place.refused(true);
        assert!(error.contains(reason), "expected '{reason}': {error}");
    };
    check(&|images| fs::remove_dir_all(images.join("test")).unwrap(), "no folder 'test' or 'val'");
    check(&|images| fs::remove_dir_all(images.join("test/bee")).unwrap(), "test: no class 'bee', which");
    check(&|images| fs::create_dir(images.join("test/dog")).unwrap(), "train: no class 'dog', which");
    check(
        &|images| ["train/dog", "test/dog"].into_iter().for_each(|folder| fs::create_dir(images.join(folder)).unwrap()),
        "train/dog: no images",
    );
    check(
        &|images| {
            for class in ["train/ant", "train/bee"] {
                fs::remove_dir_all(images.join(class)).unwrap();
            }
        },
        "1 classes: expected a folder for each of at least two",
    );
    check(&|images| fs::rename(images.join("train/bee"), images.join("train/a,b")).unwrap(), "text without commas");
    check(
        &|images| {
            for file in fs::read_dir(images.join("test/cat")).unwrap() {
                fs::write(file.unwrap().path(), "no image").unwrap();
            }
        },
        "test/cat: none of the images of class 'cat' can be read",
    );
}

#[test]
fn what_exists_is_not_overwritten() {
    let place = Place::new();
    fs::create_dir_all(place.out()).unwrap();
    fs::write(place.out().join("test.packed"), "mine").unwrap();
    let unpacked = Unpacked::find(&place.folder()).unwrap().unwrap();
    let error = unpacked
        .pack(&place.out(), Packing { size: 16, skip_bad: false, shard_bytes: None }, &mut |_, _| ())
        .unwrap_err();
    assert!(matches!(error, DataError::Disk(_)), "{error}");
    assert_eq!(fs::read(place.out().join("test.packed")).unwrap(), b"mine");
}

/// Any other value of `--data` stays as it is.
#[test]
fn packed_images_need_no_preparation() {
    let place = Place::new();
    place.pack(false).unwrap();
    let mut never = |_, _| panic!("there is nothing to pack");
    assert_eq!(Images::prepare(&place.out(), 16, &mut never).unwrap(), place.out());
    let test = place.out().join("test.packed");
    assert_eq!(Images::prepare(&test, 16, &mut never).unwrap(), test);
    let train = Images::locate(&test, Split::Train).unwrap();
    assert_eq!(Images::open(&DataSource::File(train), Split::Train).unwrap().count(), 150);
}
