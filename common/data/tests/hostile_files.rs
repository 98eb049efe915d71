//! Tests data sets, archives and models from outside: whatever their content, they are usable or refused with a reason,
//! and need little memory.

use std::io::Write;
use std::path::{Path, PathBuf};

use ata_data::{
    DataError, IMAGE_BYTES, PackedFile, Packing, RECORD_BYTES, RecordFile, ShardIndex, Split, Synthetic, Unpacked,
    extract_archive,
};
use ata_mutator::{Mutator, feed, peak_bytes, reset_peak, write_file};
use ata_sums::{Metadata, ParameterTable, decode_metadata, decode_model, decode_vectors, encode_model, encode_vectors};
use flate2::Compression;
use flate2::write::GzEncoder;
use tar::{Builder, EntryType, Header};
use tempfile::TempDir;

/// The memory that reading any data set may need, in bytes.
const MOST_BYTES: u64 = 64 << 20;

fn records(split: Split, count: u64) -> Vec<u8> {
    let synthetic = Synthetic::new(split, 1);
    (0..count).flat_map(|index| synthetic.record(index)).collect()
}

fn header(name: &str, kind: EntryType, bytes: u64) -> Header {
    let mut header = Header::new_ustar();
    header.as_mut_bytes()[..name.len()].copy_from_slice(name.as_bytes());
    header.set_entry_type(kind);
    header.set_size(bytes);
    header.set_cksum();
    header
}

fn tar(entries: &[(&str, &[u8])]) -> Vec<u8> {
    let mut tar = Builder::new(Vec::new());
    for (name, content) in entries {
        tar.append(&header(name, EntryType::Regular, content.len() as u64), *content).unwrap();
    }
    tar.into_inner().unwrap()
}

fn gzip(bytes: &[u8]) -> Vec<u8> {
    let mut encoder = GzEncoder::new(Vec::new(), Compression::none());
    encoder.write_all(bytes).unwrap();
    encoder.finish().unwrap()
}

/// Unpacks an archive in a folder that holds nothing else.
fn extract(folder: &TempDir, bytes: &[u8]) -> Result<PathBuf, DataError> {
    let (archive, cache) = (folder.path().join("data.tar.gz"), folder.path().join("cache"));
    write_file(&archive, bytes);
    let extracted = extract_archive(&archive, &cache);
    assert_eq!(names(folder.path()), ["cache", "data.tar.gz"]);
    let left = names(&cache.join("archives"));
    match &extracted {
        Ok(target) => {
            assert_eq!(names(target), ["test.bin", "train.bin"]);
            assert_eq!(left.len(), 1);
            std::fs::remove_dir_all(target).unwrap();
        }
        Err(error) => assert!(left.is_empty() && !error.to_string().is_empty(), "{left:?}"),
    }
    extracted
}

fn names(folder: &Path) -> Vec<String> {
    let names = std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap());
    let mut names: Vec<String> = names.collect();
    names.sort();
    names
}

/// Unpacks an archive of the official layout once, and again when the copy is damaged.
fn whole_archive() {
    let (train, test) = (records(Split::Train, 3), records(Split::Test, 2));
    let files = tar(&[
        ("cifar-100-binary/fine_label_names.txt", b"apple\n"),
        ("cifar-100-binary/train.bin", &train),
        ("cifar-100-binary/test.bin", &test),
    ]);
    let folder = TempDir::new().unwrap();
    let path = folder.path().join("data.tar.gz");
    let in_folder = header("cifar-100-binary/", EntryType::Directory, 0);
    write_file(&path, &gzip(&[in_folder.as_bytes(), &files[..]].concat()));
    let extract = || extract_archive(&path, folder.path()).unwrap();
    let target = extract();
    assert_eq!((std::fs::read(target.join("train.bin")).unwrap(), names(&target).len()), (train, 2));
    assert_eq!(extract(), target);
    write_file(&target.join("test.bin"), &test[..100]);
    extract();
    assert_eq!(std::fs::read(target.join("test.bin")).unwrap(), test);
}

