//! Files that may be replaced while the program runs.

use std::fs::Metadata;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::SystemTime;

use super::SecurityError;

/// What some files say, read again when one of them was replaced.
pub(crate) struct Reloaded<T> {
    files: Vec<PathBuf>,
    read: Box<dyn Fn() -> Result<T, SecurityError> + Send + Sync>,
    current: Mutex<(Vec<Stamp>, Arc<T>)>,
}

/// Tells versions of a file apart: one that was put in its place has another number or, if that was reused, another time.
type Stamp = Option<(SystemTime, u64)>;

impl<T> Reloaded<T> {
    /// Reads the files for the first time.
    pub(crate) fn new(
        files: Vec<PathBuf>,
        read: impl Fn() -> Result<T, SecurityError> + Send + Sync + 'static,
    ) -> Result<Self, SecurityError> {
        let current = Mutex::new((stamps(&files), Arc::new(read()?)));
        Ok(Self { files, read: Box::new(read), current })
    }

    /// What the files say now or, if that makes no sense, what they said before.
    pub(crate) fn current(&self) -> Arc<T> {
        let mut current = self.current.lock().unwrap_or_else(PoisonError::into_inner);
        let stamps = stamps(&self.files);
        if stamps != current.0 {
            current.0 = stamps;
            match (self.read)() {
                Ok(new) => {
                    tracing::info!(files = ?self.files, "read again");
                    current.1 = Arc::new(new);
                }
                Err(error) => tracing::warn!("{error}; what was there before stays in use"),
            }
        }
        current.1.clone()
    }
}

fn stamps(files: &[PathBuf]) -> Vec<Stamp> {
    let stamp = |metadata: Metadata| Some((metadata.modified().ok()?, number(&metadata)));
    files.iter().map(|file| file.metadata().ok().and_then(stamp)).collect()
}

#[cfg(unix)]
fn number(metadata: &Metadata) -> u64 {
    std::os::unix::fs::MetadataExt::ino(metadata)
}

#[cfg(not(unix))]
fn number(metadata: &Metadata) -> u64 {
    metadata.len()
}
