//! Images with labels: CIFAR-100 from disk, or a synthetic stand-in of the same shape.

mod archive;
mod cifar;
mod sampling;
mod synthetic;

pub use archive::extract_archive;
pub use cifar::{CLASS_NAMES, RecordFile, find_split, hex, sha256_of_file};
pub use sampling::TaskData;
pub use synthetic::Synthetic;

use std::ops::Range;
use std::path::PathBuf;

/// Fine labels of CIFAR-100.
pub const CLASSES: usize = 100;
/// Coarse labels of CIFAR-100.
const COARSE_CLASSES: u8 = 20;
/// Bytes of an image: a red, a green and a blue plane, each 32 × 32, row-major.
pub const IMAGE_BYTES: usize = 3 * 32 * 32;
/// A record of the official binary layout: coarse label, fine label, pixels.
pub const RECORD_BYTES: usize = 2 + IMAGE_BYTES;

/// Mean and standard deviation of each channel of the CIFAR-100 training images, on a scale of 0 to 1.
pub const CHANNELS: [(f32, f32); 3] = [(0.5071, 0.2673), (0.4865, 0.2564), (0.4409, 0.2762)];

/// One record, in the official binary layout.
pub type Record = [u8; RECORD_BYTES];

/// Which part of a data set.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Split {
    /// For gradients.
    Train,
    /// For the evaluation.
    Test,
}

impl Split {
    /// The name of its file in the official archive.
    pub fn file_name(self) -> &'static str {
        match self {
            Self::Train => "train.bin",
            Self::Test => "test.bin",
        }
    }
}

/// What is wrong with a data set.
#[derive(Debug, thiserror::Error)]
pub enum DataError {
    /// It cannot be read or written.
    #[error("{path}: {cause}")]
    Io {
        /// The file or folder.
        path: PathBuf,
        /// What the system says.
        cause: std::io::Error,
    },
    /// The cache cannot be written.
    #[error("{path}: {cause}; set ATA_CACHE_DIR to use another folder for unpacked and downloaded data")]
    Cache {
        /// The file or folder.
        path: PathBuf,
        /// What the system says.
        cause: std::io::Error,
    },
    /// The folder has no such split.
    #[error(
        "{folder} holds no {file}: expected the CIFAR-100 binary version (train.bin and test.bin, as in \
         cifar-100-binary.tar.gz)"
    )]
    Missing {
        /// The folder.
        folder: PathBuf,
        /// The file.
        file: &'static str,
    },
    /// Its content violates the layout.
    #[error("{path}: {reason}")]
    Corrupt {
        /// The file.
        path: PathBuf,
        /// What is wrong.
        reason: String,
    },
}

impl DataError {
    pub(crate) fn io(path: impl Into<PathBuf>) -> impl FnOnce(std::io::Error) -> Self {
        let path = path.into();
        move |cause| Self::Io { path, cause }
    }

    /// For `map_err` after writing to the cache.
    pub fn cache(path: impl Into<PathBuf>) -> impl FnOnce(std::io::Error) -> Self {
        let path = path.into();
        move |cause| Self::Cache { path, cause }
    }

    pub(crate) fn corrupt(path: impl Into<PathBuf>, reason: impl Into<String>) -> Self {
        Self::Corrupt { path: path.into(), reason: reason.into() }
    }
}

/// One split of a data set, read record by record.
#[derive(Clone, Debug)]
pub enum Dataset {
    /// A file of records.
    File(RecordFile),
    /// Generated from a seed.
    Synthetic(Synthetic),
}

impl Dataset {
    /// The number of records.
    #[expect(clippy::len_without_is_empty, reason = "a data set has at least one record")]
    pub fn len(&self) -> u32 {
        match self {
            Self::File(file) => file.len(),
            Self::Synthetic(synthetic) => synthetic.len(),
        }
    }

    /// The record at an index below [`Dataset::len`].
    pub fn read(&self, index: u32) -> Result<Record, DataError> {
        match self {
            Self::File(file) => file.read(index),
            Self::Synthetic(synthetic) => Ok(synthetic.record(index)),
        }
    }

    /// A range of records as a batch.
    pub fn batch(&self, indices: Range<u32>) -> Result<Batch, DataError> {
        let mut batch = Batch::default();
        for index in indices {
            batch.push(&self.read(index)?);
        }
        Ok(batch)
    }
}

/// Samples ready for a device.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Batch {
    /// Normalised pixels, shape [samples, 3, 32, 32], row-major.
    pub images: Vec<f32>,
    /// Fine labels.
    pub labels: Vec<i32>,
}

impl Batch {
    /// Adds a record, normalising each channel to mean 0 and standard deviation 1 over CIFAR-100.
    pub fn push(&mut self, record: &Record) {
        self.labels.push(i32::from(record[1]));
        for (plane, (mean, deviation)) in record[2..].chunks_exact(IMAGE_BYTES / 3).zip(CHANNELS) {
            self.images.extend(plane.iter().map(|&pixel| (f32::from(pixel) / 255.0 - mean) / deviation));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pixels_are_normalised_per_channel() {
        let mut record = [0; RECORD_BYTES];
        record[1] = 42;
        record[2] = 255;
        record[2 + 1024] = 128;
        let mut batch = Batch::default();
        batch.push(&record);
        assert_eq!((batch.labels[0], batch.images.len()), (42, IMAGE_BYTES));
        assert!((batch.images[0] - (1.0 - 0.5071) / 0.2673).abs() < 1e-6);
        assert!((batch.images[1024] - (128.0 / 255.0 - 0.4865) / 0.2564).abs() < 1e-6);
        assert!((batch.images[2048] - (0.0 - 0.4409) / 0.2762).abs() < 1e-6);
    }
}
