//! Models: problems from the view of coordinator and workers, and the built-in ones.

mod classifier;
mod cnn;
mod described;
mod image_parameters;
mod resnet;

pub use classifier::{ImageClassifier, Network};
pub use cnn::{Cnn, CnnWidths};
pub use described::DescribedModel;
pub use image_parameters::{ImageParameters, ImageShape};
pub use resnet::{BasicBlock, Bottleneck, ResNet};

use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use burn::tensor::Device;

use crate::device::{OpenDevice, is_cpu};
use crate::evaluator::{BurnEvaluator, Evaluator};
use crate::flat;
use crate::learner::{BurnLearner, Learner};
use crate::nn::{BatchNorm, GroupNorm};
use crate::problem::{Adaptation, Adapted, Batch, DeviceSamples, Problem, Samples};
use ata_data::{DataError, DataSource, FolderOptions, PackProgress, Split, Tasks};
use ata_sums::{Metadata, OwnOptimizer, ParameterTable};
use ata_types::did_you_mean;
use resnet::{Norm, NormName, parse_norm, parse_width};

/// A problem without its types, for the coordinator and the workers.
pub trait Model: Send + Sync {
    /// Returns the number of parameters: the length of every flat parameter and gradient vector.
    fn parameter_count(&self) -> usize {
        self.table().parameters()
    }

    /// Returns the names and shapes of the parameters.
    fn table(&self) -> ParameterTable;

    /// Returns fresh random parameters, which are the same for the same seed on every machine and device.
    fn initial_parameters(&self, seed: u64) -> Result<Vec<f32>, DataError>;

    /// Adapts the model to the data that `--data` names, before a run begins; see [`Problem::adapt`].
    fn adapt(&self, _data: &Path, _options: FolderOptions, _progress: PackProgress<'_>) -> Adaptation<Arc<dyn Model>> {
        Ok(None)
    }

    /// Returns the file that holds a split of the data that `--data` names.
    fn locate(&self, data: &Path, split: Split) -> Result<PathBuf, DataError>;

    /// Opens a split and checks it.
    fn open(&self, source: &DataSource, split: Split) -> Result<Arc<dyn Dataset>, DataError>;

    /// Returns the names of the classes; if there are none, there is no accuracy.
    fn class_names(&self) -> Vec<String>;

    /// Returns metadata that model files hold in addition to the tensors.
    fn metadata(&self) -> Metadata;

    /// Creates the optimizer that comes with the model, for `--optimizer own`. By default there is none.
    fn optimizer(&self) -> Result<Option<Box<dyn OwnOptimizer>>, DataError> {
        Ok(None)
    }
}

/// An open split of a model's data.
pub trait Dataset: Send + Sync {
    /// Returns the number of samples, at least one.
    fn count(&self) -> u64;

    /// Returns whether a learner may compute several tasks as one batch. Otherwise it does not know what each of them leaves in averaged
    /// parameters.
    fn fuses(&self) -> bool {
        true
    }

    /// Creates the learner of a worker, which computes the gradients of tasks.
    fn learner(self: Arc<Self>, device: &OpenDevice, tasks: Tasks) -> Box<dyn Learner>;

    /// Creates an evaluator of loss and accuracy, for a worker or the coordinator.
    fn evaluator(self: Arc<Self>, device: &OpenDevice) -> Box<dyn Evaluator>;
}

/// A function that finds the model of a specification such as `cnn`. The coordinator and the workers must use the same resolver.
pub type ModelResolver = fn(&str) -> Result<Arc<dyn Model>, ModelError>;

/// The reason why a specification names no model.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ModelError {
    /// There is no such model.
    #[error(
        "unknown model '{0}'{hint}: expected cnn, cnn:widths=C1/C2/C3/H, resnet20, resnet18, resnet50, or one of these three with \
         width=W or norm=batch/group, as in resnet20:norm=batch,width=32; classes=N and size=S follow if these are not to be those of the \
         data",
        hint = did_you_mean(.0.split(':').next().unwrap_or_default(), ["cnn", "resnet20", "resnet18", "resnet50"])
    )]
    Unknown(String),
    /// A parameter of a model is out of range.
    #[error("model '{model}': {reason}")]
    Invalid {
        /// The model's name.
        model: String,
        /// A description of the error and of valid values.
        reason: String,
    },
}

/// Makes a problem trainable.
pub fn model(problem: impl Problem) -> Arc<dyn Model> {
    Arc::new(ProblemModel(Arc::new(problem)))
}

