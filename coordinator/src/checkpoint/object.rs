//! Checkpoints in an object store: S3, Google Cloud Storage, Azure, or a file system behind the same interface.
//!
//! An object store has no folders and no renaming, so a checkpoint exists exactly while its `state.json` does: that is
//! written last and deleted first.

use std::collections::BTreeSet;
use std::future::Future;
use std::io;
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, mpsc};

use bytes::Bytes;
use object_store::buffered::BufWriter;
use object_store::local::LocalFileSystem;
use object_store::path::Path;
use object_store::{ObjectStore as Backend, ObjectStoreExt as _, ObjectStoreScheme, parse_url_opts};
use tokio::io::AsyncWriteExt as _;
use tokio::sync::mpsc::{UnboundedSender, unbounded_channel};
use tokio_stream::StreamExt as _;
use url::Url;

use super::STATE;
use super::store::{LATEST, NAME_PREFIX, Store, latest_name, latest_text};

/// A request that takes longer has failed: a large model's file comes in one answer, over a link that may be slow. The
/// variables `AWS_TIMEOUT`, `GOOGLE_TIMEOUT` and `AZURE_TIMEOUT` override it.
const REQUEST_TIMEOUT: (&str, &str) = ("timeout", "300 seconds");

/// A larger file is sent in parts of this size. S3 takes up to 10,000 parts, and no request may carry more than 5 GB.
const PART_BYTES: usize = 16 << 20;

/// Parts that are on their way at the same time: enough to fill a link.
const CONCURRENT_PARTS: usize = 4;

/// Environment variables with credentials and addresses begin with one of these.
const VARIABLES: [&str; 5] = ["AWS_", "GOOGLE_", "AZURE_", "SERVICE_ACCOUNT", "IDENTITY_ENDPOINT"];

/// What the URL of an object store looks like.
const EXPECTED: &str = "expected s3://BUCKET/PREFIX, gs://BUCKET/PREFIX, az://CONTAINER/PREFIX or file:///FOLDER";

/// Checkpoints as objects `PREFIX/step-NNNNNN/FILE`. The object `latest` beside them names the newest.
///
/// Its methods wait for the answer, and may be called from anywhere, inside another async runtime too: the requests are
/// made by a thread of its own, which ends when this is dropped.
#[derive(Debug)]
pub struct ObjectStore {
    objects: Objects,
    /// As the user named it.
    place: String,
    /// What this process puts into [`WRITER`].
    writer: String,
    has_claimed: AtomicBool,
    requests: UnboundedSender<Request>,
}

/// The object that says who writes checkpoints. An object store knows no locks: the last process to start writes, and the
/// checkpoints of an earlier one fail from then on.
const WRITER: &str = "writer";

type Request = Pin<Box<dyn Future<Output = ()> + Send>>;

#[derive(Clone, Debug)]
struct Objects {
    backend: Arc<dyn Backend>,
    prefix: Path,
}

impl ObjectStore {
    /// The checkpoints under `prefix`; `place` names it for people.
    pub fn new(backend: Arc<dyn Backend>, prefix: Path, place: impl Into<String>) -> io::Result<Self> {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        let (requests, mut received) = unbounded_channel::<Request>();
        let serve = async move {
            while let Some(request) = received.recv().await {
                request.await;
            }
        };
        std::thread::Builder::new().name("object-store".into()).spawn(move || runtime.block_on(serve))?;
        let writer = format!("process {}, {:08x}", std::process::id(), rand::random::<u32>());
        let objects = Objects { backend, prefix };
        Ok(Self { objects, place: place.into(), writer, has_claimed: AtomicBool::new(false), requests })
    }

    /// Opens what a URL names, with credentials from the environment. The error says what is wrong with it.
    pub(super) fn open(place: &str) -> Result<Self, String> {
        let url = Url::parse(place).map_err(|error| error.to_string())?;
        let (scheme, prefix) = ObjectStoreScheme::parse(&url).map_err(|_| EXPECTED)?;
        let backend: Arc<dyn Backend> = match scheme {
            ObjectStoreScheme::Memory => return Err("such checkpoints would end with the process".into()),
            ObjectStoreScheme::Local => Arc::new(LocalFileSystem::new().with_fsync(true)),
            ObjectStoreScheme::AmazonS3 | ObjectStoreScheme::GoogleCloudStorage | ObjectStoreScheme::MicrosoftAzure => {
                // The HTTP client has none of its own. If there is one already, it is as good.
                drop(rustls::crypto::ring::default_provider().install_default());
                parse_url_opts(&url, options()).map_err(|error| error.to_string())?.0.into()
            }
            _ => return Err(EXPECTED.into()),
        };
        Self::new(backend, prefix, place.strip_suffix('/').unwrap_or(place)).map_err(|error| error.to_string())
    }

