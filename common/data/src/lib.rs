//! The samples of a run, and their assignment to tasks. The images are the user's own, which have been packed,
//! CIFAR-100's, or a synthetic replacement of the same shape.
//!
//! # Layout
//! - here: [`DataSource`], the source of a split, and [`DataError`]
//! - `images`: [`Images`], one split of any kind; `info`: the description of its images; `augmentation`: random changes by tasks
//! - `sampling`: [`TaskSampler`], which chooses the samples of a task; `permutation`, `windows`: their order
//! - `packed`, `packed_writer`, `header`: ata's own layout; `shard_index`, `sharded`: the same layout in shards
//! - `pack`: packs images into it, from a `folder` of images, `tars` with a `class_label` for each, or `cifar10`; `decode`: reads image
//!   files
//! - `cifar`, `archive`, `synthetic`: CIFAR-100's layout, its archive, and generated images in its shape; `tar_reader`: reads archives
//! - `file`: data files that are sent to workers; `cache`: the folder for data that is downloaded, unpacked or packed

mod archive;
mod augmentation;
mod cache;
mod cifar;
mod cifar10;
mod class_label;
mod decode;
mod file;
mod folder;
mod header;
mod images;
mod info;
mod pack;
mod packed;
mod packed_writer;
mod permutation;
mod sampling;
mod shard_index;
mod sharded;
mod synthetic;
mod tar_reader;
mod tars;
mod windows;

pub use archive::extract_archive;
pub use augmentation::{Augmentation, Mixing, Placement};
pub use cache::default_cache_dir;
pub use cifar::{CLASS_NAMES, RecordFile};
pub use file::{DataFile, FileState, hex, sha256_of_file};
pub use images::{FolderOptions, Images};
pub use info::{Channels, ImageInfo, LabelledImage, MAX_CLASSES, MAX_SIZE, is_size};
pub use pack::{BadImage, DEFAULT_SIZE, PackProgress, Packing, Unpacked};
pub use packed::PackedFile;
pub use packed_writer::PackedWriter;
pub use sampling::{TaskSample, TaskSampler, Tasks};
pub use shard_index::{Shard, ShardIndex};
pub use sharded::{ImageChecksummer, ImageChecksums, ShardFile, ShardStore};
pub use synthetic::Synthetic;

use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// The number of fine labels in CIFAR-100.
pub const CLASSES: usize = 100;
const COARSE_CLASSES: u8 = 20;
/// The size of an image, in bytes: a red, a green and a blue plane, each 32 × 32, row-major.
pub const IMAGE_BYTES: usize = 3 * 32 * 32;
/// The size of a record in the official binary layout, in bytes: coarse label, fine label, pixels.
pub const RECORD_BYTES: usize = 2 + IMAGE_BYTES;

/// The mean and the standard deviation of each channel of the CIFAR-100 training images, on a scale of 0 to 1.
pub const CHANNELS: Channels = [(0.5071, 0.2673), (0.4865, 0.2564), (0.4409, 0.2762)];

/// One record, in the official binary layout.
pub type Record = [u8; RECORD_BYTES];

/// A part of a data set.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Split {
    /// The training data, for gradients.
    Train,
    /// The test data, for evaluations.
    Test,
}

impl fmt::Display for Split {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(if *self == Self::Train { "training" } else { "test" })
    }
}

impl Split {
    pub(crate) const BOTH: [Self; 2] = [Self::Train, Self::Test];

    /// Returns the name of the split's file in the official archive of CIFAR-100.
    pub fn file_name(self) -> &'static str {
        if self == Self::Train { "train.bin" } else { "test.bin" }
    }

    /// Returns the name of the index of the split's shards.
    pub fn shards_name(self) -> &'static str {
        if self == Self::Train { "train.shards" } else { "test.shards" }
    }

    /// Returns the name of the split's file in ata's own layout.
    pub fn packed_name(self) -> &'static str {
        if self == Self::Train { "train.packed" } else { "test.packed" }
    }

    /// Returns the names that the split's file may have; the first one that exists is used.
    pub(crate) fn names(self) -> [&'static str; 3] {
        [self.shards_name(), self.packed_name(), self.file_name()]
    }
}

/// The source of a split's samples.
#[derive(Clone, Debug)]
pub enum DataSource {
    /// Samples are generated from a seed.
    Generated {
        /// The seed.
        seed: u64,
    },
    /// Samples are read from a file.
    File(PathBuf),
    /// Samples are read from the shards that an index lists, which are obtained when they are needed.
    Shards {
        /// The path of the index.
        index: PathBuf,
        /// The store that obtains the shards.
        store: Arc<dyn ShardStore>,
    },
}

impl DataSource {
    /// Returns the file, for a problem that has no generated data. `expected` describes what `--data` takes, as in "a text file".
    pub fn file(&self, expected: &'static str) -> Result<&Path, DataError> {
        match self {
            Self::File(path) | Self::Shards { index: path, .. } => Ok(path),
            Self::Generated { .. } => Err(DataError::NotGenerated { expected }),
        }
    }
}

/// The reason why a data set cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum DataError {
    /// A file or folder cannot be read or written.
    #[error("{path}: {cause}")]
    Io {
        /// The file or folder.
        path: PathBuf,
        /// The system's error.
        cause: std::io::Error,
    },
    /// The problem has no generated data.
    #[error("there is no synthetic data for this model: --data takes {expected}")]
    NotGenerated {
        /// A description of what `--data` takes.
        expected: &'static str,
    },
    /// The cache or packed images cannot be written.
    #[error("{0}")]
    Disk(String),
    /// Images to be packed cannot be read.
    #[error(
        "{} of the files cannot be read as images, such as {}: {}. Remove or replace them, or let `--skip-bad` leave them out",
        1 + others.len(), first.path.display(), first.reason
    )]
    BadImages {
        /// The first of these files.
        first: BadImage,
        /// The other files.
        others: Vec<BadImage>,
    },
    /// The split has no samples.
    #[error("the data has no {0} samples: is it too short?")]
    Empty(Split),
    /// The data is missing, or the problem could not open or read it.
    #[error("{0}")]
    Problem(String),
    /// The content of a file violates its layout.
    #[error("{path}: {reason}")]
    Corrupt {
        /// The file.
        path: PathBuf,
        /// The description of the error.
        reason: String,
    },
}

impl DataError {
    /// Converts an error from reading a file or folder, for `map_err`.
    pub fn io(path: impl Into<PathBuf>) -> impl FnOnce(std::io::Error) -> Self {
        let path = path.into();
        move |cause| Self::Io { path, cause }
    }

    /// Converts an error from writing to the cache, for `map_err`.
    pub fn cache(path: impl Into<PathBuf>) -> impl FnOnce(std::io::Error) -> Self {
        let path = path.into();
        let fix = "set ATA_CACHE_DIR to use another folder for unpacked and downloaded data";
        move |cause| Self::Disk(format!("{}: {cause}; {fix}", path.display()))
    }

    /// Converts an error from writing packed images, for `map_err`.
    pub fn write(path: impl Into<PathBuf>) -> impl FnOnce(std::io::Error) -> Self {
        let path = path.into();
        move |cause| Self::Disk(format!("cannot write {}: {cause}", path.display()))
    }

    /// Returns the error for a file that violates its layout.
    pub fn corrupt(path: impl Into<PathBuf>, reason: impl Into<String>) -> Self {
        Self::Corrupt { path: path.into(), reason: reason.into() }
    }
}