/// Returns a model that comes with ata: `cnn`, `cnn:widths=C1/C2/C3/H`, `resnet20`, `resnet18` or `resnet50`, the last three also with
/// `width=W` and `norm=batch`. All of them also take `classes=N`, `size=S`, `augment=crop/flip` and `label_smoothing=E`, as in
/// `cnn:classes=10,size=64`.
pub fn builtin_model(specification: &str) -> Result<Arc<dyn Model>, ModelError> {
    let (name, parameters) = specification.split_once(':').unwrap_or((specification, ""));
    let unknown = || ModelError::Unknown(specification.into());
    let (mut widths, mut width, mut norm) = (CnnWidths::default(), None, NormName::Group);
    let mut of_images = ImageParameters::default();
    for parameter in parameters.split(',').filter(|parameter| !parameter.is_empty()) {
        let (key, value) = parameter.split_once('=').ok_or_else(unknown)?;
        match (name, key) {
            ("cnn", "widths") => widths = value.parse()?,
            ("resnet20" | "resnet18" | "resnet50", "width") => width = Some(parse_width(name, value)?),
            ("resnet20" | "resnet18" | "resnet50", "norm") => norm = parse_norm(name, value)?,
            _ if !of_images.take(key, value)? => return Err(unknown()),
            _ => {}
        }
    }
    match name {
        "cnn" => {
            Ok(model(ImageClassifier::new(of_images, move |shape, device: &Device| Cnn::new(widths, shape, device))))
        }
        "resnet20" | "resnet18" | "resnet50" => Ok(match norm {
            NormName::Batch => resnet::<BatchNorm>(name, width, of_images),
            NormName::Group => resnet::<GroupNorm>(name, width, of_images),
        }),
        _ => Err(unknown()),
    }
}

fn resnet<N: Norm>(name: &str, width: Option<usize>, of_images: ImageParameters) -> Arc<dyn Model> {
    let width = width.unwrap_or(if name == "resnet20" { 16 } else { 64 });
    let basic = |new: fn(usize, ImageShape, &Device) -> ResNet<N, BasicBlock<N>>| {
        model(ImageClassifier::new(of_images, move |shape, device: &Device| new(width, shape, device)))
    };
    match name {
        "resnet20" => basic(ResNet::resnet20),
        "resnet18" => basic(ResNet::resnet18),
        _ => model(ImageClassifier::new(of_images, move |shape, device: &Device| {
            ResNet::<N, Bottleneck<N>>::resnet50(width, shape, device)
        })),
    }
}

struct ProblemModel<P>(Arc<P>);

impl<P: Problem> Model for ProblemModel<P> {
    fn table(&self) -> ParameterTable {
        flat::table_of(&self.0.network(&Device::flex()))
    }

    fn initial_parameters(&self, seed: u64) -> Result<Vec<f32>, DataError> {
        // burn has one random state per process, which this lock protects.
        static RANDOM_STATE: Mutex<()> = Mutex::new(());
        let _guard = RANDOM_STATE.lock().unwrap_or_else(PoisonError::into_inner);
        let cpu = Device::flex();
        cpu.seed(seed);
        Ok(flat::parameters(&self.0.network(&cpu)))
    }

    fn adapt(&self, data: &Path, options: FolderOptions, progress: PackProgress<'_>) -> Adaptation<Arc<dyn Model>> {
        let adapted = self.0.adapt(data, options, progress)?;
        Ok(adapted.map(|Adapted { model: problem, parameters, data, left_out }| Adapted {
            model: model(problem),
            parameters,
            data,
            left_out,
        }))
    }

    fn locate(&self, data: &Path, split: Split) -> Result<PathBuf, DataError> {
        self.0.locate(data, split)
    }

    fn open(&self, source: &DataSource, split: Split) -> Result<Arc<dyn Dataset>, DataError> {
        let samples = self.0.open(source, split)?;
        if samples.count() == 0 {
            return Err(DataError::Empty(split));
        }
        Ok(Arc::new(OpenData { problem: self.0.clone(), samples }))
    }

    fn class_names(&self) -> Vec<String> {
        self.0.class_names()
    }

    fn metadata(&self) -> Metadata {
        self.0.metadata()
    }
}

pub(crate) struct OpenData<P: Problem> {
    pub(crate) problem: Arc<P>,
    pub(crate) samples: P::Samples,
}

impl<P: Problem> OpenData<P> {
    /// Returns the samples on a device, unless it is the CPU or they cannot be kept there.
    pub(crate) fn samples_on(&self, device: &Device) -> Option<DeviceSamples<Batch<P>>> {
        if is_cpu(device) {
            return None;
        }
        self.samples.on_device(device).unwrap_or_else(|error| {
            // An error only concerns the batches that need these samples.
            tracing::warn!("the data stays in host memory: {error}");
            None
        })
    }
}

