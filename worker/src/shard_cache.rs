//! A cache of shards, which are fetched when they are needed, checked, and kept as long as there is room.

use std::cmp::Reverse;
use std::collections::{HashMap, HashSet};
use std::fs::File;
use std::io::{self, Read, Write};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, mpsc};
use std::time::{Duration, Instant, SystemTime};

use ata_data::{DataError, ImageChecksummer, ImageChecksums, Shard, ShardFile, ShardStore, Split, hex};
use ata_objects::Objects;
use sha2::{Digest, Sha256};
use tempfile::NamedTempFile;
use tokio::runtime::Handle;
use tokio::task::JoinSet;

use crate::download::{DataLink, UNFINISHED, lock, lock_file, unfinished};

/// The wait for a shard after which a message is logged, since shards arrive more slowly than they are needed.
const NOTABLE_WAIT: Duration = Duration::from_secs(1);

const LOCK: &str = "lock";

/// A cache of shards in a folder, which other processes on the machine may share.
#[derive(Debug)]
pub struct ShardCache {
    shared: Arc<CacheState>,
    runtime: Handle,
    /// The task that fetches the shards that are needed next, which ends when it is dropped.
    ahead: Mutex<JoinSet<()>>,
}

#[derive(Debug)]
struct CacheState {
    origin: Origin,
    folder: PathBuf,
    /// The size in bytes of the shards that the folder may hold, apart from those that are needed next.
    most_bytes: u64,
    /// The checksums of the shards that this process has checked, by digest, among those that are needed next.
    checked: Mutex<HashMap<[u8; 32], ImageChecksums>>,
    expected: Mutex<HashSet<[u8; 32]>>,
}

#[derive(Debug)]
enum Origin {
    Coordinator(DataLink),
    /// The packed file of a split in an object store.
    Objects(Arc<Objects>, Split),
}

impl ShardCache {
    /// Creates a cache of shards from the coordinator, in the folder for fetched data.
    pub(crate) fn of_coordinator(link: DataLink, runtime: Handle, cache: &Path, most_bytes: u64) -> Self {
        Self::new(Origin::Coordinator(link), runtime, cache, most_bytes)
    }

    /// Creates a cache of shards from the packed file of a split in an object store, in the folder for fetched data.
    pub fn of_objects(objects: Arc<Objects>, split: Split, cache: &Path, most_bytes: u64) -> Self {
        let runtime = objects.runtime().clone();
        Self::new(Origin::Objects(objects, split), runtime, cache, most_bytes)
    }

    fn new(origin: Origin, runtime: Handle, cache: &Path, most_bytes: u64) -> Self {
        let (checked, expected) = (Mutex::default(), Mutex::default());
        let shared = Arc::new(CacheState { origin, folder: cache.join("shards"), most_bytes, checked, expected });
        Self { shared, runtime, ahead: Mutex::default() }
    }
}

impl ShardStore for ShardCache {
    /// Opens a shard. This is called by compute threads, which are not threads of the runtime.
    fn open(&self, shard: &Shard) -> Result<ShardFile, DataError> {
        if let Some(file) = self.shared.ready(shard) {
            return Ok(file);
        }
        let began = Instant::now();
        let (answer, answered) = mpsc::sync_channel(1);
        let (shared, shard) = (self.shared.clone(), *shard);
        // The receiver cannot be dropped before the answer arrives.
        self.runtime.spawn(async move { drop(answer.send(shared.obtain(shard).await)) });
        let opened = answered.recv().unwrap_or_else(|_| Err(DataError::Problem("the worker is ending".into())));
        let waited = began.elapsed();
        if waited < NOTABLE_WAIT {
            tracing::debug!(shard = shard.number, seconds = waited.as_secs_f64(), "waited for a shard");
        } else {
            tracing::info!(shard = shard.number, seconds = waited.as_secs_f64(), "waited for a shard");
        }
        opened
    }

    fn recheck(&self, shard: &Shard) {
        lock(&self.shared.checked).remove(&shard.sha256);
    }

