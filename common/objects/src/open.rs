//! Object stores that are opened by a URL.

use std::future::Future;
use std::io;
use std::ops::Range;
use std::sync::{Arc, mpsc};

use bytes::Bytes;
use object_store::local::LocalFileSystem;
use object_store::path::Path;
use object_store::{GetOptions, GetResult, ObjectStore, ObjectStoreExt as _, ObjectStoreScheme, parse_url_opts};
use tokio::runtime::{Handle, Runtime};
use tokio_stream::StreamExt as _;
use url::Url;

/// The timeout of a request. It is long, since the file of a large model comes in one answer over a link that may be
/// slow. The variables `AWS_TIMEOUT`, `GOOGLE_TIMEOUT` and `AZURE_TIMEOUT` override it.
const REQUEST_TIMEOUT: (&str, &str) = ("timeout", "300 seconds");

/// The prefixes of environment variables with credentials and addresses.
const VARIABLES: [&str; 5] = ["AWS_", "GOOGLE_", "AZURE_", "SERVICE_ACCOUNT", "IDENTITY_ENDPOINT"];

const EXPECTED: &str = "expected s3://BUCKET/PREFIX, gs://BUCKET/PREFIX, az://CONTAINER/PREFIX or file:///FOLDER";

/// The objects under a URL. A separate runtime makes the requests, and ends when this is dropped.
#[derive(Debug)]
pub struct Objects {
    backend: Arc<dyn ObjectStore>,
    prefix: Path,
    /// The URL that the user gave.
    url: String,
    /// The runtime; `None` only while this is dropped.
    runtime: Option<Runtime>,
}

impl Objects {
    /// Returns the objects under `prefix`; `url` appears in messages.
    pub fn new(backend: Arc<dyn ObjectStore>, prefix: Path, url: impl Into<String>) -> io::Result<Self> {
        let mut runtime = tokio::runtime::Builder::new_multi_thread();
        let runtime = runtime.worker_threads(1).thread_name("object-store").enable_all().build()?;
        Ok(Self { backend, prefix, url: url.into(), runtime: Some(runtime) })
    }

    /// Opens the object store of a URL, with credentials from the environment. An error says what is wrong with the URL.
    pub fn open(url: &str) -> Result<Self, String> {
        let parsed = Url::parse(url).map_err(|error| error.to_string())?;
        let (scheme, prefix) = ObjectStoreScheme::parse(&parsed).map_err(|_| EXPECTED)?;
        let backend: Arc<dyn ObjectStore> = match scheme {
            ObjectStoreScheme::Memory => return Err("what is there would end with the process".into()),
            ObjectStoreScheme::Local => Arc::new(LocalFileSystem::new().with_fsync(true)),
            ObjectStoreScheme::AmazonS3 | ObjectStoreScheme::GoogleCloudStorage | ObjectStoreScheme::MicrosoftAzure => {
                // The HTTP client has no cryptography provider of its own. A provider that is already installed also works.
                drop(rustls::crypto::ring::default_provider().install_default());
                parse_url_opts(&parsed, options()).map_err(|error| error.to_string())?.0.into()
            }
            _ => return Err(EXPECTED.into()),
        };
        Self::new(backend, prefix, url.strip_suffix('/').unwrap_or(url)).map_err(|error| error.to_string())
    }

    /// Returns the URL.
    pub fn url(&self) -> &str {
        &self.url
    }

    /// Returns the store that contains the objects.
    pub fn backend(&self) -> &Arc<dyn ObjectStore> {
        &self.backend
    }

    /// Returns the prefix of all object paths.
    pub fn prefix(&self) -> &Path {
        &self.prefix
    }

    /// Returns the runtime that makes the requests.
    pub fn runtime(&self) -> &Handle {
        self.runtime.as_ref().expect("it is there until this is dropped").handle()
    }

