//! The model of a run and its data.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use ata_coordinator::SplitData;
use ata_learn::{DataError, DataFile, DataSource, Dataset, DescribedModel, Model, ModelResolver, Split};
use ata_wire::limits::MAX_DATA_BYTES;

use crate::failure::Failure;
use crate::settings::{Evaluators, Settings};

/// A model and the two splits of its data.
pub(crate) struct Inputs {
    pub(crate) model: Arc<dyn Model>,
    pub(crate) training: SplitData,
    pub(crate) test: SplitData,
    /// The test data, unless only workers evaluate.
    pub(crate) own_test: Option<Arc<dyn Dataset>>,
    /// Whether workers evaluate.
    pub(crate) by_workers: bool,
}

impl Inputs {
    /// Opens and checks the model and the data that the settings name.
    pub(crate) fn open(settings: &Settings, models: ModelResolver) -> Result<Self, Failure> {
        let Settings { model, data, seed, .. } = settings;
        Self::of(models(model)?, data, *seed, settings.evaluators(true)?)
    }

    /// The same for a coordinator. A model that this program does not have comes from `--init`.
    pub(crate) fn of_coordinator(settings: &Settings, models: ModelResolver) -> Result<Self, Failure> {
        let Settings { model, init, data, seed, .. } = settings;
        match (models(model), init) {
            (Ok(_), _) => Self::open(settings, models),
            (Err(_), Some(init)) => Self::described(described(model, init)?, data, *seed, settings.evaluators(false)?),
            (Err(error), None) => Err(Failure::usage(format!(
                "{error}. If only the workers have the model, give a file of its parameters with --init (`ata init --help`)"
            ))),
        }
    }

    fn of(model: Arc<dyn Model>, data: &str, seed: u64, evaluators: Evaluators) -> Result<Self, Failure> {
        let split = |split: Split| Ok::<_, Failure>(source(&*model, data, seed, split)?);
        let (training, test) = (split(Split::Train)?, split(Split::Test)?);
        model.open(&training, Split::Train)?;
        let own_test = evaluators.head.then(|| model.open(&test, Split::Test)).transpose()?;
        let (training, test) = (split_data(training)?, split_data(test)?);
        Ok(Self { model, training, test, own_test, by_workers: evaluators.workers })
    }

    /// Those of a model that only the workers have; they bring its data.
    fn described(model: DescribedModel, data: &str, seed: u64, evaluators: Evaluators) -> Result<Self, Failure> {
        if data != SYNTHETIC {
            return Err(Failure::usage(format!(
                "--data {data}: this program does not have the model, so its workers bring the data; leave --data out"
            )));
        }
        let generated = || SplitData::Generated { seed };
        let (training, test, by_workers) = (generated(), generated(), evaluators.workers);
        Ok(Self { model: Arc::new(model), training, test, own_test: None, by_workers })
    }

    /// The file with the training data, for workers on this machine.
    pub(crate) fn training_file(&self) -> Option<PathBuf> {
        match &self.training {
            SplitData::Generated { .. } => None,
            SplitData::File(file) => Some(file.path.clone()),
        }
    }
}

/// Opens one split of what `--data` names.
pub(crate) fn open_split(
    model: &dyn Model,
    data: &str,
    seed: u64,
    split: Split,
) -> Result<Arc<dyn Dataset>, DataError> {
    model.open(&source(model, data, seed, split)?, split)
}

/// The model that a file of parameters describes.
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

fn split_data(source: DataSource) -> Result<SplitData, Failure> {
    match source {
        DataSource::Generated { seed } => Ok(SplitData::Generated { seed }),
        DataSource::File(path) => Ok(SplitData::File(identify(&path)?)),
    }
}

/// What `--data` is called if there are none.
const SYNTHETIC: &str = "synthetic";

/// The source of one split: `synthetic`, or a path that the model resolves.
fn source(model: &dyn Model, data: &str, seed: u64, split: Split) -> Result<DataSource, DataError> {
    match data {
        SYNTHETIC => Ok(DataSource::Generated { seed }),
        path => Ok(DataSource::File(model.locate(Path::new(path), split)?)),
    }
}

fn identify(path: &Path) -> Result<DataFile, Failure> {
    let file = DataFile::identify(path)?;
    if file.bytes > MAX_DATA_BYTES {
        let (path, bytes) = (path.display(), file.bytes);
        return Err(Failure::data(format!("{path}: {bytes} bytes are more than workers take, {MAX_DATA_BYTES}")));
    }
    Ok(file)
}
