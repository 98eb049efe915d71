//! The model of a run and its data: generated samples, a file or folder, or packed images in an object store.

use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use ata_coordinator::SplitData;
use ata_data::{BadImage, DataError, DataSource, FolderOptions, Split, default_cache_dir};
use ata_learn::{Dataset, DescribedModel, Model, ModelResolver, with_squares};
use ata_objects::{Objects, is_url};
use ata_record::write_atomically;
use ata_wire::limits::MAX_DATA_BYTES;
use ata_worker::ShardCache;
use sha2::{Digest, Sha256};

use crate::args::DEFAULT_CACHE_GB;
use crate::escape::escaped;
use crate::failure::{Failure, require};
use crate::output::{Counting, note};
use crate::settings::Settings;

pub(crate) struct Inputs {
    pub(crate) model: Arc<dyn Model>,
    /// The specification that workers resolve to the same model.
    pub(crate) specification: String,
    pub(crate) training: SplitData,
    /// The number of training samples, if this program can read them.
    pub(crate) samples: Option<u64>,
    /// The training data, if tasks are to be measured on it.
    pub(crate) measured: Option<Arc<dyn Dataset>>,
    pub(crate) test: SplitData,
    /// The test data, unless only workers evaluate.
    pub(crate) own_test: Option<Arc<dyn Dataset>>,
    /// The number of test samples, unless only the workers have them.
    pub(crate) test_samples: Option<u64>,
    pub(crate) by_workers: bool,
}

impl Inputs {
    pub(crate) fn open(settings: &Settings, models: ModelResolver) -> Result<Self, Failure> {
        let Settings { data, seed, .. } = settings;
        let evaluators = settings.evaluators(true)?;
        let specification = specification(settings, models)?;
        let FoundInputs { model, parameters, data } =
            find(measured(models(&specification)?, settings), data, *seed, settings.folder_options())?;
        let opened = data.open(&*model, Split::Train)?;
        let (samples, measured) = (Some(opened.count()), settings.batch.map(|_| opened));
        let opened = data.open(&*model, Split::Test)?;
        let (test_samples, own_test) = (Some(opened.count()), evaluators.head.then_some(opened));
        let training = data.split_data(&*model, Split::Train)?;
        let test = data.split_data(&*model, Split::Test)?;
        let specification = with_parameters(&specification, &parameters);
        let by_workers = evaluators.workers;
        Ok(Self { model, specification, training, samples, measured, test, own_test, test_samples, by_workers })
    }

    /// Opens the inputs of a coordinator. A model that this program does not have is read from `--init`.
    pub(crate) fn of_coordinator(settings: &Settings, models: ModelResolver) -> Result<Self, Failure> {
        match (models(&settings.model), &settings.init) {
            (Ok(_), _) => Self::open(settings, models),
            (Err(_), Some(init)) => Self::described(settings, described(&settings.model, init)?),
            (Err(error), None) => Err(Failure::usage(format!(
                "{error}. If only the workers have the model, give a file of its parameters with --init (`ata init --help`)"
            ))),
        }
    }

    /// Returns the inputs of a model that only the workers have. They also provide its data.
    fn described(settings: &Settings, model: DescribedModel) -> Result<Self, Failure> {
        let Settings { data, seed, .. } = settings;
        require(data == GENERATED, || {
            format!(
                "--data {data}: this program does not have the model, so its workers bring the data; leave --data out"
            )
        })?;
        let generated = || SplitData::Generated { seed: *seed };
        Ok(Self {
            model: measured(Arc::new(model), settings),
            specification: settings.model.clone(),
            training: generated(),
            samples: None,
            measured: None,
            test: generated(),
            own_test: None,
            test_samples: None,
            by_workers: settings.evaluators(false)?.workers,
        })
    }

    pub(crate) fn training_file(&self) -> Option<PathBuf> {
        match &self.training {
            SplitData::Generated { .. } | SplitData::Objects { .. } => None,
            SplitData::File(file) | SplitData::Shards { index: file, .. } => Some(file.path.clone()),
        }
    }
}

/// Returns the model of a run, whose tasks tally the squares of their gradients if noise is measured.
fn measured(model: Arc<dyn Model>, settings: &Settings) -> Arc<dyn Model> {
    if settings.measures_noise() { with_squares(model) } else { model }
}

