//! CIFAR-10 in its official binary layout, as a source of images to pack.
//!
//! Source: Krizhevsky, "Learning Multiple Layers of Features from Tiny Images", 2009; "CIFAR-10 binary version".

use std::fs::File;
use std::io::{BufReader, Read};
use std::path::{Path, PathBuf};

use sha2::{Digest, Sha256};

use crate::cifar::record_count;
use crate::packed_writer::PackedWriter;
use crate::{DEFAULT_SIZE, DataError, IMAGE_BYTES, LabelledImage, PackProgress, Packing, Split, sha256_of_file};

/// The names of the classes, by label: `batches.meta.txt` of the official archive.
const CLASS_NAMES: [&str; 10] =
    ["airplane", "automobile", "bird", "cat", "deer", "dog", "frog", "horse", "ship", "truck"];

/// The size of a record: a label and the pixels.
const RECORD_BYTES: usize = 1 + IMAGE_BYTES;

#[derive(Debug)]
pub(crate) struct Cifar10 {
    folder: PathBuf,
}

impl Cifar10 {
    /// Finds the files in a folder, or in its `cifar-10-batches-bin` subfolder.
    pub(crate) fn find(folder: &Path) -> Option<Self> {
        let is_one = |folder: &PathBuf| folder.join("data_batch_1.bin").is_file();
        let folder = [folder.into(), folder.join("cifar-10-batches-bin")].into_iter().find(is_one)?;
        Some(Self { folder })
    }

    fn files(&self, split: Split) -> Vec<PathBuf> {
        match split {
            Split::Train => (1..=5).map(|batch| self.folder.join(format!("data_batch_{batch}.bin"))).collect(),
            Split::Test => vec![self.folder.join("test_batch.bin")],
        }
    }

    /// Returns a digest of the content of all files.
    pub(crate) fn fingerprint(&self) -> Result<[u8; 32], DataError> {
        let mut digest = Sha256::new();
        for file in Split::BOTH.into_iter().flat_map(|split| self.files(split)) {
            digest.update(sha256_of_file(&file)?);
        }
        Ok(digest.finalize().into())
    }

    pub(crate) fn pack(&self, out: &Path, packing: Packing, progress: PackProgress<'_>) -> Result<(), DataError> {
        let Packing { size, shard_bytes, .. } = packing;
        if size != DEFAULT_SIZE {
            let reason = format!("images of CIFAR-10 stay as they are: expected size {DEFAULT_SIZE}, found {size}");
            return Err(DataError::corrupt(&self.folder, reason));
        }
        let (mut done, mut total) = (0, 0);
        for file in Split::BOTH.into_iter().flat_map(|split| self.files(split)) {
            total += file.metadata().map_err(DataError::io(file))?.len() / RECORD_BYTES as u64;
        }
        let mut pack = |split| -> Result<PackedWriter, DataError> {
            let classes = CLASS_NAMES.map(String::from);
            let mut writer = PackedWriter::new(out, size, &classes, shard_bytes).map_err(DataError::write(out))?;
            for file in self.files(split) {
                done += append(&file, &mut writer, out)?;
                progress(done, total);
            }
            Ok(writer)
        };
        let (train, test) = (pack(Split::Train)?, pack(Split::Test)?);
        let channels = train.channels();
        train.keep(channels, out, Split::Train)?;
        test.keep(channels, out, Split::Test)
    }
}

/// Adds the records of a file, and returns how many there are.
fn append(path: &Path, writer: &mut PackedWriter, out: &Path) -> Result<u64, DataError> {
    let file = File::open(path).map_err(DataError::io(path))?;
    let records = record_count(&file, path, RECORD_BYTES)?;
    let mut file = BufReader::with_capacity(1 << 20, file);
    let mut record = [0; RECORD_BYTES];
    for index in 0..records {
        file.read_exact(&mut record).map_err(DataError::io(path))?;
        let [label, pixels @ ..] = &record;
        if usize::from(*label) >= CLASS_NAMES.len() {
            return Err(DataError::corrupt(path, format!("record {index}: label {label} is out of range (0 to 9)")));
        }
        let image = LabelledImage { label: (*label).into(), pixels: pixels.into() };
        writer.push(&image).map_err(DataError::write(out))?;
    }
    Ok(records)
}
