//! The place of a run's checkpoints, and the exclusive right to write there and to the run's folder.

use std::path::{Path, PathBuf};

use ata_coordinator::{FolderStore, Store, open_store};
use ata_objects::is_url;
use ata_record::{CHECKPOINTS_LOCK, FolderLock, LockError, RUN_LOCK, create_folder};

use crate::failure::Failure;

/// The folder of a run's checkpoints, unless the setting `checkpoint` names another place.
pub(crate) const CHECKPOINTS: &str = "checkpoints";

/// Opens the place that the setting `checkpoint` names, for the run in this folder.
pub(crate) fn open(checkpoint: Option<&str>, run: &Path) -> Result<Box<dyn Store>, Failure> {
    match checkpoint {
        Some(place) => open_store(place).map_err(Failure::usage),
        None => Ok(Box::new(FolderStore::new(run.join(CHECKPOINTS)))),
    }
}

/// Returns the folder of this place; `None` for an object store.
pub(crate) fn folder(checkpoint: Option<&str>, run: &Path) -> Option<PathBuf> {
    match checkpoint {
        Some(place) if is_url(place) => None,
        Some(place) => Some(place.into()),
        None => Some(run.join(CHECKPOINTS)),
    }
}

/// Whether a place holds checkpoints. A place that cannot be read is an error: a new run there could destroy them.
pub(crate) fn has_checkpoints(store: &dyn Store) -> Result<bool, Failure> {
    match store.names() {
        Ok(names) => Ok(!names.is_empty()),
        Err(cause) => {
            let place = store.describe("");
            if is_url(&place) {
                let hint = "check the URL, and the credentials in the environment (AWS_ACCESS_KEY_ID and the like)";
                return Err(Failure::unreachable(format!("cannot list the checkpoints in {place}: {cause}; {hint}")));
            }
            Err(Failure::disk(format!("cannot list the checkpoints in {place}: {cause}")))
        }
    }
}

/// Checks that the place for a new run's checkpoints is empty: the run would delete those of another run.
pub(crate) fn check_empty(checkpoint: Option<&str>, run: &Path) -> Result<(), Failure> {
    let store = open(checkpoint, run)?;
    if has_checkpoints(&*store)? {
        let (place, flag) = match checkpoint {
            Some(place) => (place.to_owned(), "--checkpoint"),
            None => (run.display().to_string(), "--out"),
        };
        return Err(Failure::usage(format!(
            "{place} already holds the checkpoints of a run: --resume auto with the run's --out goes on with it; a new \
             run needs another {flag}"
        )));
    }
    Ok(())
}

/// The exclusive right to write to a run's folder and its checkpoints, until the process ends. A file system may support no locks.
pub(crate) struct Hold {
    _locks: Vec<FolderLock>,
}

impl Hold {
    /// Locks the folder of a run, which is created if it is missing, and the place that the setting `checkpoint` names.
    pub(crate) fn take(run: &Path, checkpoint: Option<&str>) -> Result<Self, Failure> {
        let own = lock(run, RUN_LOCK)?;
        let checkpoints = folder(checkpoint, run).map(|folder| lock(&folder, CHECKPOINTS_LOCK)).transpose()?;
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
