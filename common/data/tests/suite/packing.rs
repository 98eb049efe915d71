//! Tests packing folders of images for training: which files are read, and which are refused.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

use ata_data::{DataError, DataSource, FolderOptions, Images, Packing, Split, Unpacked};
use image::codecs::jpeg::JpegEncoder;
use image::{DynamicImage, ImageEncoder, Rgb, RgbImage};
use tempfile::TempDir;

use super::{CLASSES, Place, write_images};

const RED: Rgb<u8> = Rgb([200, 10, 20]);
const GREEN: Rgb<u8> = Rgb([10, 200, 20]);
const BLUE: Rgb<u8> = Rgb([10, 20, 200]);

/// Returns three classes with 50 training images and 20 test images each, whose colours encode class and position.
fn place() -> Place {
    let place = Place(TempDir::new().unwrap());
    for (split, count) in [("train", 50), ("test", 20)] {
        write_images(&place.folder().join(split), 16, count, colour);
    }
    place
}

fn training_file(place: &Place, name: &str) -> PathBuf {
    place.folder().join("train/bee").join(name)
}

fn refused(place: &Place, skip_bad: bool) -> String {
    let error = place.pack(skip_bad).expect_err("it is refused").to_string();
    let left = fs::read_dir(place.out()).map_or(0, Iterator::count);
    assert_eq!(left, 0, "nothing is left behind");
    error
}

/// Returns the middle pixel of a packed training image, given its position among the images of its class.
fn middle(place: &Place, class: u64, at: u64) -> [u8; 3] {
    let image = place.open(Split::Train).read(class * 50 + at).unwrap();
    [0, 1, 2].map(|channel| image.pixels[channel * 256 + 8 * 16 + 8])
}

fn colour(class: u8, at: u8) -> Rgb<u8> {
    Rgb([50 * class, at, 7])
}

fn close(found: [u8; 3], Rgb(expected): Rgb<u8>) -> bool {
    found.iter().zip(expected).all(|(found, expected)| found.abs_diff(expected) <= 6)
}

#[test]
fn images_are_packed_by_class_in_order() {
    let place = place();
    // Hidden files do not count as images.
    fs::write(training_file(&place, ".hidden"), "x").unwrap();
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
    let place = place();
    // The image is wide: a third is cut off on each side.
    let wide = RgbImage::from_fn(96, 32, |x, _| [RED, GREEN, BLUE][x as usize / 32]);
    wide.save(training_file(&place, "000.png")).unwrap();
    // The image is turned by a quarter in its metadata: its stored left side is the top.
    let turned = RgbImage::from_fn(32, 32, |x, _| if x < 16 { RED } else { BLUE });
    let mut file = fs::File::create(training_file(&place, "000.png.jpg")).unwrap();
    let mut encoder = JpegEncoder::new_with_quality(&mut file, 100);
    let orientation = b"II*\0\x08\0\0\0\x01\0\x12\x01\x03\0\x01\0\0\0\x06\0\0\0\0\0\0\0";
    encoder.set_exif_metadata(orientation.to_vec()).unwrap();
    encoder.write_image(&turned, 32, 32, image::ExtendedColorType::Rgb8).unwrap();
    fs::remove_file(training_file(&place, "001.png")).unwrap();
    // These images are grey, have 16 bits, or have transparency.
    DynamicImage::ImageLuma8(image::GrayImage::from_pixel(40, 40, image::Luma([99])))
        .save(training_file(&place, "002.png"))
        .unwrap();
    DynamicImage::from(RgbImage::from_pixel(20, 16, RED)).into_rgb16().save(training_file(&place, "003.png")).unwrap();
    DynamicImage::from(RgbImage::from_pixel(8, 8, BLUE)).into_rgba8().save(training_file(&place, "004.png")).unwrap();
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
        assert!(close(middle(&place, 1, at), colour), "{at}: {:?}", middle(&place, 1, at));
    }
}

