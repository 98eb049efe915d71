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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::PackedFile;

    /// Writes two records into each batch, with consecutive labels.
    fn write(folder: &Path) {
        let names = (1..=5).map(|batch| format!("data_batch_{batch}.bin")).chain(["test_batch.bin".into()]);
        for (batch, name) in (0_u8..).zip(names) {
            let record = |at: u8| [vec![(2 * batch + at) % 10], vec![16 * batch + at; IMAGE_BYTES]].concat();
            std::fs::write(folder.join(name), [record(0), record(1)].concat()).unwrap();
        }
    }

    fn pack(folder: &Path, out: &Path, size: usize) -> Result<(), DataError> {
        let packing = Packing { size, skip_bad: false, shard_bytes: None };
        Cifar10::find(folder).unwrap().pack(out, packing, &mut |_, _| ())
    }

    #[test]
    fn all_batches_are_packed_in_order() {
        let [folder, out] = [(); 2].map(|()| tempfile::tempdir().unwrap());
        assert!(Cifar10::find(folder.path()).is_none());
        write(folder.path());
        pack(folder.path(), out.path(), 32).unwrap();
        let [train, test] =
            ["train.packed", "test.packed"].map(|name| PackedFile::open(&out.path().join(name)).unwrap());
        assert_eq!((train.len(), test.len(), &train.info().classes[9][..]), (10, 2, "truck"));
        assert_eq!(train.info(), test.info());
        for index in 0..10 {
            let image = train.read(index).unwrap();
            let value = (16 * (index / 2) + index % 2) as u8;
            assert_eq!((u64::from(image.label), image.pixels), (index, vec![value; IMAGE_BYTES]));
        }
    }

    #[test]
    fn damaged_batches_are_refused_with_the_reason() {
        let [folder, out] = [(); 2].map(|()| tempfile::tempdir().unwrap());
        let refused = |size| {
            let error = pack(folder.path(), out.path(), size).unwrap_err().to_string();
            assert_eq!(std::fs::read_dir(out.path()).unwrap().count(), 0, "nothing is left behind");
            error
        };
        write(folder.path());
        assert!(refused(64).contains("expected size 32, found 64"));
        let third = folder.path().join("data_batch_3.bin");
        let mut bytes = std::fs::read(&third).unwrap();
        bytes[RECORD_BYTES] = 10;
        std::fs::write(&third, &bytes).unwrap();
        assert!(refused(32).contains("data_batch_3.bin: record 1: label 10 is out of range (0 to 9)"));
        std::fs::write(&third, &bytes[1..]).unwrap();
        assert!(refused(32).contains("is it cut short?"));
        std::fs::remove_file(third).unwrap();
        assert!(refused(32).contains("data_batch_3.bin"));
    }
}
