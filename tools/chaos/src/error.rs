//! Why a chaos run cannot begin or go on.

use std::io;
use std::path::PathBuf;

use ata_record::JournalError;

/// Why a chaos run cannot begin or go on.
#[derive(Debug, thiserror::Error)]
pub enum ChaosError {
    /// The folder for the run is not new.
    #[error("--out {}: it exists; expected a new folder", .0.display())]
    FolderExists(PathBuf),
    /// A file of the chaos run itself cannot be written.
    #[error("cannot write {}: {cause}", path.display())]
    Write {
        /// The file or folder.
        path: PathBuf,
        /// Why.
        cause: io::Error,
    },
    /// The journal of the disturbed run cannot be read.
    #[error(transparent)]
    Journal(#[from] JournalError),
    /// A file that a process wrote is not what was expected.
    #[error("{}: {reason}", path.display())]
    Output {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        reason: String,
    },
    /// A process cannot be started, signalled or waited for.
    #[error(transparent)]
    Process(#[from] io::Error),
    /// The cluster did not do what it promises.
    #[error("{0}")]
    Broken(String),
}

impl ChaosError {
    pub(crate) fn broken(what: impl Into<String>) -> Self {
        Self::Broken(what.into())
    }
}

impl From<rustix::io::Errno> for ChaosError {
    fn from(error: rustix::io::Errno) -> Self {
        Self::Process(error.into())
    }
}
