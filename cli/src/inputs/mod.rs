//! The model of a run and its data.

mod place;

use std::path::{Path, PathBuf};
use std::sync::Arc;

use ata_coordinator::SplitData;
use ata_data::{BadImage, DataError, FolderOptions, Split};
use ata_learn::{Dataset, DescribedModel, Model, ModelResolver, with_squares};

use crate::escape::escaped;
use crate::failure::{Failure, require};
use crate::output::{Counting, note};
use crate::settings::Settings;

pub(crate) use place::DataPlace;

use place::GENERATED;

pub(crate) struct Inputs {
    pub(crate) model: Arc<dyn Model>,
    /// The specification that workers resolve to the same model.
    pub(crate) specification: String,
    pub(crate) training: SplitData,
    /// The number of training samples, if this program can read them.
    pub(crate) samples: Option<u64>,
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
        let samples = Some(data.open(&*model, Split::Train)?.count());
        let opened = data.open(&*model, Split::Test)?;
        let (test_samples, own_test) = (Some(opened.count()), evaluators.head.then_some(opened));
        let training = data.split_data(&*model, Split::Train)?;
        let test = data.split_data(&*model, Split::Test)?;
        let specification = with_parameters(&specification, &parameters);
        let by_workers = evaluators.workers;
        Ok(Self { model, specification, training, samples, test, own_test, test_samples, by_workers })
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