/// Returns the specification of the model, including its training parameters.
fn specification(settings: &Settings, models: ModelResolver) -> Result<String, Failure> {
    let parameters = settings.model_parameters()?;
    let specification = with_parameters(&settings.model, &parameters);
    match (models(&settings.model), models(&specification)) {
        (Ok(_), Err(error)) => {
            let (model, parameters) = (&settings.model, parameters.join(" and "));
            Err(Failure::usage(format!("model '{model}' does not take {parameters}: {error}")))
        }
        _ => Ok(specification),
    }
}

/// A model that has been adapted to its data.
pub(crate) struct FoundInputs {
    pub(crate) model: Arc<dyn Model>,
    /// Further parameters of its specification, which workers need to resolve it to the same model.
    pub(crate) parameters: Vec<String>,
    pub(crate) data: DataPlace,
}

/// Finds the data that `--data` names and adapts a model to it. Prints the location of images that had to be packed, and the files left out.
pub(crate) fn find(
    model: Arc<dyn Model>,
    data: &str,
    seed: u64,
    options: FolderOptions,
) -> Result<FoundInputs, Failure> {
    let mut found = FoundInputs { model, parameters: Vec::new(), data: DataPlace::find(data, seed)? };
    let unsplit = || format!("--data {data} is no folder of images, which --validation could split: leave it out");
    let Some(path) = found.data.path() else {
        require(options.validation.is_none(), unsplit)?;
        return Ok(found);
    };
    let mut counting = Counting::new("images packed");
    let adapted = found.model.adapt(path, options, &mut |done, total| counting.set(done, total));
    counting.finish();
    let Some(adapted) = adapted.inspect_err(note_bad_images)? else {
        require(options.validation.is_none(), unsplit)?;
        return Ok(found);
    };
    note_left_out(&adapted.left_out);
    (found.model, found.parameters) = (adapted.model, adapted.parameters);
    if let DataPlace::Path(path) = &mut found.data
        && *path != adapted.data
    {
        note!("the images in {data} are packed in {}", adapted.data.display());
        *path = adapted.data;
    }
    Ok(found)
}

/// Prints the bad files of an error, whose message names only one.
pub(crate) fn note_bad_images(error: &DataError) {
    if let DataError::BadImages { first, others } = error {
        std::iter::once(first).chain(others).for_each(|bad| note_bad_image("cannot use", bad));
    }
}

pub(crate) fn note_left_out(files: &[BadImage]) {
    for bad in files {
        note_bad_image("left out", bad);
    }
    if !files.is_empty() {
        note!("{} files were left out", files.len());
    }
}

fn note_bad_image(what: &str, BadImage { path, reason }: &BadImage) {
    note!("{what} {}: {}", escaped(&path.display().to_string()), escaped(reason));
}

fn with_parameters(specification: &str, parameters: &[String]) -> String {
    let separator = match specification.split_once(':') {
        _ if parameters.is_empty() => "",
        None => ":",
        Some((_, "")) => "",
        Some(_) => ",",
    };
    format!("{specification}{separator}{}", parameters.join(","))
}

fn described(specification: &str, init: &Path) -> Result<DescribedModel, Failure> {
    let shown = init.display();
    let file = std::fs::read(init).map_err(|cause| Failure::data(format!("{shown}: {cause}")))?;
    let model = DescribedModel::read(&file).map_err(|error| Failure::data(format!("{shown}: {error}")))?;
    match model.specification() {
        Some(found) if found == specification => Ok(model),
        found => Err(Failure::usage(format!(
            "--model {specification}: this program does not have it, and {shown} is of --model {}",
            found.unwrap_or("(it does not say)")
        ))),
    }
}

/// The value of `--data` for samples that are generated from the seed.
const GENERATED: &str = "synthetic";
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
    fn find(data: &str, seed: u64) -> Result<Self, Failure> {
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
    fn path(&self) -> Option<&Path> {
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

    fn split_data(&self, model: &dyn Model, split: Split) -> Result<SplitData, Failure> {
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parameters_are_added_to_any_specification() {
        let added = ["classes=10".to_owned(), "size=64".to_owned()];
        for (specification, expected) in [
            ("cnn", "cnn:classes=10,size=64"),
            ("cnn:", "cnn:classes=10,size=64"),
            ("cnn:widths=4/4/8/16", "cnn:widths=4/4/8/16,classes=10,size=64"),
        ] {
            assert_eq!(with_parameters(specification, &added), expected);
            assert_eq!(with_parameters(specification, &[]), specification);
        }
    }
}
