//! Checkpoints in an object store: S3, Google Cloud Storage, Azure, or a file system behind the same interface.
//!
//! An object store has neither folders nor renaming, so a checkpoint exists if and only if its `state.json` does. That file is written last
//! and deleted first.

use std::collections::BTreeSet;
use std::future::Future;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use ata_objects::Objects;
use bytes::Bytes;
use object_store::buffered::BufWriter;
use object_store::path::Path;
use object_store::{ObjectStore as Backend, ObjectStoreExt as _};
use tokio::io::AsyncWriteExt as _;
use tokio_stream::StreamExt as _;

use super::STATE;
use super::store::{LATEST, NAME_PREFIX, Store, latest_name, latest_text};

/// The size of the parts in which larger files are sent. S3 accepts up to 10,000 parts, and at most 5 GB per request.
const PART_BYTES: usize = 16 << 20;

/// The number of parts that are sent at the same time, which is enough to fill a link.
const CONCURRENT_PARTS: usize = 4;

/// Keeps checkpoints as objects `PREFIX/step-NNNNNN/FILE`. The object `PREFIX/latest` names the newest.
///
/// Its methods block until the store responds. They may also be called inside an async runtime.
#[derive(Debug)]
pub(super) struct ObjectStore {
    place: Objects,
    /// The content of [`WRITER`] that identifies this process.
    writer: String,
    has_claimed: AtomicBool,
}

/// The object that names the process that writes checkpoints. An object store has no locks, so the last process to start is the writer, and
/// checkpoints of earlier processes fail from then on.
const WRITER: &str = "writer";

/// The state that requests need, which may outlive the call that makes them.
struct ObjectCheckpoints {
    backend: Arc<dyn Backend>,
    prefix: Path,
}

impl ObjectStore {
    pub(super) fn new(place: Objects) -> Self {
        let writer = format!("process {}, {:08x}", std::process::id(), rand::random::<u32>());
        Self { place, writer, has_claimed: AtomicBool::new(false) }
    }

    /// Claims the right to write, or checks that no other process has claimed it since.
    fn claim(&self) -> io::Result<()> {
        if !self.has_claimed.load(Ordering::Relaxed) {
            return self.put_claim();
        }
        let found = match self.wait(|it| async move { it.backend.get(&it.at(WRITER)).await?.bytes().await }) {
            // The place was cleared, so the first process to notice claims it.
            Err(error) if error.kind() == io::ErrorKind::NotFound => return self.put_claim(),
            found => found?,
        };
        if found == self.writer {
            return Ok(());
        }
        let other = String::from_utf8_lossy(&found[..found.len().min(100)]).into_owned();
        Err(io::Error::other(format!("another coordinator saves there now ({other:?}): stop one of them")))
    }

    fn put_claim(&self) -> io::Result<()> {
        let text = self.writer.clone();
        self.wait(|it| async move { it.backend.put(&it.at(WRITER), text.into()).await.map(drop) })?;
        self.has_claimed.store(true, Ordering::Relaxed);
        Ok(())
    }

    fn wait<T, F>(&self, request: impl FnOnce(ObjectCheckpoints) -> F) -> io::Result<T>
    where
        T: Send + 'static,
        F: Future<Output = object_store::Result<T>> + Send + 'static,
    {
        let (backend, prefix) = (self.place.backend().clone(), self.place.prefix().clone());
        Ok(self.place.wait(request(ObjectCheckpoints { backend, prefix }))??)
    }
}

impl ObjectCheckpoints {
    fn path(&self, name: &str, file: &str) -> Path {
        self.at(name).join(file)
    }

    fn at(&self, name: &str) -> Path {
        self.prefix.clone().join(name)
    }

    /// Lists all files of checkpoints, as pairs of checkpoint name and file name.
    async fn files(&self) -> object_store::Result<Vec<(String, String)>> {
        let mut objects = self.backend.list(Some(&self.prefix));
        let mut files = Vec::new();
        while let Some(object) = objects.next().await {
            let location = object?.location;
            let parts: Vec<_> = location.prefix_match(&self.prefix).into_iter().flatten().collect();
            if let [name, file] = &parts[..]
                && name.as_ref().starts_with(NAME_PREFIX)
            {
                files.push((name.as_ref().to_owned(), file.as_ref().to_owned()));
            }
        }
        Ok(files)
    }

