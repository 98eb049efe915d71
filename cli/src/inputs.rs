//! The model of a run and its data.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use ata_coordinator::TrainingData;
use ata_learn::{DataError, DataFile, DataSource, Dataset, Model, Split};
use ata_wire::limits::MAX_DATA_BYTES;

use crate::failure::Failure;

/// A model and the two splits of its data.
pub(crate) struct Inputs {
    pub(crate) model: Arc<dyn Model>,
    pub(crate) training: TrainingData,
    pub(crate) test: Arc<dyn Dataset>,
}

impl Inputs {
    /// Opens and checks what `--data` names.
    pub(crate) fn open(model: Arc<dyn Model>, data: &str, seed: u64) -> Result<Self, Failure> {
        let source = source(&*model, data, seed, Split::Train)?;
        model.open(&source, Split::Train)?;
        let training = match source {
            DataSource::Generated { seed } => TrainingData::Generated { seed },
            DataSource::File(path) => TrainingData::File(identify(&path)?),
        };
        let test = open_split(&*model, data, seed, Split::Test)?;
        Ok(Self { model, training, test })
    }

    /// The file with the training data, for workers on this machine.
    pub(crate) fn training_file(&self) -> Option<PathBuf> {
        match &self.training {
            TrainingData::Generated { .. } => None,
            TrainingData::File(file) => Some(file.path.clone()),
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

/// The source of one split: `synthetic`, or a path that the model resolves.
fn source(model: &dyn Model, data: &str, seed: u64, split: Split) -> Result<DataSource, DataError> {
    match data {
        "synthetic" => Ok(DataSource::Generated { seed }),
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