fn broken_archives() {
    let (train, test) = (records(Split::Train, 3), records(Split::Test, 2));
    let archive = |entries: &[(&str, &[u8])]| gzip(&tar(entries));
    let entry = |kind, bytes| gzip(header("train.bin", kind, bytes).as_bytes());
    let good = archive(&[("train.bin", &train), ("test.bin", &test)]);
    // The last 8 bytes hold the checksum of the uncompressed content.
    let mut damaged = good.clone();
    damaged[good.len() - 6] ^= 1;
    let mut bad_label = train.clone();
    bad_label[1] = 200;
    let folder = TempDir::new().unwrap();
    extract(&folder, &good).unwrap();
    for (bytes, reason) in [
        (entry(EntryType::Regular, 2 << 30), "train.bin: 2147483648 bytes are more than 200000 records"),
        (b"hello".to_vec(), "is no whole tar archive"),
        (damaged, "cannot be unpacked: "),
        (archive(&[("../train.bin", &train)]), "entry '../train.bin' would leave the folder"),
        (archive(&[("/train.bin", &train)]), "would leave the folder"),
        (entry(EntryType::Symlink, 0), "is of kind Symlink"),
        (archive(&[("train.bin", &train)]), "holds no test.bin"),
        (archive(&[("train.bin", &train), ("a/train.bin", &train)]), "train.bin: appears twice"),
        (archive(&[("train.bin", &train[1..])]), "is it cut short?"),
        (archive(&[("train.bin", &bad_label)]), "fine label 200 is out of range"),
    ] {
        let error = extract(&folder, &bytes).unwrap_err().to_string();
        assert!(error.contains(reason), "expected '{reason}': {error}");
    }
}

/// Mutates archives after and before compression, as if they were damaged or malicious.
fn mutated_archives() {
    let (train, test) = (records(Split::Train, 2), records(Split::Test, 1));
    let good = tar(&[("cifar-100-binary/train.bin", &train), ("cifar-100-binary/test.bin", &test)]);
    let small = tar(&[("train.bin", &train[..RECORD_BYTES]), ("test.bin", &test), ("../train.bin", &test)]);
    let folder = TempDir::new().unwrap();
    extract(&folder, &gzip(&good)).unwrap();
    let fed = feed(Mutator::new(1, vec![gzip(&good)]), 1000, |bytes| extract(&folder, bytes).is_ok());
    println!("archives: {fed:?}");
    let tokens = ["../", "/", "\0", "././@LongLink", "00000000000", "77777777777", "train.bin"];
    let mutator = Mutator::new(2, vec![good, small]).with_tokens(&tokens);
    let fed = feed(mutator, 1000, |bytes| extract(&folder, &gzip(bytes)).is_ok());
    println!("archives made of mutated content: {fed:?}");
}

/// Checks an archive with five times the allowed content, compressed a thousandfold.
fn bomb() {
    let mut encoder = GzEncoder::new(Vec::new(), Compression::fast());
    encoder.write_all(header("padding", EntryType::Regular, 5 << 30).as_bytes()).unwrap();
    let zeros = vec![0; 1 << 20];
    for _ in 0..1100 {
        encoder.write_all(&zeros).unwrap();
    }
    let bytes = encoder.finish().unwrap();
    let error = extract(&TempDir::new().unwrap(), &bytes).unwrap_err().to_string();
    assert!(error.contains("unpacks to more than 100 times its size"), "{error}");
}

/// Writes mutated content to a file many times, and prints how often the file is usable.
fn feed_file(what: &str, path: &Path, mutator: Mutator, times: u64, is_usable: impl Fn(&[u8]) -> bool) {
    let fed = feed(mutator, times, |bytes| {
        write_file(path, bytes);
        is_usable(bytes)
    });
    println!("{what}: {fed:?}");
}