    fn expect(&self, shards: &[Shard]) {
        let expected: HashSet<[u8; 32]> = shards.iter().map(|shard| shard.sha256).collect();
        lock(&self.shared.checked).retain(|sha256, _| expected.contains(sha256));
        *lock(&self.shared.expected) = expected;
        let (shared, shards) = (self.shared.clone(), shards.to_vec());
        let fetch = async move {
            for shard in shards {
                if let Err(error) = shared.obtain(shard).await {
                    // The failure is not final: a task that needs the shard tries again, and fails with the reason.
                    return tracing::debug!("{error}");
                }
            }
        };
        let mut ahead = JoinSet::new();
        ahead.spawn_on(fetch, &self.runtime);
        *lock(&self.ahead) = ahead;
    }
}

impl Origin {
    /// Downloads a shard to a temporary file in `folder`, and checks it. An error says why it failed.
    async fn download(&self, folder: &Path, shard: Shard) -> Result<(NamedTempFile, ImageChecksums), String> {
        let mut images = ImageChecksummer::new(&shard);
        let each = |piece: &[u8]| images.add(piece);
        let file = match self {
            Self::Coordinator(link) => {
                link.download(folder, shard.sha256, shard.bytes, each).await.map_err(|error| error.to_string())
            }
            Self::Objects(objects, split) => {
                let name = split.packed_name();
                let read = read_object(objects, name, folder, shard, each).await;
                read.map_err(|cause| format!("{}/{name}: {cause}", objects.url()))
            }
        };
        Ok((file?, images.finish()))
    }
}

async fn read_object(
    objects: &Objects,
    name: &str,
    folder: &Path,
    shard: Shard,
    mut each: impl FnMut(&[u8]) + Send,
) -> io::Result<NamedTempFile> {
    let (mut file, mut digest) = (unfinished(folder)?, Sha256::new());
    let range = shard.offset..shard.offset + shard.bytes;
    let read = objects.read(name, range, |piece| {
        digest.update(&piece);
        each(&piece);
        file.write_all(&piece)
    });
    read.await?;
    if digest.finalize()[..] != shard.sha256 {
        return Err(io::Error::other("its SHA-256 is not that in the index: have the images been packed again since?"));
    }
    Ok(file)
}

impl CacheState {
    /// Opens a shard that was checked and is still in the cache. Does not wait for the lock, which is held while another shard is fetched.
    fn ready(&self, shard: &Shard) -> Option<ShardFile> {
        let checksums = lock(&self.checked).get(&shard.sha256)?.clone();
        open_as_used(&self.folder.join(hex(&shard.sha256))).ok().map(|file| ShardFile::new(file, checksums))
    }

    async fn obtain(self: &Arc<Self>, shard: Shard) -> Result<ShardFile, DataError> {
        let path = self.folder.join(hex(&shard.sha256));
        // The lock is held until the file is open, so that no process fetches the shard a second time, or removes it.
        let folder = self.blocking(|shared| lock_file(&shared.folder, LOCK)).await?;
        let cached = path.clone();
        let found = self.blocking(move |shared| shared.check(&cached, &shard)).await?;
        let is_here = found.is_some();
        let checksums = if let Some(checksums) = found {
            checksums
        } else {
            tracing::debug!(shard = shard.number, megabytes = shard.bytes / 1_000_000, "fetching a shard");
            let fetched = self.origin.download(&self.folder, shard).await;
            let (file, checksums) = fetched.map_err(|reason| {
                let reason = format!("shard {} cannot be fetched: {reason}", shard.number);
                DataError::io(&path)(io::Error::other(reason))
            })?;
            file.persist(&path).map_err(|error| DataError::cache(&path)(error.error))?;
            checksums
        };
        lock(&self.checked).insert(shard.sha256, checksums.clone());
        self.blocking(move |shared| {
            let file = open_as_used(&path).map_err(DataError::io(&path))?;
            if !is_here {
                shared.make_room()?;
            }
            drop(folder);
            Ok(ShardFile::new(file, checksums))
        })
        .await
    }

