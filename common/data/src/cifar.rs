//! CIFAR-100 in its official binary layout, on disk.
//!
//! Source: Krizhevsky, "Learning Multiple Layers of Features from Tiny Images", 2009; "CIFAR-100 binary version".

use std::fs::File;
use std::io::{BufReader, Read};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use crate::file::read_exact_at;
use crate::{CLASSES, COARSE_CLASSES, DataError, LabelledImage, RECORD_BYTES, Record, Split};

/// The names of CIFAR-100's classes, by fine label: `fine_label_names.txt` of the official archive.
#[rustfmt::skip]
pub const CLASS_NAMES: [&str; CLASSES] = [
    "apple", "aquarium_fish", "baby", "bear", "beaver", "bed", "bee", "beetle", "bicycle", "bottle", "bowl", "boy",
    "bridge", "bus", "butterfly", "camel", "can", "castle", "caterpillar", "cattle", "chair", "chimpanzee", "clock",
    "cloud", "cockroach", "couch", "crab", "crocodile", "cup", "dinosaur", "dolphin", "elephant", "flatfish",
    "forest", "fox", "girl", "hamster", "house", "kangaroo", "keyboard", "lamp", "lawn_mower", "leopard", "lion",
    "lizard", "lobster", "man", "maple_tree", "motorcycle", "mountain", "mouse", "mushroom", "oak_tree", "orange",
    "orchid", "otter", "palm_tree", "pear", "pickup_truck", "pine_tree", "plain", "plate", "poppy", "porcupine",
    "possum", "rabbit", "raccoon", "ray", "road", "rocket", "rose", "sea", "seal", "shark", "shrew", "skunk",
    "skyscraper", "snail", "snake", "spider", "squirrel", "streetcar", "sunflower", "sweet_pepper", "table", "tank",
    "telephone", "television", "tiger", "tractor", "train", "trout", "tulip", "turtle", "wardrobe", "whale",
    "willow_tree", "wolf", "woman", "worm",
];

/// A file of records, checked when opened. Records are read from disk on demand: the operating system caches them once for all processes.
#[derive(Clone, Debug)]
pub struct RecordFile {
    /// The file, shared between clones, which read at explicit offsets.
    file: Arc<File>,
    path: PathBuf,
    records: u64,
}

impl RecordFile {
    /// Opens a file of records and reads it once: its size must be a whole number of records, and every label must be in range.
    pub fn open(path: &Path) -> Result<Self, DataError> {
        let file = File::open(path).map_err(DataError::io(path))?;
        let records = record_count(&file, path, RECORD_BYTES)?;
        let mut reader = BufReader::with_capacity(1 << 20, &file);
        let mut record = [0; RECORD_BYTES];
        for index in 0..records {
            reader.read_exact(&mut record).map_err(DataError::io(path))?;
            check_labels(&record, index).map_err(|reason| DataError::corrupt(path, reason))?;
        }
        Ok(Self { file: Arc::new(file), path: path.into(), records })
    }

    /// Returns the number of records.
    #[expect(clippy::len_without_is_empty, reason = "a file of records has at least one")]
    pub fn len(&self) -> u64 {
        self.records
    }

    /// Reads the record at an index below [`RecordFile::len`].
    pub fn read(&self, index: u64) -> Result<Record, DataError> {
        let mut record = [0; RECORD_BYTES];
        read_exact_at(&self.file, &mut record, index * RECORD_BYTES as u64).map_err(DataError::io(&self.path))?;
        // The file may have changed since it was checked.
        check_labels(&record, index).map_err(|reason| DataError::corrupt(&self.path, reason))?;
        Ok(record)
    }
}

/// The class of an image is its fine label.
impl From<Record> for LabelledImage {
    fn from(record: Record) -> Self {
        Self { label: record[1].into(), pixels: record[2..].into() }
    }
}

fn check_labels(record: &Record, index: u64) -> Result<(), String> {
    for (kind, label, classes) in [("coarse", record[0], COARSE_CLASSES), ("fine", record[1], CLASSES as u8)] {
        if label >= classes {
            return Err(format!("record {index}: {kind} label {label} is out of range (0 to {})", classes - 1));
        }
    }
    Ok(())
}

/// Returns the number of records in a file that has at least one, and nothing else.
pub(crate) fn record_count(file: &File, path: &Path, record_bytes: usize) -> Result<u64, DataError> {
    let bytes = file.metadata().map_err(DataError::io(path))?.len();
    let (records, rest) = (bytes / record_bytes as u64, bytes % record_bytes as u64);
    if records > 0 && rest == 0 {
        return Ok(records);
    }
    let reason = format!("{bytes} bytes are not a whole number of records of {record_bytes} bytes: is it cut short?");
    Err(DataError::corrupt(path, reason))
}

/// Returns the file of a split in a folder, or in its `cifar-100-binary` subfolder. An index of shards takes
/// precedence, then packed images.
pub(crate) fn find_split(folder: &Path, split: Split) -> Result<PathBuf, DataError> {
    // This gives a missing folder its own error.
    folder.metadata().map_err(DataError::io(folder))?;
    let file = split.file_name();
    let paths = split.names().map(|name| folder.join(name));
    paths.into_iter().chain([folder.join("cifar-100-binary").join(file)]).find(|path| path.is_file()).ok_or_else(|| {
        DataError::Problem(format!(
            "{} holds no {file}: expected the CIFAR-100 binary version (train.bin and test.bin, as in \
             cifar-100-binary.tar.gz), packed images (train.packed and test.packed), or images to pack with `ata data \
             pack` (train/CLASS/*.png and test/CLASS/*.png)",
            folder.display()
        ))
    })
}
