//! Locks that let only one process write to a folder at a time.

use std::fs::{File, TryLockError};
use std::io::{self, Read, Seek, Write};
use std::path::{Path, PathBuf};

/// The name of the lock file in a run's folder. It is never removed: otherwise one process could hold the lock of the removed file
/// and another one the lock of its replacement.
pub const RUN_LOCK: &str = "run.lock";

/// The name of the lock file in a folder of checkpoints, which may be the run's own folder.
pub const CHECKPOINTS_LOCK: &str = "checkpoints.lock";

/// The longest description of a holder that is read, in bytes.
const MAX_HOLDER_BYTES: u64 = 1024;

/// The exclusive right to write to a folder. It ends when this value is dropped, or with the process.
#[derive(Debug)]
pub struct FolderLock {
    _file: File,
}

/// The reason why a folder cannot be locked.
#[derive(Debug, thiserror::Error)]
pub enum LockError {
    /// Another process, which describes itself, writes to the folder.
    #[error("{0} is in use by {1}")]
    Held(PathBuf, String),
    /// The file system does not support locks.
    #[error("{0} is on a file system that does not lock files: {1}")]
    Unsupported(PathBuf, io::Error),
    /// The lock file cannot be written.
    #[error("cannot lock {0}: {1}")]
    Io(PathBuf, io::Error),
}

impl FolderLock {
    /// Takes the lock `file` of an existing folder. Other processes then see `holder` as its holder.
    pub fn take(folder: &Path, file: &str, holder: &str) -> Result<Self, LockError> {
        let failed = |cause| LockError::Io(folder.into(), cause);
        let options = File::options().read(true).write(true).create(true).truncate(false).open(folder.join(file));
        let mut file = options.map_err(failed)?;
        match file.try_lock() {
            Ok(()) => {}
            Err(TryLockError::WouldBlock) => {
                let mut text = Vec::new();
                // If the locked file cannot be read, the holder remains unknown.
                drop(file.take(MAX_HOLDER_BYTES).read_to_end(&mut text));
                let text = String::from_utf8_lossy(&text).trim().to_owned();
                let holder = if text.is_empty() { "another process".into() } else { text };
                return Err(LockError::Held(folder.into(), holder));
            }
            Err(TryLockError::Error(cause)) => return Err(LockError::Unsupported(folder.into(), cause)),
        }
        let named = file.set_len(0).and_then(|()| file.rewind()).and_then(|()| writeln!(file, "{holder}"));
        named.map_err(failed)?;
        Ok(Self { _file: file })
    }
}

/// Returns whether a folder was locked by a process that no longer exists.
pub fn is_abandoned(folder: &Path, file: &str) -> bool {
    // If files cannot be locked, this cannot be known.
    File::open(folder.join(file)).is_ok_and(|file| file.try_lock_shared().is_ok())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_second_learns_of_the_first_and_may_follow_it() {
        let folder = tempfile::tempdir().unwrap();
        let take = |name: &str| FolderLock::take(folder.path(), RUN_LOCK, name);
        assert!(!is_abandoned(folder.path(), RUN_LOCK), "it was never locked");
        let first = take("process 1 of a long name").unwrap();
        assert!(!is_abandoned(folder.path(), RUN_LOCK));
        let _other = FolderLock::take(folder.path(), CHECKPOINTS_LOCK, "process 1").unwrap();
        let holder = |second: Result<FolderLock, LockError>| match second.unwrap_err() {
            LockError::Held(_, holder) => holder,
            error => panic!("{error}"),
        };
        // On Windows, other processes cannot read a locked file.
        let named = |name: &'static str| if cfg!(windows) { "another process" } else { name };
        assert_eq!(holder(take("process 2")), named("process 1 of a long name"));
        drop(first);
        assert!(is_abandoned(folder.path(), RUN_LOCK));
        let _second = take("process 2").unwrap();
        assert_eq!(holder(take("process 3")), named("process 2"));
        let nowhere = FolderLock::take(&folder.path().join("none"), RUN_LOCK, "x");
        assert!(nowhere.is_err_and(|error| matches!(error, LockError::Io(..))));
    }
}
