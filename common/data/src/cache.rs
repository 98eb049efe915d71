//! The folder for data that is downloaded, unpacked or packed.

use std::path::{Path, PathBuf};

use tempfile::TempDir;

use crate::{DataError, Split};

/// Returns `$ATA_CACHE_DIR`, or else `ata` in the user's cache folder, or `ata-cache` in the temporary folder.
pub fn default_cache_dir() -> PathBuf {
    let variable = |name| std::env::var_os(name).filter(|value| !value.is_empty()).map(PathBuf::from);
    variable("ATA_CACHE_DIR")
        .or_else(|| variable("XDG_CACHE_HOME").map(|dir| dir.join("ata")))
        .or_else(|| variable("HOME").map(|dir| dir.join(".cache/ata")))
        .unwrap_or_else(|| std::env::temp_dir().join("ata-cache"))
}

/// Returns the folder `target`, which `fill` makes unless both of its splits can be opened by `is_whole`. The folder appears under its
/// name once it is complete.
pub(crate) fn made_once(
    target: PathBuf,
    is_whole: impl Fn(Split) -> bool,
    fill: impl FnOnce(&Path) -> Result<(), DataError>,
) -> Result<PathBuf, DataError> {
    if Split::BOTH.into_iter().all(is_whole) {
        return Ok(target);
    }
    let parent = target.parent().expect("a folder in the cache");
    std::fs::create_dir_all(parent).map_err(DataError::cache(parent))?;
    if target.is_dir() {
        // The folder was damaged after it was made.
        std::fs::remove_dir_all(&target).map_err(DataError::cache(&target))?;
    }
    // This folder is removed again if anything goes wrong.
    let unfinished = TempDir::with_prefix_in("unfinished-", parent).map_err(DataError::cache(parent))?;
    fill(unfinished.path())?;
    match std::fs::rename(unfinished.path(), &target) {
        Ok(()) => Ok(target),
        // Another process was faster, with the same content.
        Err(_) if target.is_dir() => Ok(target),
        Err(cause) => Err(DataError::cache(target)(cause)),
    }
}