    /// Becomes the one who writes, or makes sure that it still is.
    fn claim(&self) -> io::Result<()> {
        if !self.has_claimed.load(Ordering::Relaxed) {
            return self.put_claim();
        }
        let (objects, path) = (self.objects.clone(), self.objects.prefix.clone().join(WRITER));
        let found = match self.wait(async move { objects.backend.get(&path).await?.bytes().await }) {
            // Somebody cleared the place: the first to notice has it.
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
        let (objects, path) = (self.objects.clone(), self.objects.prefix.clone().join(WRITER));
        let text = self.writer.clone();
        self.wait(async move { objects.backend.put(&path, text.into()).await.map(drop) })?;
        self.has_claimed.store(true, Ordering::Relaxed);
        Ok(())
    }

    /// Waits for a request.
    fn wait<T: Send + 'static>(
        &self,
        request: impl Future<Output = object_store::Result<T>> + Send + 'static,
    ) -> io::Result<T> {
        let (answer, answered) = mpsc::sync_channel(1);
        // The answer is always waited for.
        let request = async move { drop(answer.send(request.await)) };
        let gone = || io::Error::other("the thread of the object store has ended");
        self.requests.send(Box::pin(request)).map_err(|_| gone())?;
        Ok(answered.recv().map_err(|_| gone())??)
    }
}

/// What the environment says of credentials and addresses, in the order in which it overrides.
fn options() -> impl Iterator<Item = (String, String)> {
    let variables = std::env::vars_os().filter_map(|(name, value)| {
        let (name, value) = (name.into_string().ok()?, value.into_string().ok()?);
        VARIABLES.iter().any(|begin| name.starts_with(begin)).then_some((name, value))
    });
    let (name, value) = REQUEST_TIMEOUT;
    std::iter::once((name.to_owned(), value.to_owned())).chain(variables)
}

impl Objects {
    fn path(&self, name: &str, file: &str) -> Path {
        self.prefix.clone().join(name).join(file)
    }

    /// All files of checkpoints, as the name of the checkpoint and that of the file.
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
        // One that was written before the run was resumed from an earlier one.
        self.delete(&self.path(name, STATE)).await?;
        for (file, content) in files {
            self.write(self.path(name, &file), content).await?;
        }
        Ok(())
    }

    fn latest(&self) -> Path {
        self.prefix.clone().join(LATEST)
    }

    async fn write(&self, path: Path, mut content: Bytes) -> object_store::Result<()> {
        let writer = BufWriter::with_capacity(self.backend.clone(), path, PART_BYTES);
        let mut writer = writer.with_max_concurrency(CONCURRENT_PARTS);
        while !content.is_empty() {
            let part = content.split_to(content.len().min(PART_BYTES));
            if let Err(error) = writer.put(part).await {
                // Parts that stay behind cost money.
                drop(writer.abort().await);
                return Err(error);
            }
        }
        writer.shutdown().await.map_err(|error| object_store::Error::Generic { store: "upload", source: error.into() })
    }

    /// Deletes what a crash left of checkpoints.
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

    /// Deletes an object, if it is there.
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
        let (objects, name) = (self.objects.clone(), name.to_owned());
        let files = files.iter().map(|(file, content)| ((*file).to_owned(), Bytes::copy_from_slice(content))).collect();
        self.wait(async move { objects.put(&name, files).await })
    }

    fn names(&self) -> io::Result<Vec<String>> {
        let objects = self.objects.clone();
        let files = self.wait(async move { objects.files().await })?;
        Ok(files.into_iter().filter(|(_, file)| file == STATE).map(|(name, _)| name).collect())
    }

    fn get(&self, name: &str, file: &str) -> io::Result<Vec<u8>> {
        let (objects, path) = (self.objects.clone(), self.objects.path(name, file));
        let bytes = self.wait(async move { objects.backend.get(&path).await?.bytes().await })?;
        Ok(bytes.into())
    }

    fn remove(&self, name: &str) -> io::Result<()> {
        let (objects, name) = (self.objects.clone(), name.to_owned());
        self.wait(async move { objects.remove(&name).await })
    }

    fn set_latest(&self, name: &str) -> io::Result<()> {
        let (objects, text) = (self.objects.clone(), latest_text(name));
        self.wait(async move { objects.backend.put(&objects.latest(), text.into()).await.map(drop) })
    }

    fn latest(&self) -> io::Result<Option<String>> {
        let objects = self.objects.clone();
        let read = self.wait(async move {
            match objects.backend.get(&objects.latest()).await {
                Err(object_store::Error::NotFound { .. }) => Ok(None),
                found => Ok(Some(found?.bytes().await?)),
            }
        })?;
        Ok(read.and_then(|text| latest_name(&text)))
    }

    fn describe(&self, name: &str) -> String {
        if name.is_empty() { self.place.clone() } else { format!("{}/{name}", self.place) }
    }
}