    /// Returns the checksums of a shard's images, if the shard is in the cache and intact.
    fn check(&self, path: &Path, shard: &Shard) -> Result<Option<ImageChecksums>, DataError> {
        if !path.metadata().is_ok_and(|found| found.len() == shard.bytes) {
            return Ok(None);
        }
        if let Some(checksums) = lock(&self.checked).get(&shard.sha256) {
            return Ok(Some(checksums.clone()));
        }
        let (mut digest, mut images) = (Sha256::new(), ImageChecksummer::new(shard));
        let read = File::open(path).and_then(|mut file| {
            let mut piece = vec![0; 1 << 16];
            loop {
                match file.read(&mut piece)? {
                    0 => return Ok(()),
                    length => {
                        digest.update(&piece[..length]);
                        images.add(&piece[..length]);
                    }
                }
            }
        });
        read.map_err(DataError::io(path))?;
        if digest.finalize()[..] == shard.sha256 {
            return Ok(Some(images.finish()));
        }
        tracing::warn!(path = %path.display(), "a cached shard is damaged; fetching it again");
        Ok(None)
    }

    /// Removes the least recently used shards until the rest fits, and what killed processes left. The folder must be locked.
    fn make_room(&self) -> Result<(), DataError> {
        let expected = lock(&self.expected).clone();
        let names: HashSet<String> = expected.iter().map(|digest| hex(digest)).collect();
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
        // Shards that are needed next come first, and the least recently used last.
        shards.sort_by_key(|(is_expected, used, ..)| Reverse((*is_expected, *used)));
        let mut total = 0_u64;
        for (is_expected, _, bytes, path) in shards {
            total = total.saturating_add(bytes);
            if total > self.most_bytes && !is_expected {
                // Processes that have the file open can continue to read it.
                std::fs::remove_file(&path).map_err(DataError::cache(&path))?;
            }
        }
        Ok(())
    }

    async fn blocking<T: Send + 'static>(
        self: &Arc<Self>,
        work: impl FnOnce(&Self) -> Result<T, DataError> + Send + 'static,
    ) -> Result<T, DataError> {
        let shared = self.clone();
        let done = tokio::task::spawn_blocking(move || work(&shared)).await;
        done.unwrap_or_else(|error| Err(DataError::Problem(error.to_string())))
    }
}

fn open_as_used(path: &Path) -> io::Result<File> {
    let file = File::options().read(true).write(true).open(path)?;
    file.set_modified(now())?;
    Ok(file)
}

/// Returns the time of a use of a file. If the clock is set back, a shard may be removed too early, and is fetched again.
#[expect(clippy::disallowed_methods, reason = "processes that come and go have no other clock in common")]
fn now() -> SystemTime {
    SystemTime::now()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The lock is held while a shard is fetched, which may take a long time.
    #[test]
    fn a_shard_that_is_ready_is_opened_while_others_are_fetched() {
        let (folder, runtime) = (tempfile::tempdir().unwrap(), tokio::runtime::Runtime::new().unwrap());
        let cache = ShardCache::of_coordinator(DataLink::default(), runtime.handle().clone(), folder.path(), u64::MAX);
        let content = b"image1image2";
        let sha256 = Sha256::digest(content).into();
        let shard = Shard { number: 3, offset: 0, bytes: content.len() as u64, image_bytes: 6, sha256 };
        std::fs::create_dir(&cache.shared.folder).unwrap();
        std::fs::write(cache.shared.folder.join(hex(&sha256)), content).unwrap();
        cache.open(&shard).unwrap();
        let lock = lock_file(&cache.shared.folder, LOCK).unwrap();
        cache.open(&shard).unwrap();
        drop(lock);
        cache.recheck(&shard);
        std::fs::write(cache.shared.folder.join(hex(&sha256)), b"image1image3").unwrap();
        let error = cache.open(&shard).unwrap_err().to_string();
        assert!(error.contains("shard 3 cannot be fetched: ") && error.contains("there is no session"), "{error}");
    }
}
