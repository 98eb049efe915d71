//! The shards that a worker has: fetched when they are needed, checked, and kept as long as there is room.

use std::cmp::Reverse;
use std::collections::HashSet;
use std::fs::File;
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError, mpsc};
use std::time::SystemTime;

use ata_learn::{DataError, Shard, ShardStore, Split, hex, sha256_of_file};
use ata_objects::Objects;
use sha2::{Digest, Sha256};
use tempfile::NamedTempFile;
use tokio::runtime::Handle;
use tokio::task::AbortHandle;

use crate::download::{DataLink, UNFINISHED, unfinished};
use crate::error::SessionError;

/// Fetches shards into a folder, which other processes of the machine may share.
#[derive(Debug)]
pub struct ShardCache {
    shared: Arc<Shared>,
    runtime: Handle,
    /// The task that fetches what is needed next.
    ahead: Mutex<Option<AbortHandle>>,
}

#[derive(Debug)]
struct Shared {
    origin: Origin,
    folder: PathBuf,
    /// Bytes that the folder may hold, apart from what is needed next.
    most_bytes: u64,
    /// The digests of files that this process has checked.
    checked: Mutex<HashSet<[u8; 32]>>,
    /// The digests of shards that are needed next.
    expected: Mutex<HashSet<[u8; 32]>>,
}

/// Where shards come from.
#[derive(Debug)]
enum Origin {
    Coordinator(DataLink),
    /// The packed file of a split in an object store.
    Objects(Arc<Objects>, Split),
}

impl ShardCache {
    /// What comes from the coordinator, in the folder for fetched data.
    pub(crate) fn of_coordinator(link: DataLink, runtime: Handle, cache: &Path, most_bytes: u64) -> Self {
        Self::new(Origin::Coordinator(link), runtime, cache, most_bytes)
    }

    /// What comes from the packed file of a split in an object store, in the folder for fetched data.
    pub fn of_objects(objects: Arc<Objects>, split: Split, cache: &Path, most_bytes: u64) -> Self {
        let runtime = objects.runtime().clone();
        Self::new(Origin::Objects(objects, split), runtime, cache, most_bytes)
    }

    fn new(origin: Origin, runtime: Handle, cache: &Path, most_bytes: u64) -> Self {
        let (checked, expected) = (Mutex::default(), Mutex::default());
        let shared = Arc::new(Shared { origin, folder: cache.join("shards"), most_bytes, checked, expected });
        Self { shared, runtime, ahead: Mutex::default() }
    }
}

impl Drop for ShardCache {
    fn drop(&mut self) {
        if let Some(ahead) = lock(&self.ahead).take() {
            ahead.abort();
        }
    }
}

impl ShardStore for ShardCache {
    /// Called by threads that compute, which are not those of the runtime.
    fn open(&self, shard: &Shard) -> Result<File, DataError> {
        let (answer, answered) = mpsc::sync_channel(1);
        let (shared, shard) = (self.shared.clone(), *shard);
        // The answer is always waited for.
        self.runtime.spawn(async move { drop(answer.send(shared.obtain(shard).await)) });
        answered.recv().unwrap_or_else(|_| Err(DataError::Problem("the worker is ending".into())))
    }

    fn expect(&self, shards: &[Shard]) {
        *lock(&self.shared.expected) = shards.iter().map(|shard| shard.sha256).collect();
        let (shared, shards) = (self.shared.clone(), shards.to_vec());
        let task = self.runtime.spawn(async move {
            for shard in shards {
                if let Err(error) = shared.obtain(shard).await {
                    // A task that needs the shard tries again, and fails with the reason.
                    return tracing::debug!("{error}");
                }
            }
        });
        if let Some(before) = lock(&self.ahead).replace(task.abort_handle()) {
            before.abort();
        }
    }
}

impl Origin {
    /// Fetches a shard into a temporary file in `folder`, and checks it. The error says why that failed.
    async fn download(&self, folder: &Path, shard: Shard) -> Result<NamedTempFile, String> {
        match self {
            Self::Coordinator(link) => {
                link.download(folder, shard.sha256, shard.bytes).await.map_err(SessionError::into_text)
            }
            Self::Objects(objects, split) => {
                let name = split.packed_name();
                let read = read_object(objects, name, folder, shard).await;
                read.map_err(|cause| format!("{}/{name}: {cause}", objects.url()))
            }
        }
    }
}

async fn read_object(objects: &Objects, name: &str, folder: &Path, shard: Shard) -> io::Result<NamedTempFile> {
    let (mut file, mut digest) = (unfinished(folder)?, Sha256::new());
    let range = shard.offset..shard.offset + shard.bytes;
    let read = objects.read(name, range, |piece| {
        digest.update(&piece);
        file.write_all(&piece)
    });
    read.await?;
    if digest.finalize()[..] != shard.sha256 {
        return Err(io::Error::other("its SHA-256 is not that in the index: have the images been packed again since?"));
    }
    Ok(file)
}

