//! Obtains a split of the data from the disk, the cache, or the coordinator.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use ata_data::{BadImage, DataError, DataFile, DataSource, FolderOptions, ShardIndex, Split, hex, sha256_of_file};
use ata_learn::{Dataset, Model, ModelError, ModelResolver, with_squares};
use ata_objects::{Objects, is_url};
use ata_sums::ParameterTable;
use ata_wire::{DataSpec, RunSpec};
use tokio::runtime::Handle;

use crate::config::WorkerConfig;
use crate::download::{DataLink, lock_file};
use crate::error::{SessionError, WorkerError};
use crate::shard_cache::ShardCache;

#[derive(Clone)]
pub(crate) struct SessionData {
    /// The model, the sizes of its tensors, and the data.
    of: (String, Vec<u64>, DataSpec),
    pub(crate) data: Arc<dyn Dataset>,
}

/// Returns the model of a run. If the run measures noise, it has a tensor more than its specification says.
pub(crate) fn model_of(models: ModelResolver, run: &RunSpec) -> Result<Arc<dyn Model>, ModelError> {
    let model = models(&run.model)?;
    let is_squared = tensors(&model.table().with_squares()) == run.tensors;
    Ok(if is_squared { with_squares(model) } else { model })
}

pub(crate) fn tensors(table: &ParameterTable) -> Vec<u64> {
    table.tensors.iter().map(|tensor| tensor.elements() as u64).collect()
}

/// A split of a run's data, and the places in which to look for it.
pub(crate) struct SplitSource {
    run: RunSpec,
    models: ModelResolver,
    split: Split,
    spec: DataSpec,
    /// The user's own copy, as `--data` names it.
    own: Option<PathBuf>,
    folder_options: FolderOptions,
    cache: PathBuf,
    cache_bytes: u64,
    link: DataLink,
}

impl SplitSource {
    pub(crate) fn new(config: &WorkerConfig, run: &RunSpec, split: Split, link: &DataLink) -> Self {
        let spec = match split {
            Split::Train => run.data.clone(),
            Split::Test => run.test_data.clone(),
        };
        let WorkerConfig { models, cache_bytes, folder_options, .. } = *config;
        let (own, cache, link) = (config.data.clone(), config.cache.clone(), link.clone());
        Self { run: run.clone(), models, split, spec, own, folder_options, cache, cache_bytes, link }
    }

    /// Returns the split, which may have been opened for an earlier session.
    pub(crate) async fn open(self, opened: Option<SessionData>) -> Result<SessionData, SessionError> {
        let of = (self.run.model.clone(), self.run.tensors.clone(), self.spec.clone());
        if let Some(opened) = opened.filter(|opened| opened.of == of) {
            return Ok(opened);
        }
        let data = obtain(model_of(self.models, &self.run)?, self).await?;
        Ok(SessionData { of, data })
    }
}

async fn obtain(model: Arc<dyn Model>, source: SplitSource) -> Result<Arc<dyn Dataset>, SessionError> {
    let SplitSource { split, spec, own, folder_options, cache, cache_bytes, link, .. } = source;
    let (sha256, bytes, shards_url) = match spec {
        DataSpec::Generated { seed } => {
            return blocking(move || Ok(model.open(&DataSource::Generated { seed }, split)?)).await;
        }
        DataSpec::File { sha256, bytes, shards_url } => (sha256, bytes, shards_url),
    };
    let own_url = own.as_deref().and_then(Path::to_str).filter(|own| is_url(own)).map(str::to_owned);
    if let Some(own) = own.filter(|_| own_url.is_none()) {
        let opener = model.clone();
        match blocking(move || from_own(&*opener, own, folder_options, sha256, split)).await {
            // The user's copy may consist of the training data alone.
            Err(_) if split == Split::Test => {}
            opened => return opened,
        }
    }
    let folder = cache.join(match split {
        Split::Train => "train",
        Split::Test => "test",
    });
    // No other process fetches the same data at the same time.
    let (locked, lock) = (folder.clone(), format!("{}.lock", hex(&sha256)));
    let _lock = blocking(move || Ok(lock_file(&locked, &lock)?)).await?;
    let path = folder.join(format!("{}.bin", hex(&sha256)));
    let cached = path.clone();
    if !blocking(move || is_cached(&cached, sha256)).await? {
        tracing::info!(megabytes = bytes / 1_000_000, to = %path.display(), "fetching the {split} data");
        let file = link.download(&folder, sha256, bytes, |_| ()).await?;
        drop(file.persist(&path).map_err(|error| DataError::cache(&path)(error.error))?);
    }
    let runtime = Handle::current();
    blocking(move || {
        if !ShardIndex::is_index(&path)? {
            return Ok(model.open(&DataSource::File(path), split)?);
        }
        let store = match own_url.or(shards_url) {
            None => ShardCache::of_coordinator(link, runtime, &cache, cache_bytes),
            Some(url) => {
                let unusable = |reason| DataError::Problem(format!("the shards of the data are in {url}: {reason}"));
                let objects = Objects::open(&url).map_err(unusable)?;
                ShardCache::of_objects(Arc::new(objects), split, &cache, cache_bytes)
            }
        };
        Ok(model.open(&DataSource::Shards { index: path, store: Arc::new(store) }, split)?)
    })
    .await
}

fn from_own(
    model: &dyn Model,
    mut own: PathBuf,
    options: FolderOptions,
    sha256: [u8; 32],
    split: Split,
) -> Result<Arc<dyn Dataset>, WorkerError> {
    // A folder of images is packed here as the coordinator packs it.
    if let Some(adapted) = model.adapt(&own, options, &mut |_, _| ())? {
        own = adapted.data;
        for BadImage { path, reason } in adapted.left_out {
            tracing::warn!("left out {}: {reason}", path.display());
        }
    }
    let file = DataFile::identify(&model.locate(&own, split)?)?;
    if file.sha256 != sha256 {
        let digests = format!("SHA-256 {}, expected {}", hex(&file.sha256), hex(&sha256));
        return Err(WorkerError::OtherData(file.path, digests));
    }
    Ok(model.open(&DataSource::File(file.path), split)?)
}

/// Returns whether there is an intact cached copy. A damaged one must be fetched again.
fn is_cached(path: &Path, sha256: [u8; 32]) -> Result<bool, WorkerError> {
    if !path.is_file() {
        return Ok(false);
    }
    let is_whole = sha256_of_file(path)? == sha256;
    if !is_whole {
        tracing::warn!(path = %path.display(), "the cached data is damaged; fetching it again");
    }
    Ok(is_whole)
}

/// Runs blocking work without delaying the heartbeats.
async fn blocking<T: Send + 'static>(
    work: impl FnOnce() -> Result<T, WorkerError> + Send + 'static,
) -> Result<T, SessionError> {
    match tokio::task::spawn_blocking(work).await {
        Ok(result) => result.map_err(SessionError::Fatal),
        Err(error) => Err(SessionError::Broken(error.to_string())),
    }
}
