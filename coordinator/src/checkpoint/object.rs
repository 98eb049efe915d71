//! Checkpoints in an object store: S3, Google Cloud Storage, Azure, or a file system behind the same interface.
//!
//! An object store has neither folders nor renaming, so a checkpoint exists exactly while its `state.json` does. That file is
//! written last and deleted first.

#[cfg(test)]
mod tests;

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

/// The timeout of a request, which is long since the file of a large model comes in one answer over a link that may be slow.
/// The variables `AWS_TIMEOUT`, `GOOGLE_TIMEOUT` and `AZURE_TIMEOUT` override it.
const REQUEST_TIMEOUT: (&str, &str) = ("timeout", "300 seconds");

/// A larger file is sent in parts of this size. S3 takes up to 10,000 parts, and no request may carry more than 5 GB.
const PART_BYTES: usize = 16 << 20;

/// Parts that are sent at the same time, enough to fill a link.
const CONCURRENT_PARTS: usize = 4;

/// Prefixes of the environment variables with credentials and addresses.
const VARIABLES: [&str; 5] = ["AWS_", "GOOGLE_", "AZURE_", "SERVICE_ACCOUNT", "IDENTITY_ENDPOINT"];

/// The form of an object store's URL.
const EXPECTED: &str = "expected s3://BUCKET/PREFIX, gs://BUCKET/PREFIX, az://CONTAINER/PREFIX or file:///FOLDER";

/// Checkpoints as objects `PREFIX/step-NNNNNN/FILE`. The object `PREFIX/latest` names the newest.
///
/// Its methods block until the answer, and may be called inside another async runtime too, since a thread of its own makes the
/// requests. The thread ends when this is dropped.
#[derive(Debug)]
pub struct ObjectStore {
    objects: Objects,
    /// The place as the user named it.
    place: String,
    /// The content of [`WRITER`] that identifies this process.
    writer: String,
    has_claimed: AtomicBool,
    requests: UnboundedSender<Request>,
}

/// The object that names the process that writes checkpoints. An object store has no locks, so the last process to start writes,
/// and the checkpoints of an earlier one fail from then on.
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

    /// Opens the object store of a URL, with credentials from the environment. The error says what is wrong with the URL.
    pub(super) fn open(place: &str) -> Result<Self, String> {
        let url = Url::parse(place).map_err(|error| error.to_string())?;
        let (scheme, prefix) = ObjectStoreScheme::parse(&url).map_err(|_| EXPECTED)?;
        let backend: Arc<dyn Backend> = match scheme {
            ObjectStoreScheme::Memory => return Err("such checkpoints would end with the process".into()),
            ObjectStoreScheme::Local => Arc::new(LocalFileSystem::new().with_fsync(true)),
            ObjectStoreScheme::AmazonS3 | ObjectStoreScheme::GoogleCloudStorage | ObjectStoreScheme::MicrosoftAzure => {
                // The HTTP client has no provider of its own. One that is installed already serves as well.
                drop(rustls::crypto::ring::default_provider().install_default());
                parse_url_opts(&url, options()).map_err(|error| error.to_string())?.0.into()
            }
            _ => return Err(EXPECTED.into()),
        };
        Self::new(backend, prefix, place.strip_suffix('/').unwrap_or(place)).map_err(|error| error.to_string())
    }

    /// Claims the right to write, or checks that no other process has claimed it since.
    fn claim(&self) -> io::Result<()> {
        if !self.has_claimed.load(Ordering::Relaxed) {
            return self.put_claim();
        }
        let objects = self.objects.clone();
        let found = match self.wait(async move { objects.backend.get(&objects.writer()).await?.bytes().await }) {
            // The place was cleared, and is free for the first process to notice.
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
        let (objects, text) = (self.objects.clone(), self.writer.clone());
        self.wait(async move { objects.backend.put(&objects.writer(), text.into()).await.map(drop) })?;
        self.has_claimed.store(true, Ordering::Relaxed);
        Ok(())
    }

    /// Makes a request, and blocks until its answer.
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

/// Credentials and addresses from the environment; later options override earlier ones.
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
        // A checkpoint of this name is left from before the run was resumed at an earlier iteration.
        self.delete(&self.path(name, STATE)).await?;
        for (file, content) in files {
            self.write(self.path(name, &file), content).await?;
        }
        Ok(())
    }

    fn latest(&self) -> Path {
        self.prefix.clone().join(LATEST)
    }

    fn writer(&self) -> Path {
        self.prefix.clone().join(WRITER)
    }

    async fn write(&self, path: Path, mut content: Bytes) -> object_store::Result<()> {
        let writer = BufWriter::with_capacity(self.backend.clone(), path, PART_BYTES);
        let mut writer = writer.with_max_concurrency(CONCURRENT_PARTS);
        while !content.is_empty() {
            let part = content.split_to(content.len().min(PART_BYTES));
            if let Err(error) = writer.put(part).await {
                // Parts that are left behind cost money.
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
