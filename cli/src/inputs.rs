//! The model of a run and its data.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use ata_coordinator::SplitData;
use ata_learn::{Adapted, BadImage, DataError, DataSource, Dataset, DescribedModel, Model, ModelResolver, Split};
use ata_wire::limits::MAX_DATA_BYTES;

use crate::failure::Failure;
use crate::output::{Counting, escaped, note};
use crate::settings::Settings;

/// A model and the two splits of its data.
pub(crate) struct Inputs {
    pub(crate) model: Arc<dyn Model>,
    /// What workers resolve to the same model.
    pub(crate) specification: String,
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
        let Settings { data, seed, .. } = settings;
        let evaluators = settings.evaluators(true)?;
        let specification = specification(settings, models)?;
        let Adapted { model, parameters, data } = adapt(models(&specification)?, data)?;
        let training = source(&*model, &data, *seed, Split::Train)?;
        model.open(&training, Split::Train)?;
        let test = source(&*model, &data, *seed, Split::Test)?;
        let own_test = evaluators.head.then(|| model.open(&test, Split::Test)).transpose()?;
        let (training, test) = (split_data(training)?, split_data(test)?);
        let specification = with_parameters(&specification, &parameters);
        Ok(Self { model, specification, training, test, own_test, by_workers: evaluators.workers })
    }

    /// The same for a coordinator. A model that this program does not have comes from `--init`.
    pub(crate) fn of_coordinator(settings: &Settings, models: ModelResolver) -> Result<Self, Failure> {
        match (models(&settings.model), &settings.init) {
            (Ok(_), _) => Self::open(settings, models),
            (Err(_), Some(init)) => Self::described(settings, described(&settings.model, init)?),
            (Err(error), None) => Err(Failure::usage(format!(
                "{error}. If only the workers have the model, give a file of its parameters with --init (`ata init --help`)"
            ))),
        }
    }

    /// Those of a model that only the workers have; they bring its data.
    fn described(settings: &Settings, model: DescribedModel) -> Result<Self, Failure> {
        let Settings { data, seed, .. } = settings;
        if data != GENERATED {
            return Err(Failure::usage(format!(
                "--data {data}: this program does not have the model, so its workers bring the data; leave --data out"
            )));
        }
        let generated = || SplitData::Generated { seed: *seed };
        Ok(Self {
            model: Arc::new(model),
            specification: settings.model.clone(),
            training: generated(),
            test: generated(),
            own_test: None,
            by_workers: settings.evaluators(false)?.workers,
        })
    }

    /// The file with the training data, for workers on this machine.
    pub(crate) fn training_file(&self) -> Option<PathBuf> {
        match &self.training {
            SplitData::Generated { .. } => None,
            SplitData::File(file) | SplitData::Shards { index: file, .. } => Some(file.path.clone()),
        }
    }
}

/// The model that settings name, and how it is trained.
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
        DataSource::File(path) | DataSource::Shards { index: path, .. } => of_file(&path),
    }
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

fn of_file(path: &Path) -> Result<SplitData, Failure> {
    let data = SplitData::of_file(path)?;
    match &data {
        SplitData::File(file) if file.bytes > MAX_DATA_BYTES => {
            let (path, bytes) = (path.display(), file.bytes);
            Err(Failure::data(format!(
                "{path}: {bytes} bytes are more than workers take at once, {MAX_DATA_BYTES}; pack the images with --shard-mb"
            )))
        }
        _ => Ok(data),
    }
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
