//! Files that may be replaced while the program runs.

use std::fs::Metadata;
use std::path::PathBuf;
use std::sync::Arc;
use std::thread;
use std::time::{Duration, SystemTime};

use tokio::sync::watch;

use super::SecurityError;

/// The time between two checks of the files, which take microseconds. A replaced secret takes effect before a user could type it elsewhere.
const CHECK_INTERVAL: Duration = Duration::from_millis(500);

/// The content of files, read again when one is replaced. A separate thread checks them, since a file system may take any time.
pub(crate) struct Reloaded<T>(watch::Receiver<Arc<T>>);

/// The version of a file. A replaced file has another number (the inode on Unix) or, if that was reused, another time.
type Stamp = Option<(SystemTime, u64)>;

impl<T: Send + Sync + 'static> Reloaded<T> {
    pub(crate) fn new(
        files: Vec<PathBuf>,
        read: impl Fn() -> Result<T, SecurityError> + Send + 'static,
    ) -> Result<Self, SecurityError> {
        let read_stamps = stamps(&files);
        let (current, watched) = watch::channel(Arc::new(read()?));
        thread::Builder::new()
            .name("credentials".into())
            .spawn(move || check(&files, read_stamps, read, &current))
            .map_err(SecurityError::Thread)?;
        Ok(Self(watched))
    }

    /// Returns the content at the last check or, if that was not valid, the content before.
    pub(crate) fn current(&self) -> Arc<T> {
        self.0.borrow().clone()
    }
}

/// Checks the files for as long as their content is used.
fn check<T>(
    files: &[PathBuf],
    mut known: Vec<Stamp>,
    read: impl Fn() -> Result<T, SecurityError>,
    current: &watch::Sender<Arc<T>>,
) {
    // The last failure, which is not logged again at every check.
    let mut failure = None;
    while !current.is_closed() {
        thread::sleep(CHECK_INTERVAL);
        let stamps = stamps(files);
        if stamps == known {
            failure = None;
            continue;
        }
        match read() {
            Ok(new) => {
                tracing::info!(?files, "read again");
                current.send_replace(Arc::new(new));
                (known, failure) = (stamps, None);
            }
            Err(error) => {
                let error = error.to_string();
                if failure.as_ref() != Some(&error) {
                    tracing::warn!("{error}; the previous content stays in use");
                    failure = Some(error);
                }
            }
        }
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

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::{AtomicUsize, Ordering};
    use std::sync::{Mutex, mpsc};
    use std::time::Instant;

    /// A timeout that no check exceeds.
    const DEADLINE: Duration = Duration::from_secs(30);

    /// Returns a folder, its file with the content "old", and a function that replaces it by "new".
    fn files() -> (tempfile::TempDir, PathBuf, impl FnOnce()) {
        let folder = tempfile::tempdir().unwrap();
        let (file, replacement) = (folder.path().join("secret"), folder.path().join("new"));
        std::fs::write(&file, "old").unwrap();
        let replaced = file.clone();
        let replace = move || {
            std::fs::write(&replacement, "new").unwrap();
            std::fs::rename(replacement, replaced).unwrap();
        };
        (folder, file, replace)
    }

    fn wait_until_new(current: impl Fn() -> Arc<String>) {
        let asked = Instant::now();
        while *current() != "new" {
            assert!(asked.elapsed() < DEADLINE, "what was read does not count");
            thread::sleep(Duration::from_millis(5));
        }
    }

    /// The content is available even if the file system does not answer.
    #[test]
    fn nobody_waits_for_the_files() {
        let (_folder, file, replace) = files();
        let ((reading, begun), (go_on, gate)) = (mpsc::channel(), mpsc::channel::<()>());
        let (path, gate) = (file.clone(), Mutex::new(gate));
        let read = move || {
            let text = std::fs::read_to_string(&path).map_err(|cause| SecurityError::file(&path, &cause))?;
            reading.send(()).unwrap();
            if text == "new" {
                gate.lock().unwrap().recv().unwrap();
            }
            Ok(text)
        };
        let reloaded = Arc::new(Reloaded::new(vec![file], read).unwrap());
        let ask = || {
            let (reloaded, (answer, answered)) = (reloaded.clone(), mpsc::channel());
            thread::spawn(move || drop(answer.send(reloaded.current())));
            answered.recv_timeout(DEADLINE).expect("an answer")
        };
        begun.recv().unwrap();
        replace();
        assert_eq!(*ask(), "old");
        begun.recv_timeout(DEADLINE).expect("the new file is being read");
        assert_eq!(*ask(), "old");
        go_on.send(()).unwrap();
        wait_until_new(ask);
    }

    /// A file that could not be read because its disk was briefly unavailable is read later.
    #[test]
    fn what_could_not_be_read_once_is_read_again() {
        let (_folder, file, replace) = files();
        let (path, tries) = (file.clone(), AtomicUsize::new(0));
        let read = move || {
            if (1..3).contains(&tries.fetch_add(1, Ordering::Relaxed)) {
                return Err(SecurityError::file(&path, &std::io::ErrorKind::ResourceBusy));
            }
            std::fs::read_to_string(&path).map_err(|cause| SecurityError::file(&path, &cause))
        };
        let reloaded = Reloaded::new(vec![file], read).unwrap();
        replace();
        wait_until_new(|| reloaded.current());
    }
}