fn mutated_records() {
    let folder = TempDir::new().unwrap();
    let path = folder.path().join("train.bin");
    let good = records(Split::Train, 3);
    write_file(&path, &good);
    let opened = RecordFile::open(&path).unwrap();
    assert_eq!((opened.len(), &opened.read(2).unwrap()[..]), (3, &good[2 * RECORD_BYTES..]));
    assert!(matches!(opened.read(3), Err(DataError::Io { .. })));
    let with = |at: usize, label| [&good[..at], &[label], &good[at + 1..]].concat();
    for (bytes, reason) in [
        (good[..good.len() - 1].to_vec(), "is it cut short?"),
        (Vec::new(), "0 bytes are not a whole number"),
        (with(RECORD_BYTES, 20), "record 1: coarse label 20"),
        (with(2 * RECORD_BYTES + 1, 100), "record 2: fine label 100"),
    ] {
        write_file(&path, &bytes);
        let error = RecordFile::open(&path).unwrap_err().to_string();
        assert!(error.contains(reason), "{error}");
    }
    feed_file("records", &path, Mutator::new(3, vec![records(Split::Train, 2)]), 20_000, |bytes| {
        let Ok(file) = RecordFile::open(&path) else { return false };
        assert_eq!(file.len() as usize * RECORD_BYTES, bytes.len());
        assert!((0..file.len()).all(|index| file.read(index).is_ok()));
        true
    });
}

/// Returns two packed images of 8 × 8 pixels, of two classes.
fn packed() -> Vec<u8> {
    let words = [1_u32, 8, 2, 8].map(u32::to_le_bytes);
    let channels = [0.5_f32, 0.5, 0.5, 0.2, 0.2, 0.2].map(f32::to_le_bytes);
    let header =
        [&b"ATA-IMGS"[..], words.as_flattened(), &2_u64.to_le_bytes(), channels.as_flattened(), b"ant\ncat\n"].concat();
    let record = |label: u16| [&label.to_le_bytes()[..], &[7; 3 * 8 * 8]].concat();
    [header, record(0), record(1)].concat()
}

fn mutated_packed_images() {
    let folder = TempDir::new().unwrap();
    let path = folder.path().join("train.packed");
    write_file(&path, &packed());
    assert!(PackedFile::open(&path).is_ok());
    feed_file("packed images", &path, Mutator::new(5, vec![packed()]), 20_000, |_| {
        let Ok(file) = PackedFile::open(&path) else { return false };
        let info = file.info();
        assert!((0..file.len()).all(|index| {
            let image = file.read(index).unwrap();
            usize::from(image.label) < info.classes.len() && image.pixels.len() == info.image_bytes()
        }));
        assert!(info.channels.iter().all(|(mean, deviation)| (0.5 - mean / deviation).is_finite()));
        true
    });
}

/// Returns an index of three shards, of at most two of five images each.
fn shard_index() -> Vec<u8> {
    let header = [&packed()[..24], &5_u64.to_le_bytes(), &packed()[32..64]].concat();
    let words = [1_u32, 0].map(u32::to_le_bytes);
    [&b"ATA-SHDS"[..], words.as_flattened(), &2_u64.to_le_bytes(), &header, &[7; 3 * 32]].concat()
}

fn mutated_shard_indices() {
    let folder = TempDir::new().unwrap();
    let path = folder.path().join("train.shards");
    feed_file("shard indices", &path, Mutator::new(6, vec![shard_index()]), 20_000, |bytes| {
        let Ok(index) = ShardIndex::read(&path) else { return false };
        assert_eq!(index.shards().len() as u64, index.count().div_ceil(index.images_of_shard()));
        assert!(index.shards().all(|shard| shard.bytes > 0) && index.shards().len() <= bytes.len() / 32);
        true
    });
}

/// Packs the images in a folder; a part that is damaged may be left out.
fn packs(folder: &Path, size: usize) -> bool {
    let out = TempDir::new().unwrap();
    let packing = Packing { size, skip_bad: true, shard_bytes: None };
    let packed = Unpacked::find(folder, None).and_then(|found| match found {
        Some(found) => found.pack(out.path(), packing, &mut |_, _| {}).map(|bad| bad.is_empty()),
        None => Ok(false),
    });
    if let Err(error) = &packed {
        assert!(!error.to_string().is_empty() && names(out.path()).is_empty());
    }
    packed.unwrap_or(false)
}

