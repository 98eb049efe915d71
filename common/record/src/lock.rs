//! One writer at a time for a folder.

use std::fs::{File, TryLockError};
use std::io::{self, Read, Seek, Write};
use std::path::{Path, PathBuf};

/// The file in a run's folder that is locked. It is never removed: otherwise one process could hold the lock of the removed file,
/// and another that of the file in its place.
pub const RUN_LOCK: &str = "run.lock";

/// The same in a folder of checkpoints, which may be the run's own.
pub const CHECKPOINTS_LOCK: &str = "checkpoints.lock";

/// More than any holder says of itself.
const MAX_HOLDER_BYTES: u64 = 1024;

/// The exclusive right to write in a folder. It ends with this value or, however it ends, with the process.
#[derive(Debug)]
pub struct FolderLock {
    _file: File,
}

/// Why a folder cannot be locked.
#[derive(Debug, thiserror::Error)]
pub enum LockError {
    /// Somebody else writes in it.
    #[error("{folder} is in use by {holder}")]
    Held {
        /// The folder.
        folder: PathBuf,
        /// What the holder said of itself.
        holder: String,
    },
    /// Its file system knows no locks.
    #[error("{folder} is on a file system that does not lock files: {cause}")]
    Unsupported {
        /// The folder.
        folder: PathBuf,
        /// What the system says.
        cause: io::Error,
    },
    /// Its lock cannot be written.
    #[error("cannot lock {folder}: {cause}")]
    Io {
        /// The folder.
        folder: PathBuf,
        /// What the system says.
        cause: io::Error,
    },
}

impl FolderLock {
    /// Locks this file of an existing folder; `holder` says who does, to those who come later.
    pub fn take(folder: &Path, file: &str, holder: &str) -> Result<Self, LockError> {
        let failed = |cause| LockError::Io { folder: folder.into(), cause };
        let options = File::options().read(true).write(true).create(true).truncate(false).open(folder.join(file));
        let mut file = options.map_err(failed)?;
        match file.try_lock() {
            Ok(()) => {}
            Err(TryLockError::WouldBlock) => {
                let mut text = Vec::new();
                // Where a locked file cannot be read, the holder stays unnamed.
                drop(file.take(MAX_HOLDER_BYTES).read_to_end(&mut text));
                let text = String::from_utf8_lossy(&text).trim().to_owned();
                let holder = if text.is_empty() { "another process".into() } else { text };
                return Err(LockError::Held { folder: folder.into(), holder });
            }
            Err(TryLockError::Error(cause)) => return Err(LockError::Unsupported { folder: folder.into(), cause }),
        }
        let named = file.set_len(0).and_then(|()| file.rewind()).and_then(|()| writeln!(file, "{holder}"));
        named.map_err(failed)?;
        Ok(Self { _file: file })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_second_is_told_of_the_first_and_may_come_after_it() {
        let folder = tempfile::tempdir().unwrap();
        let take = |name: &str| FolderLock::take(folder.path(), RUN_LOCK, name);
        let first = take("process 1 of a long name").unwrap();
        let _other = FolderLock::take(folder.path(), CHECKPOINTS_LOCK, "process 1").unwrap();
        let holder = |second: Result<FolderLock, LockError>| match second.unwrap_err() {
            LockError::Held { holder, .. } => holder,
            error => panic!("{error}"),
        };
        // Windows lets nobody else read what is locked.
        let named = |name: &'static str| if cfg!(windows) { "another process" } else { name };
        assert_eq!(holder(take("process 2")), named("process 1 of a long name"));
        drop(first);
        let _second = take("process 2").unwrap();
        assert_eq!(holder(take("process 3")), named("process 2"));
        let nowhere = FolderLock::take(&folder.path().join("none"), RUN_LOCK, "x");
        assert!(nowhere.is_err_and(|error| matches!(error, LockError::Io { .. })));
    }
}
