//! Tests which archives are read: every file in one is used or named, and a damaged archive is refused.

use std::fs;
use std::io::Write;
use std::path::PathBuf;

use ata_data::{DataError, FolderOptions, Images, Split};
use flate2::{Compression, write::GzEncoder};
use image::{ImageFormat, RgbImage};
use tar::{EntryType, Header};

use super::Place;
use super::tars::{Entries, TRAIN, colour, packed, place, png, samples, tar, write_names};

/// What is left out, and a part of the reason for each.
type Reasons<'a> = &'a [(&'a str, &'a str)];

/// The size of a sample of two small entries, in bytes.
const SAMPLE_BYTES: usize = 2048;

fn entry(name: &[u8], kind: EntryType, content: &[u8]) -> Vec<u8> {
    let mut header = Header::new_gnu();
    header.as_mut_bytes()[..name.len()].copy_from_slice(name);
    header.set_entry_type(kind);
    header.set_size(content.len() as u64);
    header.set_cksum();
    let padding = content.len().next_multiple_of(512) - content.len();
    [&header.as_bytes()[..], content, &vec![0; padding]].concat()
}

/// Returns entries without the end of an archive.
fn entries(entries: &[(String, Vec<u8>)]) -> Vec<u8> {
    let mut bytes = tar(entries);
    bytes.truncate(bytes.len() - 1024);
    bytes
}

fn ended(entries: Vec<u8>) -> Vec<u8> {
    [entries, vec![0; 1024]].concat()
}

/// Returns images of the classes 0 and 1, as many of each as [`TRAIN`], in samples of [`SAMPLE_BYTES`].
fn small() -> Entries {
    samples(&[0, 1], TRAIN).into_iter().filter(|(name, _)| !name.ends_with("json")).collect()
}

fn gzip(bytes: &[u8]) -> Vec<u8> {
    let mut encoder = GzEncoder::new(Vec::new(), Compression::best());
    encoder.write_all(bytes).unwrap();
    encoder.finish().unwrap()
}

fn zstd(bytes: &[u8]) -> Vec<u8> {
    zstd::encode_all(bytes, 1).unwrap()
}

/// Returns the archive with training images of the classes 0 and 1.
fn path(place: &Place) -> PathBuf {
    place.folder().join("birds-train-000.tar")
}

fn with(content: &[u8]) -> Place {
    let place = place();
    fs::write(path(&place), content).unwrap();
    place
}

fn images(place: &Place) -> u64 {
    place.open(Split::Train).len() - u64::from(TRAIN)
}

#[test]
fn the_usual_layouts_are_read_like_the_first() {
    const NAMES: [&str; 3] = ["ant", "bee", "cat"];
    type Change = fn(&str, usize) -> (String, String);
    let cases: [(&str, Change); 10] = [
        (".json with a number", |key, class| (format!("{key}.json"), format!("{{\"a\": [[0]], \"label\": {class}}}"))),
        (".json with a name", |key, class| (format!("{key}.json"), format!("{{\"class\": \"{}\"}}", NAMES[class]))),
        (".txt", |key, class| (format!("{key}.txt"), NAMES[class].into())),
        ("names", |key, class| (format!("{key}.cls"), format!("{}\r\n", NAMES[class]))),
        ("capitals", |key, class| (format!("{key}.CLS"), class.to_string())),
        (".target.cls", |key, class| (format!("{key}.target.cls"), class.to_string())),
        ("a byte order mark", |key, class| (format!("{key}.cls"), format!("\u{feff}{class}\n"))),
        (".cls and a .txt", |key, class| (format!("{key}.cls"), format!("{class}"))),
        ("a folder with a dot", |key, class| (format!("v1.0/{key}.cls"), class.to_string())),
        ("long names", |key, class| (format!("{}{key}.cls", "long/".repeat(60)), class.to_string())),
    ];
    let place = place();
    write_names(&place, "\u{feff}ant\nbee\ncat\n");
    place.pack(false).unwrap();
    let expected = packed(&place);
    for (layout, change) in cases {
        let (mut changed, mut labels) = (Entries::new(), Entries::new());
        for at in 0..2 * TRAIN {
            let (class, at) = (at / TRAIN, at % TRAIN);
            let (name, label) = change(&format!("c{class}/{at}"), class.into());
            let key = &name[..name.rfind(&format!("/{at}.")).unwrap() + 1 + at.to_string().len()];
            changed.push((format!("{key}.input.PNG"), png(class, at)));
            changed.push((format!("{key}.npy"), b"an extra".to_vec()));
            // The entries of a sample need not follow each other.
            labels.push((name, label.into_bytes()));
        }
        changed.extend(labels);
        fs::write(path(&place), tar(&changed)).unwrap();
        assert_eq!(place.pack(false).expect(layout), [], "{layout}");
        assert!(packed(&place) == expected, "{layout}");
    }
}