fn png(colour: u8) -> Vec<u8> {
    let mut bytes = std::io::Cursor::new(Vec::new());
    let image = image::RgbImage::from_fn(9, 9, |x, y| image::Rgb([colour, 20 * x as u8, 20 * y as u8]));
    image.write_to(&mut bytes, image::ImageFormat::Png).unwrap();
    bytes.into_inner()
}

fn mutated_images() {
    let folder = TempDir::new().unwrap();
    let path = |name: &str| folder.path().join(name);
    for (name, colour) in [("train/ant/1.png", 1), ("train/bee/1.png", 2), ("test/ant/1.png", 3), ("test/bee/1.png", 4)]
    {
        std::fs::create_dir_all(path(name).parent().unwrap()).unwrap();
        write_file(&path(name), &png(colour));
    }
    assert!(packs(folder.path(), 8));
    let mutator = Mutator::new(7, vec![png(5)]).with_tokens(&["IHDR", "IDAT", "\x7f\x7f\x7f\x7f"]);
    feed_file("images", &path("train/ant/2.png"), mutator, 1500, |_| packs(folder.path(), 8));
}

fn mutated_tars() {
    let folder = TempDir::new().unwrap();
    let good =
        |first: u8| tar(&[("1.png", &png(first)), ("1.cls", b"0"), ("2.png", &png(9)), ("2.json", b"{\"label\": 1}")]);
    for name in ["train-000.tar", "test-000.tar"] {
        write_file(&folder.path().join(name), &good(1));
    }
    assert!(packs(folder.path(), 8));
    let tokens =
        ["././@LongLink", "GNU.sparse.", "17 path=a/b.png\n", "00000000000", "77777777777", "\0", ".cls", "65535", "S"];
    let (path, mutator) = (folder.path().join("train-000.tar"), Mutator::new(8, vec![good(2)]).with_tokens(&tokens));
    feed_file("tar archives of images", &path, mutator, 1500, |_| packs(folder.path(), 8));
}

/// Packs batches of two records each in order, if they are whole.
fn mutated_cifar10() {
    let [folder, out] = [(); 2].map(|()| TempDir::new().unwrap());
    let record = |label: u8, value: u8| [vec![label], vec![value; IMAGE_BYTES]].concat();
    let batches = (1..=5).map(|batch| format!("data_batch_{batch}.bin")).chain(["test_batch.bin".into()]);
    for (batch, name) in (0..).zip(batches) {
        let two = [0, 1].map(|at| record((2 * batch + at) % 10, 16 * batch + at));
        write_file(&folder.path().join(name), &two.concat());
    }
    let pack = |size| {
        let packing = Packing { size, skip_bad: false, shard_bytes: None };
        Unpacked::find(folder.path(), None).unwrap().unwrap().pack(out.path(), packing, &mut |_, _| ())
    };
    let refused = |size, reason: &str| {
        let error = pack(size).unwrap_err().to_string();
        assert!(error.contains(reason) && names(out.path()).is_empty(), "expected '{reason}': {error}");
    };
    refused(64, "expected size 32, found 64");
    let third = folder.path().join("data_batch_3.bin");
    let good = std::fs::read(&third).unwrap();
    for (content, reason) in [
        ([record(4, 0), record(10, 0)].concat(), "data_batch_3.bin: record 1: label 10 is out of range (0 to 9)"),
        (good[1..].to_vec(), "is it cut short?"),
    ] {
        write_file(&third, &content);
        refused(32, reason);
    }
    std::fs::remove_file(&third).unwrap();
    refused(32, "data_batch_3.bin");
    write_file(&third, &good);
    pack(32).unwrap();
    let [train, test] = ["train.packed", "test.packed"].map(|name| PackedFile::open(&out.path().join(name)).unwrap());
    assert_eq!((train.len(), test.len(), &train.info().classes[9][..]), (10, 2, "truck"));
    assert_eq!(train.info(), test.info());
    for index in 0..10 {
        let image = train.read(index).unwrap();
        let value = (16 * (index / 2) + index % 2) as u8;
        assert_eq!((u64::from(image.label), image.pixels), (index, vec![value; IMAGE_BYTES]));
    }
    let mutator = Mutator::new(9, vec![[record(1, 7), record(9, 7)].concat()]);
    feed_file("CIFAR-10", &third, mutator, 1000, |_| packs(folder.path(), 32));
}