#[cfg(test)]
mod tests {
    use object_store::memory::InMemory;
    use tempfile::TempDir;

    use super::super::tests::{TWO, checkpoint, find_in, save_in};
    use super::super::{MODEL, OPTIMIZER, Saved, newest_settings};
    use super::*;

    fn store(backend: &Arc<dyn Backend>) -> ObjectStore {
        ObjectStore::new(backend.clone(), Path::from("some/prefix"), "memory:///some/prefix").unwrap()
    }

    /// Runs a test on an object store in memory, and on one in a folder.
    fn on_both(test: impl Fn(Arc<dyn Backend>)) {
        test(Arc::new(InMemory::new()));
        let folder = TempDir::new().unwrap();
        test(Arc::new(LocalFileSystem::new_with_prefix(folder.path()).unwrap().with_fsync(true)));
    }

    #[test]
    fn what_is_saved_is_found_and_old_ones_are_dropped() {
        on_both(|backend| {
            let save = |iterations: &[u64]| save_in(Box::new(store(&backend)), TWO, iterations);
            assert!(find_in(&store(&backend)).unwrap().is_none());
            assert_eq!(newest_settings(&store(&backend)).unwrap(), None);
            let saved = save(&[1, 2, 3]);
            assert!(saved.iter().all(|saved| matches!(saved, Saved::Checkpoint { .. })), "{saved:?}");
            let store = store(&backend);
            let found = find_in(&store).unwrap().unwrap();
            assert_eq!((found.name.as_str(), found.checkpoint), ("step-000003", checkpoint(3)));
            assert_eq!(newest_settings(&store).unwrap(), Some(checkpoint(3).progress.settings));
            let mut names = store.names().unwrap();
            names.sort();
            assert_eq!(names, ["step-000002", "step-000003"]);
            let objects = store.objects.clone();
            let left = store.wait(async move { objects.files().await }).unwrap();
            assert_eq!(left.len(), 6, "all files of the first are gone: {left:?}");
            assert_eq!(store.latest().unwrap().as_deref(), Some("step-000003"));
            // A run that is resumed from an earlier one says so before it saves again.
            store.set_latest("step-000002").unwrap();
            assert_eq!(find_in(&store).unwrap().unwrap().name, "step-000002");
            // The run was resumed from an earlier checkpoint, and saves again.
            save(&[2]);
            assert_eq!(find_in(&store).unwrap().unwrap().name, "step-000002");
        });
    }

