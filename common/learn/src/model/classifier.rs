//! Classification of images: the built-in problem.

use std::path::{Path, PathBuf};

use burn::module::Module;
use burn::tensor::{Device, Tensor};

use crate::data::{CHANNELS, CLASS_NAMES, DataError, DataSource, ImageInput, Images, Split};
use crate::model_file::Metadata;
use crate::nn::cross_entropy;
use crate::problem::{Measurement, Problem};

/// A burn module that classifies images; [`ImageClassifier`] makes it a problem.
pub trait Network: Module + 'static {
    /// Class scores (logits) of a batch of images.
    ///
    /// `images` has shape [samples, 3, 32, 32], normalised per channel; the result has shape [samples, classes].
    fn forward(&self, images: Tensor<4>) -> Tensor<2>;
}

/// The problem to classify the images of CIFAR-100, or of the synthetic data of its shape, by cross-entropy.
pub struct ImageClassifier<F> {
    new: F,
}

impl<N: Network, F: Fn(&Device) -> N + Send + Sync + 'static> ImageClassifier<F> {
    /// With a network that `new` creates with fresh random parameters on a device.
    pub fn new(new: F) -> Self {
        Self { new }
    }
}

impl<N: Network, F: Fn(&Device) -> N + Send + Sync + 'static> Problem for ImageClassifier<F> {
    type Network = N;
    type Samples = Images;

    fn network(&self, device: &Device) -> N {
        (self.new)(device)
    }

    fn open(&self, source: &DataSource, split: Split) -> Result<Images, DataError> {
        Images::open(source, split)
    }

    fn loss(&self, network: &N, batch: &ImageInput, device: &Device) -> Tensor<1> {
        cross_entropy(network.forward(batch.images(device)), batch.labels(), device)
    }

    fn measure(&self, network: &N, batch: &ImageInput, device: &Device) -> Measurement {
        Measurement::classification(network.forward(batch.images(device)), batch.labels())
    }

    fn locate(&self, data: &Path, split: Split) -> Result<PathBuf, DataError> {
        Images::locate(data, split)
    }

    fn class_names(&self) -> Vec<String> {
        CLASS_NAMES.map(String::from).into()
    }

    fn metadata(&self) -> Metadata {
        let channels = |pick: fn(&(f32, f32)) -> f32| CHANNELS.map(|channel| pick(&channel).to_string()).join("/");
        let normalisation = format!("mean={} std={}", channels(|channel| channel.0), channels(|channel| channel.1));
        [("normalisation", normalisation), ("classes", CLASS_NAMES.join(","))]
            .map(|(key, value)| (key.to_owned(), value))
            .into()
    }
}