impl Shared {
    /// Opens a shard, which is fetched if it is not here.
    async fn obtain(self: &Arc<Self>, shard: Shard) -> Result<File, DataError> {
        let path = self.folder.join(hex(&shard.sha256));
        // Held until the file is open, so that no process fetches it a second time, or removes it.
        let folder = self.blocking(Self::lock).await?;
        let cached = path.clone();
        let is_here = self.blocking(move |shared| shared.is_here(&cached, &shard)).await?;
        if !is_here {
            tracing::debug!(shard = shard.number, megabytes = shard.bytes / 1_000_000, "fetching a shard");
            let fetched = self.origin.download(&self.folder, shard).await.map_err(|reason| {
                let reason = format!("shard {} cannot be fetched: {reason}", shard.number);
                DataError::io(&path)(io::Error::other(reason))
            })?;
            fetched.persist(&path).map_err(|error| DataError::cache(&path)(error.error))?;
            lock(&self.checked).insert(shard.sha256);
        }
        self.blocking(move |shared| {
            let file = File::options().read(true).write(true).open(&path).map_err(DataError::io(&path))?;
            file.set_modified(now()).map_err(DataError::io(&path))?;
            if !is_here {
                shared.make_room()?;
            }
            drop(folder);
            Ok(file)
        })
        .await
    }

    /// Waits until no other process fetches or removes shards; the lock is released with the file.
    fn lock(&self) -> Result<File, DataError> {
        std::fs::create_dir_all(&self.folder).map_err(DataError::cache(&self.folder))?;
        let path = self.folder.join("lock");
        let locked = File::create(&path).and_then(|file| file.lock().map(|()| file));
        locked.map_err(DataError::cache(path))
    }

    /// Whether a shard is here, and whole.
    fn is_here(&self, path: &Path, shard: &Shard) -> Result<bool, DataError> {
        if !path.metadata().is_ok_and(|found| found.len() == shard.bytes) {
            return Ok(false);
        }
        if lock(&self.checked).contains(&shard.sha256) {
            return Ok(true);
        }
        if sha256_of_file(path)? != shard.sha256 {
            tracing::warn!(path = %path.display(), "a cached shard is damaged; fetching it again");
            return Ok(false);
        }
        lock(&self.checked).insert(shard.sha256);
        Ok(true)
    }

    /// Removes the shards that were used the longest time ago, until the others have room, and what is left of downloads
    /// whose process was killed: nobody else downloads while the folder is locked.
    fn make_room(&self) -> Result<(), DataError> {
        let expected = lock(&self.expected).clone();
        let names: HashSet<String> = expected.iter().map(hex).collect();
        let mut shards = Vec::new();
        for entry in std::fs::read_dir(&self.folder).map_err(DataError::cache(&self.folder))? {
            let entry = entry.map_err(DataError::cache(&self.folder))?;
            let name = entry.file_name().to_string_lossy().into_owned();
            if name.starts_with(UNFINISHED) {
                std::fs::remove_file(entry.path()).map_err(DataError::cache(entry.path()))?;
            } else if let (64, Ok(found)) = (name.len(), entry.metadata()) {
                let used = found.modified().unwrap_or(SystemTime::UNIX_EPOCH);
                shards.push((names.contains(&name), used, found.len(), entry.path()));
            }
        }
        // The oldest last, and those that are needed next first.
        shards.sort_by_key(|(is_expected, used, ..)| Reverse((*is_expected, *used)));
        let mut total = 0_u64;
        for (is_expected, _, bytes, path) in shards {
            total = total.saturating_add(bytes);
            if total > self.most_bytes && !is_expected {
                // A process that has it open goes on reading it.
                std::fs::remove_file(&path).map_err(DataError::cache(&path))?;
            }
        }
        Ok(())
    }

    /// Runs work that may wait for the disk.
    async fn blocking<T: Send + 'static>(
        self: &Arc<Self>,
        work: impl FnOnce(&Self) -> Result<T, DataError> + Send + 'static,
    ) -> Result<T, DataError> {
        let shared = self.clone();
        let done = tokio::task::spawn_blocking(move || work(&shared)).await;
        done.unwrap_or_else(|error| Err(DataError::Problem(error.to_string())))
    }
}

fn lock<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The time of a file's last use. If the clock is set back, a shard may be removed too early, and is fetched again.
#[expect(clippy::disallowed_methods, reason = "processes that come and go have no other clock in common")]
fn now() -> SystemTime {
    SystemTime::now()
}