impl<P: Problem> Dataset for OpenData<P> {
    fn count(&self) -> u64 {
        self.samples.count()
    }

    fn learner(self: Arc<Self>, device: &OpenDevice, tasks: Tasks) -> Box<dyn Learner> {
        Box::new(BurnLearner::new(self, tasks, device))
    }

    fn evaluator(self: Arc<Self>, device: &OpenDevice) -> Box<dyn Evaluator> {
        Box::new(BurnEvaluator::new(self, device.device.clone().without_autodiff()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Those of residual networks are the papers' 0.27 M and 11.7 M, with other numbers of classes, without projections, and with a different
    /// beginning; and that of torchvision's ResNet-50, with a different beginning.
    #[test]
    fn parameter_counts() {
        for (specification, expected) in [
            ("cnn", 158_684),
            ("cnn:classes=100,widths=16/32/64/120,size=32", 158_684),
            // There are 90 outputs fewer, each with 120 weights and a bias.
            ("cnn:classes=10", 158_684 - 90 * 121),
            // There are 64 channels of 8 × 8 instead of 4 × 4 pixels, with 120 weights each.
            ("cnn:size=64", 158_684 + 64 * 48 * 120),
            ("resnet20", 275_572),
            ("resnet20:width=16", 275_572),
            ("resnet20:width=32", 1_085_572),
            ("resnet20:size=64,classes=10", 275_572 - 90 * 65),
            ("resnet18:classes=1000,size=224", 11_545_000),
            ("resnet50:classes=1000,size=224", 25_557_032 - 9_408 + 1_728 + 36_864 + 128),
        ] {
            assert_eq!(builtin_model(specification).unwrap().parameter_count(), expected, "{specification}");
        }
    }

    /// In PyTorch, weights of Conv2d are [out, in, height, width], and those of Linear are [out, in].
    #[test]
    fn names_and_shapes_are_pytorchs() {
        let of_cnn = "conv1.weight [16, 3, 3, 3], conv1.bias [16], conv2.weight [32, 16, 3, 3], conv2.bias [32], \
                      conv3.weight [64, 32, 3, 3], conv3.bias [64], hidden.weight [120, 1024], hidden.bias [120], \
                      output.weight [100, 120], output.bias [100]";
        let of_resnet20 = "layer2.0.conv1.weight [32, 16, 3, 3], layer3.2.norm2.weight [64], norm1.bias [16], output.weight [100, 64]";
        let of_resnet18 = "conv2.weight [64, 64, 3, 3], layer2.0.conv1.weight [128, 64, 3, 3], layer4.1.norm2.weight [512], \
                           output.weight [100, 512]";
        for (model, tensors, expected) in
            [("cnn", 10, of_cnn), ("resnet20", 59, of_resnet20), ("resnet18", 56, of_resnet18)]
        {
            let table = builtin_model(model).unwrap().table();
            let found: Vec<String> =
                table.tensors.iter().map(|entry| format!("{} {:?}", entry.name, entry.shape)).collect();
            assert_eq!(found.len(), tensors);
            assert!(model != "cnn" || found.join(", ") == expected, "{found:?}");
            for entry in expected.split_inclusive("], ").map(|entry| entry.trim_end_matches(", ")) {
                assert!(found.iter().any(|found| found == entry), "{entry}");
            }
        }
    }

    #[test]
    fn bad_specifications_are_refused_with_the_reason() {
        assert!(builtin_model("cnn:").is_ok());
        for text in ["resnet", "", "cnn:depth=3", "resnet20:depth=5"] {
            assert_eq!(builtin_model(text).err(), Some(ModelError::Unknown(text.into())), "{text}");
        }
        for (specification, values, reason) in [
            (
                "cnn:widths",
                &["1/2/3", "1/2/3/0", "1/2/3/4/5", "a/2/3/4", "1/2/3/9999"][..],
                "must be four whole numbers",
            ),
            ("resnet20:width", &["12", "0", "512", "x"], "must be a multiple of 8"),
            ("resnet20:norm", &["layer"], "must be batch or group"),
        ] {
            let (model, key) = specification.split_once(':').unwrap();
            for value in values {
                let error = builtin_model(&format!("{specification}={value}")).err().unwrap().to_string();
                assert!(error.starts_with(&format!("model '{model}': {key} '{value}' {reason}")), "{error}");
            }
        }
    }
}