    #[test]
    fn damage_is_detected_and_the_one_before_is_used() {
        on_both(|backend| {
            save_in(Box::new(store(&backend)), TWO, &[4, 5]);
            let store = store(&backend);
            let write = |file: &str, content: Vec<u8>| {
                let (objects, path) = (store.objects.clone(), store.objects.path("step-000005", file));
                store.wait(async move { objects.write(path, content.into()).await }).unwrap();
            };
            for file in [MODEL, OPTIMIZER, STATE] {
                let whole = store.get("step-000005", file).unwrap();
                let mut flipped = whole.clone();
                flipped[whole.len() / 2] ^= 16;
                for damaged in [whole[..whole.len() / 2].to_vec(), flipped, Vec::new()] {
                    write(file, damaged);
                    let found = find_in(&store).unwrap().unwrap();
                    assert_eq!((found.name.as_str(), found.damaged.len()), ("step-000004", 1), "{file}");
                    assert_eq!((found.damaged[0].0.as_str(), found.damaged[0].1.file), ("step-000005", file));
                }
                write(file, whole);
            }
            assert_eq!(find_in(&store).unwrap().unwrap().name, "step-000005");
        });
    }

    /// A process that ends while it writes or removes a checkpoint leaves files without `state.json`.
    #[test]
    fn a_checkpoint_without_its_state_does_not_exist() {
        on_both(|backend| {
            save_in(Box::new(store(&backend)), TWO, &[1, 2]);
            let store = store(&backend);
            let (objects, path) = (store.objects.clone(), store.objects.path("step-000002", STATE));
            store.wait(async move { objects.delete(&path).await }).unwrap();
            assert_eq!(store.names().unwrap(), ["step-000001"]);
            let found = find_in(&store).unwrap().unwrap();
            assert_eq!((found.name.as_str(), found.damaged.len()), ("step-000001", 0));
            // The next checkpoint clears up.
            save_in(Box::new(self::store(&backend)), TWO, &[3]);
            assert!(store.get("step-000002", MODEL).is_err());
            assert_eq!(find_in(&store).unwrap().unwrap().name, "step-000003");
        });
    }

    #[test]
    fn who_comes_last_writes() {
        on_both(|backend| {
            let (first, second) = (store(&backend), store(&backend));
            let put = |store: &ObjectStore, name| store.put(name, &[(STATE, b"{}".to_vec())]);
            put(&first, "step-000001").unwrap();
            put(&first, "step-000002").unwrap();
            put(&second, "step-000003").unwrap();
            let refused = put(&first, "step-000004").unwrap_err().to_string();
            assert!(refused.contains("another coordinator saves there now"), "{refused}");
            put(&second, "step-000005").unwrap();
            assert_eq!(second.names().unwrap().len(), 4);
        });
    }

    /// A file of several parts.
    #[test]
    fn a_large_file_comes_back_as_it_was() {
        on_both(|backend| {
            let store = store(&backend);
            let large: Vec<u8> = (0..40_000_000_u32).map(|at| (at % 251) as u8).collect();
            store.put("step-000001", &[(MODEL, large.clone()), (STATE, b"{}".to_vec())]).unwrap();
            assert!(store.get("step-000001", MODEL).unwrap() == large);
        });
    }

    #[test]
    fn it_can_be_called_inside_another_runtime() {
        let backend: Arc<dyn Backend> = Arc::new(InMemory::new());
        let call = || {
            let store = store(&backend);
            store.put("step-000001", &[(STATE, Vec::new())]).unwrap();
            assert_eq!(store.names().unwrap(), ["step-000001"]);
        };
        tokio::runtime::Builder::new_current_thread().build().unwrap().block_on(async { call() });
        tokio::runtime::Builder::new_multi_thread().build().unwrap().block_on(async { call() });
    }

    #[test]
    fn urls() {
        let opened = ObjectStore::open("s3://bucket/some/prefix/").unwrap();
        assert_eq!(opened.describe("step-000001"), "s3://bucket/some/prefix/step-000001");
        assert_eq!(opened.objects.prefix, Path::from("some/prefix"));
        let folder = TempDir::new().unwrap();
        let file = ObjectStore::open(&format!("file://{}/new", folder.path().display())).unwrap();
        assert!(file.names().unwrap().is_empty());
        file.put("step-000001", &[(STATE, Vec::new())]).unwrap();
        assert!(folder.path().join("new/step-000001").join(STATE).exists());
        for (place, says) in [
            ("memory:///", "end with the process"),
            ("s4://bucket/prefix", "expected s3://"),
            ("http://host/prefix", "expected s3://"),
            ("s3://", "expected s3://"),
        ] {
            let error = ObjectStore::open(place).unwrap_err();
            assert!(error.contains(says), "{place}: {error}");
        }
    }
}
