//! The folder for downloaded and unpacked data.

use std::path::PathBuf;

/// Returns `$ATA_CACHE_DIR`, or else `ata` in the user's cache folder, or `ata-cache` in the temporary folder.
pub fn default_cache_dir() -> PathBuf {
    let variable = |name| std::env::var_os(name).filter(|value| !value.is_empty()).map(PathBuf::from);
    variable("ATA_CACHE_DIR")
        .or_else(|| variable("XDG_CACHE_HOME").map(|dir| dir.join("ata")))
        .or_else(|| variable("HOME").map(|dir| dir.join(".cache/ata")))
        .unwrap_or_else(|| std::env::temp_dir().join("ata-cache"))
}