    async fn put(&self, name: &str, files: Vec<(String, Bytes)>) -> object_store::Result<()> {
        self.remove_partial().await?;
        // A checkpoint of this name may be left over from before the run was resumed at an earlier iteration.
        self.delete(&self.path(name, STATE)).await?;
        for (file, content) in files {
            self.write(self.path(name, &file), content).await?;
        }
        Ok(())
    }

    async fn write(&self, path: Path, mut content: Bytes) -> object_store::Result<()> {
        let writer = BufWriter::with_capacity(self.backend.clone(), path, PART_BYTES);
        let mut writer = writer.with_max_concurrency(CONCURRENT_PARTS);
        while !content.is_empty() {
            let part = content.split_to(content.len().min(PART_BYTES));
            if let Err(error) = writer.put(part).await {
                // The store charges for parts that are left behind.
                drop(writer.abort().await);
                return Err(error);
            }
        }
        writer.shutdown().await.map_err(|error| object_store::Error::Generic { store: "upload", source: error.into() })
    }

    /// Deletes the incomplete checkpoints that a crash left behind.
    async fn remove_partial(&self) -> object_store::Result<()> {
        let files = self.files().await?;
        let whole: BTreeSet<&str> = files.iter().filter(|(_, file)| file == STATE).map(|(name, _)| &**name).collect();
        for (name, file) in files.iter().filter(|(name, _)| !whole.contains(&**name)) {
            self.delete(&self.path(name, file)).await?;
        }
        Ok(())
    }

    async fn remove(&self, name: &str) -> object_store::Result<()> {
        self.delete(&self.path(name, STATE)).await?;
        for (_, file) in self.files().await?.iter().filter(|(of, _)| of == name) {
            self.delete(&self.path(name, file)).await?;
        }
        Ok(())
    }

    async fn delete(&self, path: &Path) -> object_store::Result<()> {
        match self.backend.delete(path).await {
            Err(object_store::Error::NotFound { .. }) => Ok(()),
            result => result,
        }
    }
}

impl Store for ObjectStore {
    fn put(&self, name: &str, files: &[(&str, Vec<u8>)]) -> io::Result<()> {
        self.claim()?;
        let files = files.iter().map(|(file, content)| ((*file).to_owned(), Bytes::copy_from_slice(content))).collect();
        let name = name.to_owned();
        self.wait(|it| async move { it.put(&name, files).await })
    }

    fn names(&self) -> io::Result<Vec<String>> {
        let files = self.wait(|it| async move { it.files().await })?;
        Ok(files.into_iter().filter(|(_, file)| file == STATE).map(|(name, _)| name).collect())
    }

    fn get(&self, name: &str, file: &str) -> io::Result<Vec<u8>> {
        let (name, file) = (name.to_owned(), file.to_owned());
        let bytes = self.wait(|it| async move { it.backend.get(&it.path(&name, &file)).await?.bytes().await })?;
        Ok(bytes.into())
    }

    fn remove(&self, name: &str) -> io::Result<()> {
        let name = name.to_owned();
        self.wait(|it| async move { it.remove(&name).await })
    }

    fn set_latest(&self, name: &str) -> io::Result<()> {
        let text = latest_text(name);
        self.wait(|it| async move { it.backend.put(&it.at(LATEST), text.into()).await.map(drop) })
    }

    fn latest(&self) -> io::Result<Option<String>> {
        let read = self.wait(|it| async move {
            match it.backend.get(&it.at(LATEST)).await {
                Err(object_store::Error::NotFound { .. }) => Ok(None),
                found => Ok(Some(found?.bytes().await?)),
            }
        })?;
        Ok(read.and_then(|text| latest_name(&text)))
    }

    fn describe(&self, name: &str) -> String {
        let place = self.place.url();
        if name.is_empty() { place.to_owned() } else { format!("{place}/{name}") }
    }
}

#[cfg(test)]
mod tests;
