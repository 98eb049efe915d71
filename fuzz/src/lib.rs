//! Temporary files with the fuzzing input, for targets that read files.

use std::path::{Path, PathBuf};

use tempfile::TempDir;

/// A temporary folder that is removed when dropped.
pub struct Folder(TempDir);

impl Default for Folder {
    fn default() -> Self {
        Self(TempDir::new().expect("a folder can be made"))
    }
}

impl Folder {
    /// The path of the folder.
    pub fn path(&self) -> &Path {
        self.0.path()
    }

    /// Writes a file and returns its path.
    pub fn file(&self, name: &str, content: &[u8]) -> PathBuf {
        let path = self.path().join(name);
        std::fs::create_dir_all(path.parent().expect("it is in the folder")).expect("a folder can be made");
        std::fs::write(&path, content).expect("a file can be written");
        path
    }
}
