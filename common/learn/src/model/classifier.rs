//! The built-in problem: classification of images.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use burn::module::Module;
use burn::tensor::{Device, Tensor};

use super::{ImageParameters, ImageShape};
use crate::flat;
use crate::images::ImageInput;
use crate::nn::cross_entropy_of_targets;
use crate::problem::{Adaptation, Adapted, Measurement, Problem};
use ata_data::{DataError, DataSource, FolderOptions, ImageInfo, Images, PackProgress, Split};
use ata_sums::Metadata;

/// A burn module that classifies images; [`ImageClassifier`] makes it a problem.
pub trait Network: Module + 'static {
    /// Returns the class scores (logits) of a batch of images.
    ///
    /// `images` has shape [samples, 3, size, size], is normalised per channel, and has the same number type as the
    /// parameters; the result has shape [samples, classes].
    fn forward(&self, images: Tensor<4>) -> Tensor<2>;
}

/// The classification of images by cross-entropy. The images are those of CIFAR-100, synthetic ones of the same shape, or packed ones.
pub struct ImageClassifier<F> {
    parameters: ImageParameters,
    /// The description of the data, once the problem is adapted to it.
    info: Option<ImageInfo>,
    new: Arc<F>,
}

impl<N: Network, F: Fn(ImageShape, &Device) -> N + Send + Sync + 'static> ImageClassifier<F> {
    /// Creates the problem for networks that `new` creates with fresh random parameters on a device.
    pub fn new(parameters: ImageParameters, new: F) -> Self {
        Self { parameters, info: None, new: Arc::new(new) }
    }

    /// Returns the description of the data. On workers, which need no class names, it is that of CIFAR-100.
    fn info(&self) -> ImageInfo {
        self.info.clone().unwrap_or_else(ImageInfo::cifar100)
    }
}

impl<N: Network, F: Fn(ImageShape, &Device) -> N + Send + Sync + 'static> Problem for ImageClassifier<F> {
    type Network = N;
    type Samples = Images;

    fn network(&self, device: &Device) -> N {
        (self.new)(self.parameters.shape(), device)
    }

    fn adapt(&self, data: &Path, options: FolderOptions, progress: PackProgress<'_>) -> Adaptation<Self> {
        let (data, left_out) = Images::prepare(data, self.parameters.shape().size, options, progress)?;
        let info = Images::describe(&self.locate(&data, Split::Train)?)?;
        let (parameters, added) = self.parameters.adapted(&info);
        let model = Self { parameters, info: Some(info), new: self.new.clone() };
        Ok(Some(Adapted { model, parameters: added, data, left_out }))
    }

    fn open(&self, source: &DataSource, split: Split) -> Result<Images, DataError> {
        let images = Images::open(source, split)?;
        self.parameters.shape().check(images.info())?;
        match (&self.info, source) {
            (Some(info), DataSource::File(path) | DataSource::Shards { index: path, .. }) if info != images.info() => {
                let reason =
                    "its classes or its normalisation are not those of the training images: pack both together";
                Err(DataError::corrupt(path, reason))
            }
            _ => Ok(images.augmented(self.parameters.augmentation())),
        }
    }

    fn loss(&self, network: &N, batch: &ImageInput, device: &Device) -> Tensor<1> {
        let scores = network.forward(batch.images(device).cast(flat::dtype(network)));
        cross_entropy_of_targets(scores, batch.targets(self.parameters.label_smoothing()), device)
    }

    fn measure(&self, network: &N, batch: &ImageInput, device: &Device) -> Measurement {
        Measurement::classification(network.forward(batch.images(device)), batch.labels())
    }

    fn locate(&self, data: &Path, split: Split) -> Result<PathBuf, DataError> {
        Images::locate(data, split)
    }

    fn class_names(&self) -> Vec<String> {
        self.info().classes
    }

    fn metadata(&self) -> Metadata {
        let ImageInfo { classes, channels, .. } = self.info();
        let of = |pick: fn(&(f32, f32)) -> f32| channels.map(|channel| pick(&channel).to_string()).join("/");
        let normalisation = format!("mean={} std={}", of(|channel| channel.0), of(|channel| channel.1));
        [("normalisation", normalisation), ("classes", classes.join(","))]
            .map(|(key, value)| (key.to_owned(), value))
            .into()
    }
}
