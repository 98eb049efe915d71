//! Where samples come from, and which of them a task gets. The images are the user's own, which were packed, CIFAR-100's, or a
//! synthetic stand-in of the same shape.
//!
//! # Layout
//! - here: [`DataSource`], what a split is read from, and [`DataError`]
//! - `images`: [`Images`], one split of any kind; `info`: what its images are; `augmentation`: how tasks change them
//! - `sampling`: [`TaskSampler`], which samples a task gets; `permutation`, `windows`: their order
//! - `packed`, `packed_writer`, `header`: ata's own layout; `shard_index`, `shard_file`, `sharded`: the same in shards
//! - `pack`: what is packed: `folder` of images, `tars`, `cifar10`
//! - `cifar`, `archive`, `synthetic`: CIFAR-100's layout, its archive, and generated images in its shape
//! - `file`: what is sent to workers; `cache`: the folder for downloaded and unpacked data

mod archive;
mod augmentation;
mod cache;
mod cifar;
mod cifar10;
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
mod shard_file;
mod shard_index;
mod sharded;
mod synthetic;
mod tars;
mod windows;

pub use archive::extract_archive;
pub use augmentation::{Augmentation, Mixing, Placement};
pub use cache::default_cache_dir;
pub use cifar::{CLASS_NAMES, RecordFile, find_split};
pub use file::{DataFile, FileState, hex, sha256_of_file};
pub use images::Images;
pub use info::{Channels, ImageInfo, LabelledImage};
pub use pack::{BadImage, DEFAULT_SIZE, PackProgress, Packing, Unpacked};
pub use packed::{MAX_CLASSES, MAX_SIZE, PackedFile, is_size};
pub use packed_writer::PackedWriter;
pub use sampling::{TaskSample, TaskSampler, Tasks};
pub use shard_file::{ImageChecksummer, ImageChecksums, ShardFile};
pub use shard_index::{Shard, ShardIndex};
pub use sharded::{ShardStore, ShardedFile};
pub use synthetic::Synthetic;

use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Fine labels of CIFAR-100.
pub const CLASSES: usize = 100;
/// Coarse labels of CIFAR-100.
const COARSE_CLASSES: u8 = 20;
/// Bytes of an image: a red, a green and a blue plane, each 32 × 32, row-major.
pub const IMAGE_BYTES: usize = 3 * 32 * 32;
/// A record of the official binary layout: coarse label, fine label, pixels.
pub const RECORD_BYTES: usize = 2 + IMAGE_BYTES;

/// Mean and standard deviation of each channel of the CIFAR-100 training images, on a scale of 0 to 1.
pub const CHANNELS: Channels = [(0.5071, 0.2673), (0.4865, 0.2564), (0.4409, 0.2762)];

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

impl fmt::Display for Split {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(if *self == Self::Train { "training" } else { "test" })
    }
}

impl Split {
    /// The name of its file in the official archive of CIFAR-100.
    pub fn file_name(self) -> &'static str {
        match self {
            Self::Train => "train.bin",
            Self::Test => "test.bin",
        }
    }

    /// The name of the index of its shards.
    pub fn shards_name(self) -> &'static str {
        match self {
            Self::Train => "train.shards",
            Self::Test => "test.shards",
        }
    }

    /// The name of its file in ata's own layout.
    pub fn packed_name(self) -> &'static str {
        match self {
            Self::Train => "train.packed",
            Self::Test => "test.packed",
        }
    }
}

/// Where the samples of a split come from.
#[derive(Clone, Debug)]
pub enum DataSource {
    /// Generated from a seed.
    Generated {
        /// The seed.
        seed: u64,
    },
    /// Read from a file.
    File(PathBuf),
    /// Read from the shards that an index lists, which are obtained when they are needed.
    Shards {
        /// The index.
        index: PathBuf,
        /// Where the shards come from.
        store: Arc<dyn ShardStore>,
    },
}

impl DataSource {
    /// The file, for a problem that has no generated data; `expected` describes what `--data` takes, as in "a text file".
    pub fn file(&self, expected: &'static str) -> Result<&Path, DataError> {
        match self {
            Self::File(path) | Self::Shards { index: path, .. } => Ok(path),
            Self::Generated { .. } => Err(DataError::NotGenerated { expected }),
        }
    }
}

/// Why a data set cannot be used.
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
    /// There is nothing at the path that the user named.
    #[error("{path}: {cause}. Expected {expected}")]
    NotFound {
        /// The path.
        path: PathBuf,
        /// What the system says.
        cause: std::io::Error,
        /// What `--data` takes.
        expected: &'static str,
    },
    /// The problem has no generated data.
    #[error("there is no synthetic data for this model: --data takes {expected}")]
    NotGenerated {
        /// What `--data` takes.
        expected: &'static str,
    },
    /// The cache cannot be written.
    #[error("{path}: {cause}; set ATA_CACHE_DIR to use another folder for unpacked and downloaded data")]
    Cache {
        /// The file or folder.
        path: PathBuf,
        /// What the system says.
        cause: std::io::Error,
    },
    /// Packed images cannot be written.
    #[error("cannot write {path}: {cause}")]
    Write {
        /// The file or folder.
        path: PathBuf,
        /// What the system says.
        cause: std::io::Error,
    },
    /// Images that are to be packed cannot be read.
    #[error(
        "{} of the files cannot be read as images, such as {}: {}. Remove or replace them, or let `ata data pack DIR OUT --skip-bad` \
         leave them out",
        1 + others.len(), first.path.display(), first.reason
    )]
    BadImages {
        /// One of them.
        first: BadImage,
        /// The others.
        others: Vec<BadImage>,
    },
    /// The folder has no such split.
    #[error(
        "{folder} holds no {file}: expected the CIFAR-100 binary version (train.bin and test.bin, as in \
         cifar-100-binary.tar.gz), packed images (train.packed and test.packed), or images to pack with `ata data pack` \
         (train/CLASS/*.png and test/CLASS/*.png)"
    )]
    Missing {
        /// The folder.
        folder: PathBuf,
        /// The file.
        file: &'static str,
    },
    /// It has no samples.
    #[error("the data has no {split} samples: is it too short?")]
    Empty {
        /// The split.
        split: Split,
    },
    /// The problem that opens or reads it failed.
    #[error("{0}")]
    Problem(String),
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
    /// For `map_err` after reading a file or folder.
    pub fn io(path: impl Into<PathBuf>) -> impl FnOnce(std::io::Error) -> Self {
        let path = path.into();
        move |cause| Self::Io { path, cause }
    }

    /// For `map_err` after writing to the cache.
    pub fn cache(path: impl Into<PathBuf>) -> impl FnOnce(std::io::Error) -> Self {
        let path = path.into();
        move |cause| Self::Cache { path, cause }
    }

    /// For `map_err` after writing packed images.
    pub fn write(path: impl Into<PathBuf>) -> impl FnOnce(std::io::Error) -> Self {
        let path = path.into();
        move |cause| Self::Write { path, cause }
    }

    /// A file that violates its layout, and how.
    pub fn corrupt(path: impl Into<PathBuf>, reason: impl Into<String>) -> Self {
        Self::Corrupt { path: path.into(), reason: reason.into() }
    }
}
