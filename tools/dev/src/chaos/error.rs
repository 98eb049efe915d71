//! Errors that prevent or end a chaos run.

use std::io;
use std::path::PathBuf;

use ata_record::JournalError;

/// Errors that prevent or end a chaos run.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ChaosError {
    /// The folder for the run exists already.
    #[error("--out {}: it exists; expected a new folder", .0.display())]
    FolderExists(PathBuf),
    /// A file of the chaos run itself cannot be written.
    #[error("cannot write {}: {cause}", path.display())]
    Write {
        /// The file or folder.
        path: PathBuf,
        /// The cause.
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
        /// The reason why it was not expected.
        reason: String,
    },
    /// A process cannot be started, signalled or waited for.
    #[error(transparent)]
    Process(#[from] io::Error),
    /// The cluster did not recover as promised.
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