#[test]
fn webp_images_are_read() {
    let mut webp = std::io::Cursor::new(Vec::new());
    RgbImage::from_pixel(16, 16, colour(0, 0)).write_to(&mut webp, ImageFormat::WebP).unwrap();
    let more = [("x.webp".to_owned(), webp.into_inner()), ("x.cls".to_owned(), b"0".to_vec())];
    let place = with(&tar(&[small(), more.into()].concat()));
    assert_eq!(place.pack(false).unwrap(), []);
    let file = place.open(Split::Train);
    assert_eq!(file.read(2 * u64::from(TRAIN)).unwrap(), file.read(0).unwrap());
}

#[test]
fn without_a_list_classes_have_their_numbers_or_else_their_names() {
    let place = place();
    place.pack(false).unwrap();
    let file = place.open(Split::Train);
    assert_eq!((file.info().classes.concat(), file.len(), file.read(59).unwrap().label), ("012".into(), 60, 2));
    let named = |content: &[u8]| [b"the ", content].concat();
    for (name, classes) in
        [("train-000", &[1, 0][..]), ("intervals-train-001", &[2]), ("intervals-validation-000", &[0, 1, 2])]
    {
        let place_of = ["birds-", "constrained_"].map(|begin| place.folder().join(format!("{begin}{name}.tar")));
        let all = samples(classes, 5).into_iter();
        let all: Entries = all
            .map(|(name, content)| if name.ends_with("cls") { (name, named(&content)) } else { (name, content) })
            .collect();
        fs::write(place_of.iter().find(|path| path.exists()).unwrap(), tar(&all)).unwrap();
    }
    assert_eq!(place.pack(false).unwrap(), []);
    let file = place.open(Split::Train);
    assert_eq!(file.info().classes, ["the 0", "the 1", "the 2"]);
    assert_eq!([0, 5, 10].map(|at| file.read(at).unwrap().label), [1, 0, 2]);
}

fn samples_that_lack_something() -> (Vec<u8>, Reasons<'static>) {
    let lacking: [(&str, &[u8]); 12] = [
        ("a.jpg", b"no image"),
        ("a.cls", b"1"),
        ("b.png", &png(1, 1)),
        ("c.cls", b"1"),
        ("d.png", &png(1, 1)),
        ("d.cls", b"one"),
        ("e.png", &png(1, 1)),
        ("e.jpg", &png(1, 1)),
        ("e.cls", b"1"),
        ("._f.png", b"what a Mac adds"),
        ("readme", b"no sample"),
        ("g.txt", b"no sample"),
    ];
    let lacking = lacking.map(|(name, content)| entry(name.as_bytes(), EntryType::Regular, content)).concat();
    let reasons: Reasons<'static> = &[
        ("a.jpg", "decoding"),
        ("b.png", "there is no .cls"),
        ("c", "has a .cls, but no .png"),
        ("d.png", "expected the number of a class, or a name in classnames.txt, found 'one'"),
        ("e.png", "another image"),
        ("readme", "no dot in its name"),
        ("g", "has a .txt, but no .png"),
    ];
    (lacking, reasons)
}

