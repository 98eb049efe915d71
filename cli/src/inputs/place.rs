//! The data that `--data` names: generated samples, a file or folder, or packed images in an object store.

use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use ata_coordinator::SplitData;
use ata_data::{DataError, DataSource, Split, default_cache_dir};
use ata_learn::{Dataset, Model};
use ata_objects::{Objects, is_url};
use ata_record::write_atomically;
use ata_wire::limits::MAX_DATA_BYTES;
use ata_worker::ShardCache;
use sha2::{Digest, Sha256};

use crate::args::DEFAULT_CACHE_GB;
use crate::failure::Failure;

/// The value of `--data` for samples that are generated from the seed.
pub(super) const GENERATED: &str = "synthetic";
/// The size of the largest index, in bytes: a million shards.
const MOST_INDEX_BYTES: u64 = 64 << 20;

#[derive(Clone, Debug)]
pub(crate) enum DataPlace {
    Generated {
        seed: u64,
    },
    /// A file or folder, in which the model finds the splits.
    Path(PathBuf),
    /// Packed images in an object store.
    Objects {
        /// The folder with their indices.
        indices: PathBuf,
        objects: Arc<Objects>,
    },
}

impl DataPlace {
    /// Returns the place that `--data` names, after fetching the indices of images in an object store.
    pub(super) fn find(data: &str, seed: u64) -> Result<Self, Failure> {
        match data {
            GENERATED => Ok(Self::Generated { seed }),
            url if is_url(url) => {
                let objects = Objects::open(url).map_err(|reason| Failure::usage(format!("--data {url}: {reason}")))?;
                let indices = fetch_indices(&objects, &default_cache_dir())?;
                Ok(Self::Objects { indices, objects: Arc::new(objects) })
            }
            path => Ok(Self::Path(path.into())),
        }
    }

    /// Returns the file or folder on this machine that describes the samples.
    pub(super) fn path(&self) -> Option<&Path> {
        match self {
            Self::Generated { .. } => None,
            Self::Path(path) | Self::Objects { indices: path, .. } => Some(path),
        }
    }

    pub(crate) fn open(&self, model: &dyn Model, split: Split) -> Result<Arc<dyn Dataset>, DataError> {
        let source = match self {
            Self::Generated { seed } => DataSource::Generated { seed: *seed },
            Self::Path(path) => DataSource::File(model.locate(path, split)?),
            Self::Objects { indices, objects } => {
                let most_bytes = DEFAULT_CACHE_GB * 1_000_000_000;
                let store = ShardCache::of_objects(objects.clone(), split, &default_cache_dir(), most_bytes);
                DataSource::Shards { index: model.locate(indices, split)?, store: Arc::new(store) }
            }
        };
        model.open(&source, split)
    }

    pub(super) fn split_data(&self, model: &dyn Model, split: Split) -> Result<SplitData, Failure> {
        let data = match self {
            Self::Generated { seed } => SplitData::Generated { seed: *seed },
            Self::Path(path) => SplitData::of_file(&model.locate(path, split)?)?,
            Self::Objects { indices, objects } => {
                SplitData::of_objects(&model.locate(indices, split)?, objects.url().to_owned())?
            }
        };
        match &data {
            SplitData::File(file) if file.bytes > MAX_DATA_BYTES => {
                let (path, bytes) = (file.path.display(), file.bytes);
                Err(Failure::data(format!(
                    "{path}: {bytes} bytes are more than workers take at once, {MAX_DATA_BYTES}; pack the images with --shard-mb"
                )))
            }
            _ => Ok(data),
        }
    }
}

/// Fetches the indices of both splits into a folder under `cache`, and returns it.
fn fetch_indices(objects: &Objects, cache: &Path) -> Result<PathBuf, Failure> {
    let digest = ata_data::hex(&Sha256::digest(objects.url()));
    let folder = cache.join("indices").join(&digest[..32]);
    let written = |path: &Path| DataError::cache(path.to_owned());
    std::fs::create_dir_all(&folder).map_err(written(&folder))?;
    for split in [Split::Train, Split::Test] {
        let (name, path) = (split.shards_name(), folder.join(split.shards_name()));
        let url = objects.url();
        let index = objects.get(name, MOST_INDEX_BYTES).map_err(|cause| match cause.kind() {
            ErrorKind::NotFound => Failure::data(format!(
                "there is no {url}/{name}: pack the images with `ata data pack DIR OUT --shard-mb 64`, and copy OUT there"
            )),
            _ => Failure::unreachable(format!(
                "cannot read {url}/{name}: {cause}; check the URL, and the credentials in the environment \
                 (AWS_ACCESS_KEY_ID and the like)"
            )),
        })?;
        if std::fs::read(&path).is_ok_and(|kept| kept == index) {
            continue;
        }
        // The write is atomic because another process may be reading an existing index.
        write_atomically(&path, &index).map_err(written(&path))?;
    }
    Ok(folder)
}
