//! The command `ata eval`: measures a trained model on test data.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use ata_data::{Split, hex};
use ata_figures::Table;
use ata_learn::{DeviceChoice, Evaluation, ModelResolver};
use ata_record::{CONFIG_FILE, MODEL_FILE};
use ata_sums::{decode_metadata, sha256_of_parameters};
use serde::Serialize;

use crate::args::EvalArgs;
use crate::escape::escaped;
use crate::failure::Failure;
use crate::inputs::{FoundInputs, find as find_data};
use crate::output::{Counter, print, render_table};
use crate::run::model;
use crate::run::registry::candidates;
use crate::settings::{Settings, read_file};

#[derive(Serialize)]
struct ModelEvaluation {
    model: PathBuf,
    data: String,
    step: Option<u64>,
    parameters_sha256: String,
    samples: u64,
    loss: f64,
    /// The accuracy; null for a model without classes.
    accuracy: Option<f64>,
    metrics: BTreeMap<String, f64>,
    classes: Vec<Class>,
}

#[derive(Serialize)]
struct Class {
    label: usize,
    name: String,
    samples: u32,
    correct: u32,
    accuracy: Option<f64>,
}

pub(crate) fn run(args: &EvalArgs, models: ModelResolver) -> Result<(), Failure> {
    let path = find(&args.model)?;
    let settings = settings_of(&path)?;
    let bytes = std::fs::read(&path).map_err(|cause| Failure::data(format!("{}: {cause}", path.display())))?;
    let wrong = |error| Failure::data(format!("{}: {error}", path.display()));
    let metadata = decode_metadata(&bytes).map_err(wrong)?;
    let specification = metadata.get("model").cloned().or(settings.as_ref().map(|settings| settings.model.clone()));
    let network = models(specification.as_deref().unwrap_or("cnn"))?;

    let name = args.data.clone().or(settings.as_ref().map(|settings| settings.data.clone())).ok_or_else(|| {
        let path = path.display();
        Failure::usage(format!(
            "{path} lies in no run's folder, so its data is not known: add --data DATA (or --data synthetic)"
        ))
    })?;
    let settings = settings.unwrap_or_default();
    let seed = args.seed.unwrap_or(settings.seed);
    let mut options = args.folder.options();
    if name == settings.data {
        // The test data is to be that of the run.
        options.skip_bad |= settings.skip_bad;
        options.validation = options.validation.or(settings.validation);
    }
    let FoundInputs { model: network, data, .. } = find_data(network, &name, seed, options)?;
    let (parameters, _) = model::read(&path, &network.table())?;
    check_classes(metadata.get("classes"), &network.class_names(), &path, &name)?;
    let test = data.open(&*network, Split::Test)?;
    let device = args.device.parse::<DeviceChoice>()?.open()?;
    let samples = test.count();
    let counter = Counter::new("samples", samples);
    let evaluation = test.evaluator(&device).evaluate(&parameters, &mut |done| {
        counter.set(done);
        true
    })?;
    counter.finish();
    let evaluation = evaluation.ok_or_else(|| Failure::internal("this model cannot be evaluated"))?;
    let result = ModelEvaluation {
        step: metadata.get("step").and_then(|step| step.parse().ok()),
        parameters_sha256: hex(&sha256_of_parameters(&parameters)),
        samples,
        loss: evaluation.loss,
        accuracy: evaluation.accuracy,
        metrics: evaluation.metrics.clone(),
        classes: classes(&evaluation, &network.class_names()),
        data: name,
        model: path,
    };
    print(args.json, &result, || text(&result, args.classes))
}

/// Checks that the classes of the data have the names, and the order, of those that the model was trained on.
fn check_classes(trained: Option<&String>, found: &[String], model: &Path, data: &str) -> Result<(), Failure> {
    let trained = trained.iter().flat_map(|names| names.split(','));
    match trained.zip(found).enumerate().find(|(_, (trained, found))| trained != found) {
        Some((label, (trained, found))) => Err(Failure::data(format!(
            "{data}: class {label} is '{found}', and {} was trained on data in which it is '{trained}'",
            model.display()
        ))),
        None => Ok(()),
    }
}

fn find(name: &Path) -> Result<PathBuf, Failure> {
    let of_runs = candidates(name).into_iter().map(|run| run.join(MODEL_FILE));
    std::iter::once(name.to_owned()).chain(of_runs).find(|path| path.is_file()).ok_or_else(|| {
        let name = name.display();
        Failure::data(format!("{name}: no model there; expected a run's folder, id or name, or a {MODEL_FILE}"))
    })
}

/// Returns the settings of a model's run, if the model is in the folder of a run or of its checkpoints.
fn settings_of(model: &Path) -> Result<Option<Settings>, Failure> {
    let config = model.ancestors().skip(1).take(3).map(|folder| folder.join(CONFIG_FILE)).find(|path| path.is_file());
    config.map(|path| Settings::of(&read_file(&path)?)).transpose()
}

fn classes(evaluation: &Evaluation, names: &[String]) -> Vec<Class> {
    let class = |(class, count): (usize, &ata_learn::ClassCount)| Class {
        label: class,
        name: names.get(class).map_or_else(|| class.to_string(), String::clone),
        samples: count.samples,
        correct: count.correct,
        accuracy: (count.samples > 0).then(|| f64::from(count.correct) / f64::from(count.samples)),
    };
    evaluation.classes.iter().enumerate().map(class).collect()
}

fn text(evaluation: &ModelEvaluation, shows_classes: bool) -> String {
    let ModelEvaluation { model, data, samples, loss, accuracy, metrics, classes, .. } = evaluation;
    let text = format!("{} on the {samples} test samples of {data}\n", model.display());
    let metric = |(name, value): (&String, &f64)| format!(", {} {value:.4}", escaped(name));
    let metrics: String = metrics.iter().map(metric).collect();
    let Some(accuracy) = accuracy else { return text + &format!("loss {loss:.4}{metrics}\n") };
    let figures = format!("loss {loss:.4}, accuracy {:.2} %{metrics}\n", accuracy * 100.0);
    if !shows_classes {
        return text + &figures;
    }
    let row = |class: &Class| {
        let accuracy = class.accuracy.map_or("-".into(), |accuracy| format!("{:.1} %", accuracy * 100.0));
        let label = format!("{} {}", class.label, class.name);
        vec![label, class.samples.to_string(), class.correct.to_string(), accuracy]
    };
    let header = ["class", "samples", "correct", "accuracy"].map(String::from).into();
    let table = Table { title: "By class".into(), header, rows: classes.iter().map(row).collect() };
    text + &figures + &render_table(&table, usize::MAX)
}