#[test]
fn every_file_of_an_archive_is_used_or_named() {
    let sample = |name: &[u8], kind| {
        [entry(&[name, b".png"].concat(), kind, &png(0, 0)), entry(&[name, b".cls"].concat(), EntryType::Regular, b"0")]
            .concat()
    };
    let sparse = {
        let record = b"22 GNU.sparse.major=1\n";
        [entry(b"x", EntryType::XHeader, record), sample(b"a", EntryType::Regular)].concat()
    };
    let (lacking, reasons_of_lacking) = samples_that_lack_something();
    let cases: [(&str, Vec<u8>, u64, Reasons<'_>); 10] = [
        ("samples that lack something", lacking, 1, reasons_of_lacking),
        ("a name in Latin-1", sample(b"\xe9t\xe9", EntryType::Regular), 1, &[]),
        ("a contiguous file", sample(b"a", EntryType::Continuous), 1, &[]),
        ("a folder of an old archive", entry(b"folder/", EntryType::Regular, b""), 0, &[]),
        ("a hard link", sample(b"a", EntryType::Link), 0, &[("a.png", "is a link"), ("a", "has a .cls, but no .png")]),
        ("a sparse file", sample(b"a", EntryType::GNUSparse), 0, &[("a.png", "is a sparse file"), ("a", "has a .cls")]),
        ("a sparse file of POSIX", sparse, 0, &[("a.png", "is a sparse file"), ("a", "has a .cls")]),
        (
            "no image",
            entry(b"a.npy", EntryType::Regular, b""),
            0,
            &[("a", "neither .png, .jpg, .jpeg or .webp, nor .cls, .json or .txt with a class; found .npy")],
        ),
        (
            "two images",
            [entry(b"a.x.png", EntryType::Regular, b""), sample(b"a.y", EntryType::Regular)].concat(),
            0,
            &[("a.x.png", "another image"), ("a.y.png", "another image")],
        ),
        (
            "two classes",
            [entry(b"a.cls", EntryType::Regular, b"1"), sample(b"a", EntryType::Regular)].concat(),
            0,
            &[("a.png", "its .cls is there twice")],
        ),
    ];
    for (case, more, used, named) in cases {
        let place = with(&ended([entries(&small()), more].concat()));
        let mut found = place.pack(true).expect(case);
        assert_eq!(images(&place), 2 * u64::from(TRAIN) + used, "{case}");
        for (name, reason) in named {
            let at = found.iter().position(|bad| bad.path == path(&place).join(name)).expect(case);
            let bad = found.remove(at);
            assert!(bad.reason.contains(reason), "{case}: {}", bad.reason);
        }
        assert_eq!(found, [], "{case}");
    }
}

#[test]
fn all_archives_in_a_file_are_read() {
    let one = tar(&small());
    let sample = tar(&small()[..2]);
    for (content, times) in [
        ([&one[..], &one].concat(), 2),
        ([&one[..], &[0; 5120], &one].concat(), 2),
        // A sample ends with its archive.
        (sample.repeat(2 * usize::from(TRAIN)), 1),
        (gzip(&one), 1),
        ([gzip(&one), gzip(&one)].concat(), 2),
        (zstd(&one), 1),
        ([&b"\x50\x2a\x4d\x18\x04\0\0\0skip"[..], &zstd(&one), &zstd(&one)].concat(), 2),
    ] {
        let place = with(&content);
        fs::copy(path(&place), place.folder().join("other-train.tar.gz")).unwrap();
        fs::write(path(&place), &one).unwrap();
        assert_eq!(place.pack(false).unwrap(), []);
        assert_eq!(images(&place), (1 + times) * 2 * u64::from(TRAIN));
    }
}

#[test]
fn archives_without_samples_are_named_or_left_out() {
    let one = tar(&small());
    for (name, content, reason) in [
        ("a-train-001.tar", &[][..], "is empty"),
        ("a-train-001.tar", &[0; 10_240], "is empty"),
        ("a-001.tar", &one, "expected one of train, test, val in its name"),
        ("train-test.tgz", &one, "expected one of train, test, val in its name"),
    ] {
        let place = with(&one);
        let added = place.folder().join(name);
        fs::write(&added, content).unwrap();
        let Err(DataError::BadImages { first, others }) = place.pack(false) else { panic!("{name} is named") };
        assert!(first.path == added && first.reason.contains(reason) && others.is_empty(), "{first:?} {others:?}");
        let prepared = Images::prepare(&place.folder(), 16, FolderOptions::default(), &mut |_, _| ());
        assert!(matches!(prepared, Err(DataError::BadImages { .. })), "{prepared:?}");
        assert_eq!(place.pack(true).unwrap(), [first]);
        assert_eq!(images(&place), 2 * u64::from(TRAIN));
    }
}

#[test]
fn damaged_archives_are_refused_with_the_reason() {
    let whole = tar(&small());
    let with_hole = |from: usize, to: usize| [&whole[..from], &vec![0; to - from], &whole[to..]].concat();
    let mut wrong_sum = gzip(&whole);
    let at = wrong_sum.len() - 6;
    wrong_sum[at] ^= 1;
    let long = entry(b"././@LongLink", EntryType::GNULongName, b"long\0");
    let huge = entry(b"x", EntryType::XHeader, &vec![b'x'; (1 << 20) + 1]);
    let bomb = [entry(b"x.png", EntryType::Regular, &[])[..512].to_vec(), vec![0; 120 << 20]].concat();
    let cases = [
        (whole[..whole.len() - 1024].to_vec(), "ends without the two blocks of zeros that end an archive"),
        (whole[..whole.len() - 512].to_vec(), "ends without the two blocks of zeros that end an archive"),
        (whole[..3 * SAMPLE_BYTES].to_vec(), "ends without the two blocks of zeros that end an archive"),
        (whole[..3 * SAMPLE_BYTES + 512].to_vec(), "ends in the middle of c0/003.png"),
        (whole[..3 * SAMPLE_BYTES + 100].to_vec(), "there is no entry at byte 6144"),
        (with_hole(2048, 2560), "there is no entry at byte 2560"),
        (with_hole(0, 1024), "there are zeros instead of an entry before byte 1024"),
        ([&whole[..2048], &[0; 512], &whole[2048..]].concat(), "there are zeros instead of an entry before byte 2560"),
        ([&whole[..], b"more"].concat(), "there is no entry at byte"),
        (ended([entries(&small()), long].concat()), "the entry after a long name is missing"),
        (ended([huge, entries(&small())].concat()), "a name or header of 1048577 bytes"),
        (gzip(&whole)[..800].to_vec(), "cannot be unpacked: "),
        (wrong_sum, "cannot be unpacked: corrupt gzip stream"),
        (zstd(&whole)[..300].to_vec(), "cannot be unpacked: incomplete frame"),
        (gzip(&whole[..3 * SAMPLE_BYTES]), "ends without the two blocks of zeros that end an archive"),
        (gzip(&bomb), "unpacks to more than 100 times its size"),
        (zstd(&bomb), "unpacks to more than 100 times its size"),
        (b"\xfd7zXZ\0\0".to_vec(), "it is compressed with xz; expected a plain one, gzip or zstd"),
    ];
    for (content, reason) in cases {
        let error = with(&content).pack(true).expect_err(reason).to_string();
        assert!(error.contains("birds-train-000.tar: ") && error.contains(reason), "expected '{reason}': {error}");
    }
}

#[test]
fn other_layouts_are_refused_with_what_was_found() {
    let place = place();
    for archive in fs::read_dir(place.folder()).unwrap().map(|entry| entry.unwrap().path()) {
        let renamed = |(name, content): (String, Vec<u8>)| (name.replace(".png", ".npy"), content);
        fs::write(archive, tar(&samples(&[0, 1, 2], 5).into_iter().map(renamed).collect::<Entries>())).unwrap();
    }
    let error = place.pack(true).unwrap_err().to_string();
    for part in [
        "none of the training samples has both an image",
        "45 samples",
        "but no .png, .jpg, .jpeg or .webp; found .npy",
    ] {
        assert!(error.contains(part), "expected '{part}': {error}");
    }
}
