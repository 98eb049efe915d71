//! What the targets share: files with the input, for readers that read files.

use std::path::{Path, PathBuf};

use tempfile::TempDir;

/// A folder that is removed at the end.
pub struct Folder(TempDir);

impl Default for Folder {
    fn default() -> Self {
        Self(TempDir::new().expect("a folder can be made"))
    }
}

impl Folder {
    /// Where it is.
    pub fn path(&self) -> &Path {
        self.0.path()
    }

    /// Writes a file, and returns where it is.
    pub fn file(&self, name: &str, content: &[u8]) -> PathBuf {
        let path = self.path().join(name);
        std::fs::write(&path, content).expect("a file can be written");
        path
    }
}
