//! Exclusive rights to runs.

use std::path::Path;

use ata_record::{CHECKPOINTS_LOCK, FolderLock, LockError, RUN_LOCK, create_folder};

use super::place;
use crate::failure::Failure;

/// The exclusive right to write to a run's folder and to the folder of its checkpoints. It ends with the process, even if the process is
/// killed. A folder has no lock if its file system does not support locks.
pub(crate) struct Hold {
    _locks: Vec<FolderLock>,
}

impl Hold {
    /// Locks the folder of a run, which is created if it is missing, and the place that the setting `checkpoint` names.
    pub(crate) fn take(run: &Path, checkpoint: Option<&str>) -> Result<Self, Failure> {
        let own = lock(run, RUN_LOCK)?;
        let checkpoints = place::folder(checkpoint, run).map(|folder| lock(&folder, CHECKPOINTS_LOCK)).transpose()?;
        Ok(Self { _locks: own.into_iter().chain(checkpoints.flatten()).collect() })
    }
}

/// Locks a folder; `None` if its file system does not support locks.
fn lock(folder: &Path, file: &str) -> Result<Option<FolderLock>, Failure> {
    create_folder(folder).map_err(|cause| Failure::disk(format!("cannot create {}: {cause}", folder.display())))?;
    let host = hostname::get().unwrap_or_default();
    let holder = format!("process {} on {}", std::process::id(), host.to_string_lossy());
    match FolderLock::take(folder, file, &holder) {
        Ok(lock) => Ok(Some(lock)),
        Err(error @ LockError::Unsupported { .. }) => {
            tracing::warn!("{error}; make sure that no other coordinator writes there");
            Ok(None)
        }
        Err(error @ LockError::Held { .. }) => {
            Err(Failure::disk(format!("{error}: stop it first, or choose another folder")))
        }
        Err(error @ LockError::Io { .. }) => Err(Failure::disk(error)),
    }
}
