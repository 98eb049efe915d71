//! The model of a run and its data.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use ata_coordinator::TrainingData;
use ata_learn::{Adapted, BadImage, DataError, DataFile, DataSource, Dataset, Model, ModelResolver, Split};
use ata_wire::limits::MAX_DATA_BYTES;

use crate::failure::Failure;
use crate::output::{Counting, escaped, note};

/// A model and the two splits of its data.
pub(crate) struct Inputs {
    pub(crate) model: Arc<dyn Model>,
    /// What workers resolve to the same model.
    pub(crate) specification: String,
    pub(crate) training: TrainingData,
    pub(crate) test: Arc<dyn Dataset>,
}

impl Inputs {
    /// Opens and checks what `--model` and `--data` name.
    pub(crate) fn open(models: ModelResolver, specification: &str, data: &str, seed: u64) -> Result<Self, Failure> {
        let Adapted { model, parameters, data } = adapt(models(specification)?, data)?;
        let source = source(&*model, &data, seed, Split::Train)?;
        model.open(&source, Split::Train)?;
        let training = match source {
            DataSource::Generated { seed } => TrainingData::Generated { seed },
            DataSource::File(path) => TrainingData::File(identify(&path)?),
        };
        let test = open_split(&*model, &data, seed, Split::Test)?;
        Ok(Self { model, specification: with_parameters(specification, &parameters), training, test })
    }

    /// The file with the training data, for workers on this machine.
    pub(crate) fn training_file(&self) -> Option<PathBuf> {
        match &self.training {
            TrainingData::Generated { .. } => None,
            TrainingData::File(file) => Some(file.path.clone()),
        }
    }
}

/// Adapts a model to what `--data` names, and says where images are that had to be packed.
pub(crate) fn adapt(model: Arc<dyn Model>, data: &str) -> Result<Adapted<Arc<dyn Model>>, DataError> {
    let as_it_is = |model| Adapted { model, parameters: Vec::new(), data: data.into() };
    if data == GENERATED {
        return Ok(as_it_is(model));
    }
    let mut counting = Counting::new("images packed");
    let adapted = model.adapt(Path::new(data), &mut |done, total| counting.set(done, total));
    counting.finish();
    let adapted = adapted.inspect_err(note_bad_images)?;
    let adapted = adapted.unwrap_or_else(|| as_it_is(model));
    if adapted.data != Path::new(data) {
        note!("the images in {data} are packed in {}", adapted.data.display());
    }
    Ok(adapted)
}

/// Names the files that an error is about; the error itself names one.
pub(crate) fn note_bad_images(error: &DataError) {
    if let DataError::BadImages { first, others } = error {
        std::iter::once(first).chain(others).for_each(|bad| note_bad_image("cannot use", bad));
    }
}

pub(crate) fn note_bad_image(what: &str, BadImage { path, reason }: &BadImage) {
    note!("{what} {}: {}", escaped(&path.display().to_string()), escaped(reason));
}

/// A specification with more parameters.
fn with_parameters(specification: &str, parameters: &[String]) -> String {
    let separator = match specification.split_once(':') {
        _ if parameters.is_empty() => "",
        None => ":",
        Some((_, "")) => "",
        Some(_) => ",",
    };
    format!("{specification}{separator}{}", parameters.join(","))
}

/// Opens one split of what `--data` names.
pub(crate) fn open_split(
    model: &dyn Model,
    data: &Path,
    seed: u64,
    split: Split,
) -> Result<Arc<dyn Dataset>, DataError> {
    model.open(&source(model, data, seed, split)?, split)
}

/// The value of `--data` for samples that are generated from the seed.
const GENERATED: &str = "synthetic";

/// The source of one split: `synthetic`, or a path that the model resolves.
fn source(model: &dyn Model, data: &Path, seed: u64, split: Split) -> Result<DataSource, DataError> {
    if data == Path::new(GENERATED) {
        return Ok(DataSource::Generated { seed });
    }
    Ok(DataSource::File(model.locate(data, split)?))
}

fn identify(path: &Path) -> Result<DataFile, Failure> {
    let file = DataFile::identify(path)?;
    if file.bytes > MAX_DATA_BYTES {
        let (path, bytes) = (path.display(), file.bytes);
        return Err(Failure::data(format!("{path}: {bytes} bytes are more than workers take, {MAX_DATA_BYTES}")));
    }
    Ok(file)
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