/// Packs images that are far longer than wide: of 32,768 pixels scaled up to 256 rows, all but a square would be cut off.
fn long_images() {
    let folder = TempDir::new().unwrap();
    for (split, class) in [("train", "ant"), ("train", "bee"), ("test", "ant"), ("test", "bee")] {
        let class = folder.path().join(split).join(class);
        std::fs::create_dir_all(&class).unwrap();
        for (width, height) in [(1 << 15, 1), (1, 1 << 15)] {
            let file = class.join(format!("{width}.{height}.png"));
            image::GrayImage::from_pixel(width, height, image::Luma([99])).save(file).unwrap();
        }
    }
    let (out, packing) = (folder.path().join("out"), Packing { size: 256, skip_bad: false, shard_bytes: None });
    let images = Unpacked::find(folder.path(), None).unwrap().unwrap();
    assert_eq!(images.pack(&out, packing, &mut |_, _| ()).unwrap(), []);
    let train = PackedFile::open(&out.join("train.packed")).unwrap();
    assert!((0..4).all(|at| train.read(at).unwrap().pixels.iter().all(|value| *value == 99)));
}

fn mutated_models() {
    let table = ParameterTable::vector("theta", 5);
    let metadata = Metadata::from([("steps".to_owned(), "3".to_owned())]);
    let model = encode_model(&table, &[1.0, -2.0, 0.5, 0.0, 9.0], &metadata);
    let vectors = encode_vectors([("m", &[0.1, 0.2][..]), ("v", &[0.3, 0.4])].into_iter(), None, &metadata);
    let tokens = ["\"F32\"", "[0,0]", "18446744073709551615", "{\"a\":", "[", "null", "\"theta\":"];
    let mutator = Mutator::new(4, vec![model.clone(), vectors.clone()]).with_tokens(&tokens);
    assert!(decode_model(&table, &model).is_ok() && decode_vectors(&vectors, 2).is_ok());
    let fed = feed(mutator, 100_000, |bytes| {
        let is_model = decode_model(&table, bytes).is_ok_and(|(parameters, _)| {
            assert!(parameters.len() == 5 && parameters.iter().all(|value| value.is_finite()));
            true
        });
        let vectors = decode_vectors(bytes, 2);
        if let Ok(vectors) = &vectors {
            assert!(vectors.iter().all(|(_, values)| values.len() == 2));
        }
        assert!(decode_metadata(bytes).is_ok() || !is_model);
        is_model || vectors.is_ok()
    });
    println!("models: {fed:?}");
}

/// There is only one test, as memory is measured for the whole process.
#[test]
fn hostile_files_do_no_harm_in_little_memory() {
    let can_measure = reset_peak();
    let before = peak_bytes();
    for check in [
        whole_archive,
        broken_archives,
        mutated_archives,
        bomb,
        mutated_records,
        mutated_packed_images,
        mutated_shard_indices,
        mutated_images,
        mutated_tars,
        mutated_cifar10,
        mutated_models,
        long_images,
    ] {
        check();
    }
    if let (true, Some(before), Some(peak)) = (can_measure, before, peak_bytes()) {
        println!("{} bytes more at most", peak - before);
        assert!(peak - before <= MOST_BYTES, "{} bytes more than before", peak - before);
    }
}