    /// Makes a request, and blocks until its answer, even inside another async runtime.
    pub fn wait<T: Send + 'static>(&self, request: impl Future<Output = T> + Send + 'static) -> io::Result<T> {
        let (answer, answered) = mpsc::sync_channel(1);
        // Sending cannot fail, since the answer is always waited for.
        self.runtime().spawn(async move { drop(answer.send(request.await)) });
        answered.recv().map_err(|_| io::Error::other("a request to the object store has panicked"))
    }

    /// Reads a whole object. An object larger than `most_bytes` is an error.
    pub fn get(&self, name: &str, most_bytes: u64) -> io::Result<Vec<u8>> {
        let (backend, path) = (self.backend.clone(), self.prefix.clone().join(name));
        self.wait(async move {
            let found = backend.get(&path).await?;
            let bytes = found.meta.size;
            if bytes > most_bytes {
                return Err(io::Error::other(format!("{bytes} bytes are too many: expected {most_bytes} at most")));
            }
            Ok(found.bytes().await?.into())
        })?
    }

    /// Reads a part of an object, piece by piece.
    pub async fn read(
        &self,
        name: &str,
        range: Range<u64>,
        mut take: impl FnMut(Bytes) -> io::Result<()> + Send,
    ) -> io::Result<()> {
        let options = GetOptions { range: Some(range.into()), ..GetOptions::default() };
        let found: GetResult = self.backend.get_opts(&self.prefix.clone().join(name), options).await?;
        let mut pieces = found.into_stream();
        while let Some(piece) = pieces.next().await {
            take(piece?)?;
        }
        Ok(())
    }
}

impl Drop for Objects {
    fn drop(&mut self) {
        if let Some(runtime) = self.runtime.take() {
            // This does not wait, since the value may be dropped inside another runtime.
            runtime.shutdown_background();
        }
    }
}

/// Reads credentials and addresses from the environment; later options override earlier ones.
fn options() -> impl Iterator<Item = (String, String)> {
    let variables = std::env::vars_os().filter_map(|(name, value)| {
        let (name, value) = (name.into_string().ok()?, value.into_string().ok()?);
        VARIABLES.iter().any(|begin| name.starts_with(begin)).then_some((name, value))
    });
    let (name, value) = REQUEST_TIMEOUT;
    std::iter::once((name.to_owned(), value.to_owned())).chain(variables)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn urls() {
        let opened = Objects::open("s3://bucket/some/prefix/").unwrap();
        assert_eq!((opened.url(), opened.prefix()), ("s3://bucket/some/prefix", &Path::from("some/prefix")));
        for (url, says) in [
            ("memory:///", "end with the process"),
            ("s4://bucket/prefix", "expected s3://"),
            ("http://host/prefix", "expected s3://"),
            ("s3://", "expected s3://"),
        ] {
            let error = Objects::open(url).unwrap_err();
            assert!(error.contains(says), "{url}: {error}");
        }
    }

    #[test]
    fn objects_and_parts_of_them_are_read() {
        let folder = tempfile::tempdir().unwrap();
        std::fs::write(folder.path().join("letters"), "abcdefgh").unwrap();
        let objects = Arc::new(Objects::open(&format!("file://{}", folder.path().display())).unwrap());
        assert_eq!(objects.get("letters", 8).unwrap(), b"abcdefgh");
        assert!(objects.get("letters", 7).unwrap_err().to_string().contains("8 bytes are too many"));
        assert_eq!(objects.get("digits", 8).unwrap_err().kind(), io::ErrorKind::NotFound);
        let reader = objects.clone();
        let read = async move {
            let mut read = Vec::new();
            reader.read("letters", 2..5, |piece| Ok(read.extend(piece))).await.map(|()| read)
        };
        assert_eq!(objects.wait(read).unwrap().unwrap(), b"cde");
    }

    #[test]
    fn they_can_be_used_inside_another_runtime() {
        let folder = tempfile::tempdir().unwrap();
        let use_one = || {
            let objects = Objects::open(&format!("file://{}", folder.path().display())).unwrap();
            assert!(objects.get("nothing", 1).is_err());
        };
        tokio::runtime::Builder::new_current_thread().build().unwrap().block_on(async { use_one() });
        tokio::runtime::Builder::new_multi_thread().build().unwrap().block_on(async { use_one() });
    }
}