/// Every kind of file found in such folders is named or left out, and so is one that claims to have 900 megapixels.
#[test]
fn bad_files_are_named_or_left_out() {
    let place = place();
    let good = fs::read(training_file(&place, "000.png")).unwrap();
    let mut huge = good.clone();
    huge[16..24].copy_from_slice(&[0, 0, 0x75, 0x30, 0, 0, 0x75, 0x30]);
    let mut crc = flate2::Crc::new();
    crc.update(&huge[12..29]);
    huge[29..33].copy_from_slice(&crc.sum().to_be_bytes());
    let bad: [(&str, &[u8], &str); 6] = [
        ("a.png", b"", "unexpected end of file"),
        ("b.jpg", b"no image at all", "decoding Jpeg"),
        ("c.png", &good[..good.len() / 2], "unexpected end of file"),
        ("d.txt", b"notes", "expected a file .png, .jpg, .jpeg or .webp"),
        ("e.gif", b"GIF89a", "expected a file .png, .jpg, .jpeg or .webp"),
        ("f.png", &huge, "emory"),
    ];
    for (name, bytes, _) in bad {
        fs::write(training_file(&place, name), bytes).unwrap();
    }
    fs::create_dir(training_file(&place, "g")).unwrap();
    fs::write(place.folder().join("train/readme"), "x").unwrap();
    let error = refused(&place, false);
    assert!(error.starts_with("8 of the files") && error.ends_with("--skip-bad` leave them out"), "{error}");
    let Err(DataError::BadImages { first, others }) = place.pack(false) else { panic!("they are named") };
    let found = [vec![first], others].concat();
    for (name, _, reason) in bad {
        let bad = found.iter().find(|bad| bad.path == training_file(&place, name)).expect(name);
        assert!(bad.reason.contains(reason), "expected '{reason}': {}", bad.reason);
    }
    assert_eq!(place.pack(true).unwrap().len(), 8);
    assert_eq!(place.open(Split::Train).len(), 150);
}

/// The JPEGs are baseline and progressive, with restart markers, of one and four channels, and with a thumbnail that has its own end.
#[test]
fn jpegs_are_read_if_they_are_whole_and_refused_wherever_they_are_cut() {
    let place = place();
    let mut cuts = 0;
    for name in ["cmyk", "grey", "progressive", "restarts", "thumbnail"] {
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/images").join(name).with_extension("jpg");
        let bytes = fs::read(path).unwrap();
        fs::write(training_file(&place, &format!("{name}.jpg")), &bytes).unwrap();
        fs::write(training_file(&place, &format!("{name}-more.jpg")), [&bytes[..], b"\xFF\xD8 and more"].concat())
            .unwrap();
        for cut in 1..bytes.len() {
            fs::write(training_file(&place, &format!("cut-{name}-{cut}.jpg")), &bytes[..cut]).unwrap();
            // A download of which the rest was never written.
            let mut zeros = bytes[..cut].to_vec();
            zeros.resize(bytes.len(), 0);
            fs::write(training_file(&place, &format!("cut-{name}-{cut}-zeros.jpg")), zeros).unwrap();
            cuts += 2;
        }
        // The pixels of a baseline JPEG cannot end before the last block, even at an end marker.
        let first_scan = bytes.windows(2).rposition(|pair| pair == [0xFF, 0xDA]).unwrap() + 20;
        for cut in (first_scan..bytes.len() - 20).filter(|_| !["grey", "progressive"].contains(&name)) {
            let ended = [&bytes[..cut], &[0xFF, 0xD9]].concat();
            fs::write(training_file(&place, &format!("cut-{name}-{cut}-ended.jpg")), ended).unwrap();
            cuts += 1;
        }
    }
    let refused = place.pack(true).unwrap();
    let is_cut = |bad: &ata_data::BadImage| bad.path.file_name().unwrap().to_string_lossy().starts_with("cut-");
    assert!(refused.iter().all(is_cut), "{:?}", refused.iter().find(|bad| !is_cut(bad)));
    assert_eq!(refused.len(), cuts);
    assert!(refused.iter().any(|bad| bad.reason.contains("cut off")));
    assert_eq!(place.open(Split::Train).len(), 160);
}

#[test]
fn images_without_test_images_are_split_by_their_contents() {
    let pack = |place: &Place, share| {
        drop(fs::remove_dir_all(place.out()));
        let unpacked = Unpacked::find(&place.folder(), Some(share))?.expect("there are images");
        unpacked.pack(&place.out(), Packing { size: 16, skip_bad: false, shard_bytes: None }, &mut |_, _| ())
    };
    // Returns the colours of a split's images, which differ from each other.
    let colours = |place: &Place, split| -> BTreeSet<[u8; 3]> {
        let file = place.open(split);
        (0..file.len())
            .map(|at| file.read(at).unwrap().pixels)
            .map(|pixels| [pixels[0], pixels[256], pixels[512]])
            .collect()
    };
    let place = Place(TempDir::new().unwrap());
    write_images(&place.folder(), 16, 200, colour);
    pack(&place, 0.2).unwrap();
    let (train, test) = (colours(&place, Split::Train), colours(&place, Split::Test));
    assert!(train.is_disjoint(&test) && train.len() + test.len() == 600);
    assert!((60..180).contains(&test.len()), "{} of 600 images", test.len());
    // Names, folders and other images make no difference, and a larger share has all of a smaller one.
    fs::create_dir(place.folder().join("train")).unwrap();
    for class in CLASSES {
        fs::rename(place.folder().join(class), place.folder().join("train").join(class)).unwrap();
    }
    fs::rename(training_file(&place, "000.png"), training_file(&place, "zzz.png")).unwrap();
    let added = Rgb([250, 250, 250]);
    RgbImage::from_pixel(16, 16, added).save(training_file(&place, "added.png")).unwrap();
    pack(&place, 0.2).unwrap();
    let with_added = colours(&place, Split::Test);
    assert!(with_added.difference(&test).all(|colour| *colour == added.0) && with_added.is_superset(&test));
    pack(&place, 0.4).unwrap();
    assert!(colours(&place, Split::Test).is_superset(&test));

    assert!(pack(&place, 1e-9).unwrap_err().to_string().contains("takes none of 601 images: raise it"));
    assert!(pack(&place, 0.999_999_999).unwrap_err().to_string().contains("is left for training: lower --validation"));
    write_images(&place.folder().join("valid"), 16, 1, colour);
    assert!(pack(&place, 0.2).unwrap_err().to_string().contains("there are test images already"));
}

#[test]
fn splits_have_the_names_that_people_give_them() {
    for (train, test) in
        [("train", "test"), ("Training", "validation"), ("train", "val"), ("seg_train", "VALID"), ("train", "testing")]
    {
        let place = Place(TempDir::new().unwrap());
        write_images(&place.folder().join(train), 16, 3, colour);
        write_images(&place.folder().join(test), 16, 2, colour);
        assert_eq!(place.pack(false).unwrap(), [], "{train} and {test}");
        assert_eq!([Split::Train, Split::Test].map(|split| place.open(split).len()), [9, 6], "{train} and {test}");
    }
}

#[test]
fn files_of_systems_are_no_images_and_images_elsewhere_are_named() {
    let place = place();
    for (name, folder) in
        [("Thumbs.db", "train/bee"), ("desktop.ini", "train"), (".DS_Store", "test/ant"), ("__MACOSX/._a.png", "train")]
    {
        let path = place.folder().join(folder).join(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, "x").unwrap();
    }
    assert_eq!(place.pack(false).unwrap(), []);
    write_images(&place.folder().join("val"), 16, 2, colour);
    fs::create_dir(place.folder().join("notes")).unwrap();
    let left_out = place.pack(false).unwrap();
    assert_eq!(left_out.len(), 1);
    assert!(left_out[0].path.ends_with("val") && left_out[0].reason.contains("6 images"), "{left_out:?}");
    assert_eq!(place.open(Split::Test).len(), 60);
}

#[test]
fn folders_that_make_no_sense_are_refused_with_the_reason() {
    let check = |change: &dyn Fn(&Path), reason: &str| {
        let place = place();
        change(&place.folder());
        let error = refused(&place, true);
        assert!(error.contains(reason), "expected '{reason}': {error}");
    };
    check(
        &|images| fs::remove_dir_all(images.join("test")).unwrap(),
        "no folder 'test' or 'val': add one, or take a part of the training images with --validation 5%",
    );
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

/// Any other value of `--data` than images to pack stays as it is.
#[test]
fn packed_images_need_no_preparation_and_are_not_overwritten() {
    let place = place();
    place.pack(false).unwrap();
    let mut never = |_, _| panic!("there is nothing to pack");
    let test = place.out().join("test.packed");
    for data in [&place.out(), &test] {
        assert_eq!(Images::prepare(data, 16, FolderOptions::default(), &mut never).unwrap().0, *data);
    }
    let train = Images::locate(&test, Split::Train).unwrap();
    assert_eq!(Images::open(&DataSource::File(train.clone()), Split::Train).unwrap().count(), 150);
    fs::remove_file(train).unwrap();
    fs::write(&test, "mine").unwrap();
    let unpacked = Unpacked::find(&place.folder(), None).unwrap().unwrap();
    let packing = Packing { size: 16, skip_bad: false, shard_bytes: None };
    let error = unpacked.pack(&place.out(), packing, &mut |_, _| ()).unwrap_err();
    assert!(matches!(error, DataError::Disk(_)), "{error}");
    assert_eq!(fs::read(test).unwrap(), b"mine");
}
